//! The CPU time of [`TURNS`] in the memory store, on one thread.

use std::hint::black_box;

use ::tallygate::{Key, Limit, MemoryStore, Quota, Request};

use super::contender::TALLYGATE;
use crate::callers::{CALLERS, KEYS, TURNS, Turn};
use crate::measure::{median, thread_cpu_time};
use crate::measurement::Measurement;
use crate::options::Options;

/// The name of a row.
pub fn row(turn: &Turn) -> String {
    format!("1k keys with 10 callers each: {}", turn.name)
}

/// A turn and the store with its counters.
struct Filled {
    turn: Turn,
    limit: Limit,
    store: MemoryStore,
    ns: Vec<f64>,
}

/// Measures the selected rows alternately and prints them.
///
/// # Panics
///
/// If a decision refuses: no limit is ever reached.
pub fn measure(options: &Options, turns: usize, repetitions: usize) {
    let keys = (0..KEYS).map(|key| Key::from(format!("user:{key}")));
    let names = (0..CALLERS).map(|caller| Key::from(format!("caller:{caller}")));
    let (keys, names): (Vec<Key<'_>>, Vec<Key<'_>>) = (keys.collect(), names.collect());
    let selected = TURNS.into_iter();
    let selected = selected.filter(|turn| options.selects_scenario(&row(turn)));
    let mut filled: Vec<Filled> = selected
        .map(|turn| Filled {
            turn,
            limit: Limit::from(turn.quota.parse::<Quota>().expect("a valid quota")),
            store: MemoryStore::builder().capacity(200_000).build(),
            ns: Vec::new(),
        })
        .collect();
    // The first repetition is the warm-up.
    for repetition in 0..=repetitions {
        for filled in &mut filled {
            let before = thread_cpu_time();
            let decisions = filled.ask(&keys, &names, turns);
            let spent = thread_cpu_time() - before;
            if repetition > 0 {
                filled.ns.push(spent.as_nanos() as f64 / decisions as f64);
            }
        }
    }
    for filled in filled {
        Measurement {
            row: row(&filled.turn),
            contender: TALLYGATE.to_owned(),
            value: median(&filled.ns),
        }
        .print();
    }
}

impl Filled {
    /// Returns the number of decisions.
    fn ask(&self, keys: &[Key<'_>], names: &[Key<'_>], turns: usize) -> usize {
        let mut decisions = 0;
        for turn in 0..turns {
            let (key, name) = (&keys[turn % KEYS], &names[turn / KEYS % CALLERS]);
            for (verb, cost) in self.turn.steps() {
                let request = Request::new(key, &self.limit).verb(verb).cost(cost);
                let request = if verb.needs_id() {
                    request.id(name)
                } else {
                    request.member(name).owner(name)
                };
                let decision = black_box(self.store.decide(&request));
                assert!(decision.allowed(), "{}: {verb:?}", self.turn.name);
                decisions += 1;
            }
        }
        decisions
    }
}
