//! The lines of those who wait, one for each set of counters. Knows who stands where, and nothing
//! of what they wait for.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

use super::seats::Seats;
use super::wait::AcquireError;
use crate::request::Asked;

/// How many requests of a limiter may wait at once; more are turned away.
pub(super) const MOST_WAITING: usize = 100_000;

/// Everybody who waits, by key.
#[derive(Default)]
pub(super) struct Waiting {
    lines: Mutex<Lines>,
    seed: RandomState,
}

#[derive(Default)]
struct Lines {
    by_key: HashMap<u64, Members>,
    waiting: usize,
}

/// A line and how many stand in it.
#[derive(Default)]
struct Members {
    line: Arc<Line>,
    count: usize,
}

/// Those who wait for the same counters.
#[derive(Default)]
pub(super) struct Line {
    /// Whoever holds it is first; it is handed over in order of arrival.
    pub(super) gate: tokio::sync::Mutex<()>,
    /// Whoever holds it asks and is seated if need be, so that seats are in the order of the
    /// schedule; nobody holds it while waiting for room or for a turn.
    pub(super) seating: tokio::sync::Mutex<()>,
    pub(super) seats: Seats,
}

/// A place in a line; the line goes with its last one.
pub(super) struct Ticket<'a> {
    waiting: &'a Waiting,
    key: u64,
    pub(super) line: Arc<Line>,
}

impl Waiting {
    /// Enters the line of some counters.
    pub(super) fn enter<'r, 'a: 'r>(
        &self,
        counters: impl Iterator<Item = &'r Asked<'a>>,
    ) -> Result<Ticket<'_>, AcquireError> {
        // Two keys of one hash would stand in one line: they would wait longer, no more.
        let names = counters.map(|asked| (&asked.key, asked.limit.name()));
        let key = self.seed.hash_one(names.collect::<Vec<_>>());
        let mut lines = self.lines.lock();
        if lines.waiting == MOST_WAITING {
            return Err(AcquireError::Crowded);
        }
        lines.waiting += 1;
        let members = lines.by_key.entry(key).or_default();
        members.count += 1;
        Ok(Ticket {
            waiting: self,
            key,
            line: Arc::clone(&members.line),
        })
    }

    /// How many stand in all lines together.
    pub(super) fn count(&self) -> usize {
        self.lines.lock().waiting
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut lines = self.waiting.lines.lock();
        lines.waiting -= 1;
        if let Entry::Occupied(mut entry) = lines.by_key.entry(self.key) {
            entry.get_mut().count -= 1;
            if entry.get().count == 0 {
                entry.remove();
            }
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("waiting", &self.count())
            .finish_non_exhaustive()
    }
}
