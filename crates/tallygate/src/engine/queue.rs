//! The queues of waiting requests, one for each set of counters.

mod turns;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

use super::acquire::AcquireError;
use super::shaping_queue::ShapingQueue;
use crate::request::RequestEntry;
pub(super) use turns::{TurnTicket, Turns};

/// The maximum number of requests that wait in all queues of an engine.
pub(super) const MAX_WAITING: usize = 100_000;

/// All queues, by a hash of their counters.
#[derive(Default)]
pub(super) struct Queues {
    map: Mutex<QueueMap>,
    seed: RandomState,
}

#[derive(Default)]
struct QueueMap {
    queues: HashMap<u64, CountedQueue>,
    waiting: usize,
}

#[derive(Default)]
struct CountedQueue {
    queue: Arc<Queue>,
    tickets: usize,
}

/// The requests that wait for the same counters.
#[derive(Default)]
pub(super) struct Queue {
    /// Requests that wait for capacity.
    pub(super) turns: Turns,
    pub(super) shaping: ShapingQueue,
}

/// A position in a queue. The queue is removed with its last ticket.
pub(super) struct Ticket<'a> {
    queues: &'a Queues,
    hash: u64,
    pub(super) queue: Arc<Queue>,
}

impl Queues {
    /// Enters the queue of some counters.
    pub(super) fn enter<'r, 'a: 'r>(
        &self,
        counters: impl Iterator<Item = &'r RequestEntry<'a>>,
    ) -> Result<Ticket<'_>, AcquireError> {
        // Counters whose hashes collide share a queue: their requests only wait longer.
        let names = counters.map(|entry| (&entry.key, entry.limit.name()));
        let hash = self.seed.hash_one(names.collect::<Vec<_>>());
        let mut map = self.map.lock();
        if map.waiting == MAX_WAITING {
            return Err(AcquireError::TooManyWaiting);
        }
        map.waiting += 1;
        let counted = map.queues.entry(hash).or_default();
        counted.tickets += 1;
        Ok(Ticket {
            queues: self,
            hash,
            queue: Arc::clone(&counted.queue),
        })
    }

    /// The number of requests in all queues.
    pub(super) fn len(&self) -> usize {
        self.map.lock().waiting
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut map = self.queues.map.lock();
        map.waiting -= 1;
        if let Entry::Occupied(mut entry) = map.queues.entry(self.hash) {
            entry.get_mut().tickets -= 1;
            if entry.get().tickets == 0 {
                entry.remove();
            }
        }
    }
}
