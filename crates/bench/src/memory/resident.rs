//! Memory: what a key costs in a process that does nothing else.

use std::fs;
use std::io;

use crate::figure::Figure;
use crate::memory::contender::Entry;
use crate::memory::scenario::count;
use crate::setting::{Behaviour, Setting};

/// One question about memory.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Live keys, and the capacity the contender is built for.
    pub keys: usize,
    /// How it limits.
    pub behaviour: Behaviour,
    /// Requests admitted for each key.
    pub entries: usize,
}

impl Question {
    /// Its row in the table.
    pub fn row(&self) -> String {
        let keys = count(self.keys);
        let behaviour = self.behaviour.name();
        match (self.behaviour, self.entries) {
            (Behaviour::TokenBucket, _) => format!("memory, {keys} keys, bytes a key"),
            (Behaviour::SlidingWindowLog, 1) => {
                format!("memory, {keys} keys, {behaviour} of 1 entry, bytes a key")
            }
            (Behaviour::SlidingWindowLog, entries) => {
                format!("memory, {keys} keys, {behaviour} of {entries} entries, bytes a key")
            }
            (_, _) => format!("memory, {keys} keys, {behaviour}, bytes a key"),
        }
    }

    /// Fills the contender and tells how much the process has grown, for each key.
    ///
    /// # Errors
    ///
    /// `/proc/self/status` cannot be read.
    pub fn answer(&self, entry: &Entry) -> io::Result<Figure> {
        let setting = match self.behaviour {
            Behaviour::SlidingWindowLog => Setting::window(self.behaviour, 1_000),
            behaviour => Setting::roomy(behaviour, self.keys),
        };
        // Code and statics that every contender brings along are no part of a key.
        (entry.build)(&setting, 10).fill(10);

        let before = resident_bytes()?;
        let lane = (entry.build)(&setting, self.keys);
        for _ in 0..self.entries {
            lane.fill(self.keys);
        }
        let grown = resident_bytes()?.saturating_sub(before);
        // Kept until here: what is measured must still be alive.
        drop(lane);
        Ok(Figure {
            row: self.row(),
            contender: entry.name.to_owned(),
            value: grown as f64 / self.keys as f64,
        })
    }
}

/// The memory of this process that is really there.
fn resident_bytes() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))
        .and_then(|kilobytes| kilobytes.parse::<u64>().ok())
        .map(|kilobytes| kilobytes * 1024)
        .ok_or_else(|| io::Error::other("no VmRSS in /proc/self/status"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_written_to_is_resident() {
        let before = resident_bytes().unwrap();
        let block = vec![1_u8; 64 << 20];
        let after = resident_bytes().unwrap();
        assert!(after >= before + (32 << 20), "{before} {after}");
        drop(block);
    }
}
