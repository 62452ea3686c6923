//! The race in this process: threads, a map behind a lock, and the memory store.

use std::collections::HashMap;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use tallygate::Limiter;

use super::{Field, Round};

pub(super) fn race(field: &Field) -> Vec<Round> {
    let round = |_| {
        let counts = Counts::default();
        let limiter = Limiter::new(field.quota());
        Round {
            read_check_write: all_at_once(field, || read_check_write(&counts, field.limit)),
            atomic: all_at_once(field, || limiter.check("everybody").allowed()),
        }
    };
    (0..field.rounds).map(round).collect()
}

/// Lets every client ask at the same moment and counts those that got in.
fn all_at_once(field: &Field, ask: impl Fn() -> bool + Sync) -> u32 {
    let start = Barrier::new(field.clients as usize);
    thread::scope(|scope| {
        let client = || {
            start.wait();
            ask()
        };
        let clients: Vec<_> = (0..field.clients).map(|_| scope.spawn(client)).collect();
        let got_in = clients.into_iter().map(|client| {
            let asked = client.join().expect("a client only asks");
            u32::from(asked)
        });
        got_in.sum()
    })
}

/// Each access is safe by itself; two of them together are not.
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
    let count = counts.get("everybody");
    if count >= limit {
        return false;
    }
    // Whatever else a handler does in between.
    thread::yield_now();
    counts.set("everybody", count + 1);
    true
}
