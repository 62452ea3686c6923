//! The resident memory per key, measured in a process of its own.

use std::fs;
use std::io;

use crate::measurement::Measurement;
use crate::memory::contender::Entry;
use crate::memory::scenario::format_count;
use crate::quota_spec::{Algorithm, QuotaSpec, algorithm_name};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct MemoryScenario {
    /// Live keys; the contender is built for as many.
    pub keys: usize,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Requests admitted for each key.
    pub entries: usize,
}

impl MemoryScenario {
    /// Its row in the table.
    pub fn row(&self) -> String {
        let keys = format_count(self.keys);
        let algorithm = algorithm_name(self.algorithm);
        match (self.algorithm, self.entries) {
            (Algorithm::TokenBucket, _) => format!("memory, {keys} keys, bytes per key"),
            (Algorithm::SlidingWindowLog, 1) => {
                format!("memory, {keys} keys, {algorithm} of 1 entry, bytes per key")
            }
            (Algorithm::SlidingWindowLog, entries) => {
                format!("memory, {keys} keys, {algorithm} of {entries} entries, bytes per key")
            }
            (_, _) => format!("memory, {keys} keys, {algorithm}, bytes per key"),
        }
    }

    /// Fills a contender and measures the growth of the process per key.
    ///
    /// # Errors
    ///
    /// `/proc/self/status` cannot be read.
    pub fn measure(&self, entry: &Entry) -> io::Result<Measurement> {
        let spec = match self.algorithm {
            Algorithm::SlidingWindowLog => QuotaSpec::window(self.algorithm, 1_000),
            algorithm => QuotaSpec::unreached(algorithm, self.keys),
        };
        // The first use loads code and statics, which do not count.
        (entry.build)(&spec, 10).fill(10);

        let before = resident_bytes()?;
        let contender = (entry.build)(&spec, self.keys);
        for _ in 0..self.entries {
            contender.fill(self.keys);
        }
        let growth = resident_bytes()?.saturating_sub(before);
        drop(contender);
        Ok(Measurement {
            row: self.row(),
            contender: entry.name.to_owned(),
            value: growth as f64 / self.keys as f64,
        })
    }
}

/// The resident set size of this process.
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
