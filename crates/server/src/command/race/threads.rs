//! The race in this process: threads, a map behind a mutex, and the memory store.

use std::collections::HashMap;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use tallygate::Limiter;

use super::{Race, Round};

pub(super) fn race(race: &Race) -> Vec<Round> {
    let round = |_| {
        let counts = Counts::default();
        let limiter = Limiter::new(race.quota());
        Round {
            read_check_write: run_clients(race, || read_check_write(&counts, race.limit)),
            atomic: run_clients(race, || limiter.check("all").allowed()),
        }
    };
    (0..race.rounds).map(round).collect()
}

/// Starts all clients at the same time and counts those admitted.
fn run_clients(race: &Race, request: impl Fn() -> bool + Sync) -> u32 {
    let start = Barrier::new(race.clients as usize);
    thread::scope(|scope| {
        let client = || {
            start.wait();
            request()
        };
        let clients: Vec<_> = (0..race.clients).map(|_| scope.spawn(client)).collect();
        let admitted = clients.into_iter().map(|client| {
            let admitted = client.join().expect("a client does not panic");
            u32::from(admitted)
        });
        admitted.sum()
    })
}

/// Each access is atomic; two in sequence are not.
#[derive(Default)]
struct Counts(Mutex<HashMap<&'static str, u32>>);

impl Counts {
    fn get(&self, key: &'static str) -> u32 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(key).copied().unwrap_or_default()
    }

    fn set(&self, key: &'static str, count: u32) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.insert(key, count);
    }
}

fn read_check_write(counts: &Counts, limit: u32) -> bool {
    let count = counts.get("all");
    if count >= limit {
        return false;
    }
    // Stands for the other work of a handler.
    thread::yield_now();
    counts.set("all", count + 1);
    true
}
