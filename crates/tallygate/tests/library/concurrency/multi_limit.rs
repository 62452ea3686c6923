//! Requests over several keys and limits by many threads: all or nothing, and refused requests take
//! nothing, not even temporarily.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use tallygate::{Limit, Request, Verb};

use crate::fixtures::{Store, quotas_per_minute, race, seeded, store};

/// The used units of a key.
fn used(store: &Arc<Store>, key: &str, limit: &Limit) -> u32 {
    let peek = Request::new(key, limit).verb(Verb::Peek);
    limit.quota().capacity() - store.decide(&peek).remaining()
}

#[test]
fn only_admitted_requests_are_counted() {
    const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
    for capacity in [1, 4, 64] {
        let (_, store) = store(capacity);
        let limits: Vec<Limit> = quotas_per_minute(300)
            .into_iter()
            .map(Limit::from)
            .collect();
        let taken: Vec<AtomicU32> = (0..KEYS.len() * limits.len())
            .map(|_| AtomicU32::new(0))
            .collect();
        race(6, |thread| {
            let mut rng = seeded(thread);
            for _ in 0..300 {
                // Some of the counters, in random order.
                let mut counters: Vec<usize> = (0..taken.len()).collect();
                rng.shuffle(&mut counters);
                counters.truncate(rng.usize(1..=8));
                let counter = |&at: &usize| (KEYS[at % 5], &limits[at / 5]);
                let (key, limit) = counter(&counters[0]);
                let verb = if rng.bool() { Verb::Check } else { Verb::Take };
                let mut request = Request::new(key, limit).verb(verb).cost(rng.u32(1..=4));
                let own_costs = rng.bool();
                for (key, limit) in counters[1..].iter().map(counter) {
                    let cost = if own_costs {
                        rng.u32(..=4)
                    } else {
                        request.requested_cost()
                    };
                    request = request.and_cost(key, limit, cost).unwrap();
                }
                let decision = store.decide(&request);
                let each = request.entries().iter().zip(decision.verdicts());
                for (&at, (entry, verdict)) in counters.iter().zip(each) {
                    let all = match verb {
                        _ if entry.cost() == 0 => 0,
                        Verb::Check => entry.cost(),
                        _ => decision.granted(),
                    };
                    let expected = if decision.allowed() { all } else { 0 };
                    assert_eq!(verdict.granted(), expected, "all or nothing");
                    taken[at].fetch_add(verdict.granted(), SeqCst);
                }
            }
        });
        assert_eq!(store.shared_decisions(), 0, "30 counters fit");
        for (at, taken) in taken.iter().enumerate() {
            let (key, limit) = (KEYS[at % 5], &limits[at / 5]);
            let quota = limit.quota();
            assert_eq!(used(&store, key, limit), taken.load(SeqCst), "{quota}");
        }
    }
}

/// Half of the threads request the open key together with a closed one and are always refused; the
/// others request exactly the limit of the open key. A store that took first and refunded later
/// would refuse some of them.
#[test]
fn no_request_is_refused_because_of_a_refused_request() {
    const LIMIT: u32 = 600;
    for open_quota in quotas_per_minute(LIMIT) {
        for closed_quota in quotas_per_minute(1) {
            let (_, store) = store(1);
            let open = Limit::named("open", open_quota);
            let closed = Limit::named("closed", closed_quota);
            assert!(store.decide(&Request::new("closed", &closed)).allowed());
            race(4, |thread| {
                let both = match thread {
                    0 => Request::new("open", &open).and("closed", &closed),
                    1 => Request::new("closed", &closed).and("open", &open),
                    _ => {
                        for _ in 0..LIMIT / 2 {
                            let decision = store.decide(&Request::new("open", &open));
                            assert!(decision.allowed(), "{open_quota} before {closed_quota}");
                        }
                        return;
                    }
                };
                let both = both.unwrap().cost(1);
                for _ in 0..LIMIT / 2 {
                    assert!(!store.decide(&both).allowed());
                }
            });
            assert_eq!(used(&store, "open", &open), LIMIT);
        }
    }
}

/// The open key has one unit, which one thread takes and refunds; the other threads request it
/// together with the closed key.
#[test]
fn a_refused_request_never_takes_the_last_unit_temporarily() {
    for open_quota in quotas_per_minute(1) {
        let (_, store) = store(1);
        let open = Limit::named("open", open_quota);
        let closed = Limit::named("closed", quotas_per_minute(1)[1]);
        assert!(store.decide(&Request::new("closed", &closed)).allowed());
        let done = AtomicBool::new(false);
        race(4, |thread| {
            if thread == 0 {
                for _ in 0..1_000 {
                    let request = Request::new("open", &open);
                    if !store.decide(&request).allowed() {
                        done.store(true, SeqCst);
                        panic!("{open_quota}: refused an available unit");
                    }
                    assert!(store.decide(&request.verb(Verb::Refund)).allowed());
                }
                done.store(true, SeqCst);
                return;
            }
            let both = Request::new("open", &open).and("closed", &closed).unwrap();
            let both = both.verb(if thread == 1 { Verb::Take } else { Verb::Check });
            while !done.load(SeqCst) {
                assert!(!store.decide(&both).allowed());
            }
        });
        assert_eq!(used(&store, "open", &open), 0);
    }
}

/// Every thread requests all keys, each in another rotation and half of them in reverse order.
#[test]
fn no_order_of_limits_deadlocks() {
    const KEYS: usize = 40;
    const LIMIT: u32 = 400;
    let keys: Vec<String> = (0..KEYS).map(|n| n.to_string()).collect();
    for capacity in [1, 16] {
        for quota in quotas_per_minute(LIMIT) {
            let (_, store) = store(capacity);
            let limit = Limit::from(quota);
            let admitted = AtomicU32::new(0);
            race(6, |thread| {
                let mut rotated = keys.clone();
                rotated.rotate_left(thread * 6);
                if thread % 2 == 1 {
                    rotated.reverse();
                }
                let mut request = Request::new(&rotated[0], &limit);
                for key in &rotated[1..] {
                    request = request.and(key, &limit).unwrap();
                }
                for _ in 0..LIMIT / 4 {
                    admitted.fetch_add(store.decide(&request).granted(), SeqCst);
                }
            });
            if store.shared_decisions() == 0 {
                assert_eq!(admitted.load(SeqCst), LIMIT, "{quota}");
            } else {
                assert!(admitted.load(SeqCst) <= LIMIT, "{quota}");
            }
        }
    }
}

#[test]
fn batches_of_several_limits_by_many_threads_admit_exactly_the_limit() {
    const LIMIT: u32 = 200;
    let (_, store) = store(64);
    let limits: Vec<Limit> = quotas_per_minute(LIMIT)
        .into_iter()
        .map(Limit::from)
        .collect();
    let admitted = AtomicU32::new(0);
    race(6, |thread| {
        let mut order: Vec<&Limit> = limits.iter().collect();
        order.rotate_left(thread);
        let request = Request::with_limits("one", order).unwrap();
        let batch = vec![request; 50];
        let decisions = store.decide_many(&batch);
        let granted = decisions.iter().map(|decision| decision.granted());
        admitted.fetch_add(granted.sum(), SeqCst);
    });
    assert_eq!(admitted.load(SeqCst), LIMIT);
    for limit in &limits {
        assert_eq!(used(&store, "one", limit), LIMIT);
    }
}
