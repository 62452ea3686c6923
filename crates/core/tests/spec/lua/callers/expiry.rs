//! The expiry of the keys of shares, concurrency limits and reservations, by the server's clock.

use std::collections::BTreeMap;

use tallygate_core::lua::{Operation, key_suffixes};
use tallygate_core::{FoundState, Quota, Reservation, State, Verb, evaluate_found};
use tallygate_testkit::{any, with_each_seed};

use super::super::{Limit, Scripts, unique_key};
use super::{Who, any_cost};

/// Long enough that nothing expires during a test.
const QUOTAS: [&str; 5] = [
    "token-bucket 10/h burst 16 shared 4",
    "leaky-bucket 1/d burst 366 shared 91",
    "concurrent 3 for 10min",
    "concurrent 10000 for 24h",
    "token-bucket 10/h burst 20",
];

/// A counter, its further keys, and the keys of its reservations.
struct Keys {
    counter: Vec<u8>,
    further: Vec<Vec<u8>>,
}

impl Keys {
    fn new(quota: &Quota) -> Self {
        let counter = unique_key();
        let suffixes = key_suffixes(quota).iter();
        let further = suffixes.map(|suffix| [&*counter, suffix.as_bytes()].concat());
        Keys {
            further: further.collect(),
            counter,
        }
    }

    fn id(&self, who: &Who) -> Vec<u8> {
        [&*self.counter, b"|r", who.id].concat()
    }
}

fn call(
    scripts: &mut Scripts,
    keys: &Keys,
    quota: &Quota,
    (verb, cost): (Verb, u32),
    who: &Who,
    t: Option<u64>,
) -> (u64, State, Option<Reservation>) {
    let (operation, id) = (Operation::Verb(verb), keys.id(who));
    let limit = Limit {
        caller: who.named(),
        id: &id,
        ..Limit::new(&keys.counter, quota, operation, cost)
    };
    scripts.send(&[limit], t);
    let (now, mut found) = scripts.receive_found([(*quota, operation)]);
    let (state, reservation) = found.remove(0);
    (now, state, reservation)
}

/// When a key expires, in microseconds; `None` if it does not exist.
fn expires_at(scripts: &mut Scripts, key: &[u8]) -> Option<u64> {
    match scripts.command(&[b"PEXPIRETIME", key]).integer() {
        -2 => None,
        -1 => panic!("a key without expiry"),
        at => Some(u64::try_from(at).unwrap() * 1_000),
    }
}

#[test]
fn keys_expire_when_the_counter_is_as_new_or_at_most_a_span_later() {
    with_each_seed(|rng| {
        let mut scripts = Scripts::connect();
        for _ in 0..20 {
            let quota: Quota = any(rng, &QUOTAS).parse().unwrap();
            let keys = Keys::new(&quota);
            let mut ids = BTreeMap::new();
            for _ in 0..30 {
                let (who, verb) = (Who::any(rng), any(rng, &Verb::ALL));
                let step = (verb, any_cost(rng, &quota).min(1_000_000));
                let (now, ..) = call(&mut scripts, &keys, &quota, step, &who, None);
                if verb.needs_id() {
                    ids.insert(keys.id(&who), now);
                }
                let (peeked, state, _) =
                    call(&mut scripts, &keys, &quota, (Verb::Peek, 1), &who, None);
                let mut found = [FoundState {
                    caller: who.caller(),
                    ..FoundState::new(&quota, state, 1, peeked)
                }];
                let reset = evaluate_found(&mut found, Verb::Peek)
                    .verdict()
                    .reset_after_us;
                for key in [&keys.counter].into_iter().chain(&keys.further) {
                    let Some(at) = expires_at(&mut scripts, key) else {
                        continue;
                    };
                    // The peek was later than the call.
                    let end = now + reset;
                    assert!(reset == 0 || at >= end, "{quota}: {} too early", end - at);
                    let max = peeked + reset + quota.span_us() + 10_000_000;
                    assert!(at <= max, "{quota}: {} too late", at - max);
                }
            }
            for (id, since) in ids {
                if let Some(at) = expires_at(&mut scripts, &id) {
                    let hour = 3_600_000_000;
                    assert!(at <= since + hour + quota.span_us(), "{quota}");
                    assert!(at + quota.span_us() >= since, "{quota}");
                }
            }
        }
    });
}

#[test]
fn keys_written_with_a_supplied_time_expire_after_a_day() {
    with_each_seed(|rng| {
        let mut scripts = Scripts::connect();
        for _ in 0..20 {
            let quota: Quota = any(rng, &QUOTAS).parse().unwrap();
            let keys = Keys::new(&quota);
            let mut t = 1_700_000_000_000_000;
            let mut all = vec![keys.counter.clone()];
            all.extend(keys.further.iter().cloned());
            for _ in 0..30 {
                let (who, verb) = (Who::any(rng), any(rng, &Verb::ALL));
                t += any(rng, &[0, 1, quota.span_us(), 3 * quota.span_us()]);
                let step = (verb, any_cost(rng, &quota));
                call(&mut scripts, &keys, &quota, step, &who, Some(t));
                all.push(keys.id(&who));
                for key in &all {
                    let ttl = scripts.command(&[b"PTTL", &**key]).integer();
                    let day = 86_400_000;
                    assert!(ttl == -2 || ttl > day - 600_000, "{quota} {step:?} {ttl}");
                    assert!(ttl <= day, "{quota} {step:?} {ttl}");
                }
            }
        }
    });
}
