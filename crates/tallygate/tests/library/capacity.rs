//! A store of capacity N has slots for N live keys and reuses the slots of expired keys.

use std::time::Duration;

use tallygate::{Decision, Limit, Limiter, Quota, Request, Verb};

use crate::fixtures::{T0, quotas, quotas_per_minute, race, store};
use tallygate_testkit::with_each_seed;

const EACH: u32 = 2;

fn keys(capacity: usize, generation: usize) -> Vec<String> {
    (0..capacity).map(|n| format!("{generation}:{n}")).collect()
}

/// Exceeds the limit of every key by one, in rounds so that all keys are live together.
fn assert_no_key_is_shared(
    limiter: &Limiter<std::sync::Arc<crate::fixtures::Store>>,
    keys: &[String],
) {
    let shared = limiter.store().shared_decisions();
    let quota = limiter.limits()[0].quota();
    for round in 0..=EACH {
        for key in keys {
            let decision = limiter.check(key);
            let of = keys.len();
            assert!(
                !decision.shared(),
                "{quota}, {of} keys: shared in round {round}"
            );
            assert_eq!(decision.allowed(), round < EACH, "{quota}, {of} keys");
        }
    }
    assert_eq!(limiter.store().shared_decisions(), shared);
    assert_eq!(limiter.store().live_keys(), keys.len(), "{quota}");
}

#[test]
fn a_small_store_has_slots_for_its_capacity() {
    for capacity in [1, 2, 3, 8, 10, 100] {
        for quota in quotas_per_minute(EACH) {
            // The hash seed of each store is random.
            for _ in 0..20 {
                let limiter = Limiter::with_store(store(capacity).1, quota);
                assert_no_key_is_shared(&limiter, &keys(capacity, 0));
            }
        }
    }
}

#[test]
fn a_store_of_thousands_has_slots_for_its_capacity() {
    for (capacity, stores) in [(1_000, 8), (10_000, 2)] {
        for quota in quotas_per_minute(EACH) {
            for _ in 0..stores {
                let limiter = Limiter::with_store(store(capacity).1, quota);
                assert_no_key_is_shared(&limiter, &keys(capacity, 0));
            }
        }
    }
}

#[test]
fn a_store_of_a_hundred_thousand_has_slots_for_its_capacity() {
    for quota in [
        quotas_per_minute(EACH)[1],
        quotas_per_minute(EACH)[3],
        quotas_per_minute(EACH)[3],
    ] {
        let limiter = Limiter::with_store(store(100_000).1, quota);
        assert_no_key_is_shared(&limiter, &keys(100_000, 0));
    }
}

#[test]
fn a_key_uses_one_slot_per_limit() {
    const KEYS: usize = 500;
    let (_, store) = store(KEYS * 5);
    // Logs have their own table; the other five share one.
    let limits: Vec<Limit> = quotas_per_minute(1).into_iter().map(Limit::from).collect();
    let flat: Vec<&Limit> = limits
        .iter()
        .filter(|l| !l.quota().algorithm().is_log())
        .collect();
    for key in keys(KEYS, 0) {
        let decision = store.decide(&Request::with_limits(&key, flat.iter().copied()).unwrap());
        assert!(decision.allowed() && !decision.shared());
    }
    assert_eq!(store.live_keys(), KEYS * 5);
    assert_eq!(store.shared_decisions(), 0);
}

#[test]
fn slots_of_expired_keys_are_reused() {
    const CAPACITY: usize = 300;
    for quota in quotas_per_minute(EACH) {
        let (clock, store) = store(CAPACITY);
        let limiter = Limiter::with_store(store, quota);
        for generation in 0..15 {
            assert_no_key_is_shared(&limiter, &keys(CAPACITY, generation));
            clock.advance(2 * quota.period());
            assert_eq!(limiter.store().live_keys(), 0, "{quota}");
        }
        assert_eq!(limiter.store().shared_decisions(), 0);
    }
}

#[test]
fn short_lived_keys_never_share_a_budget() {
    const CAPACITY: usize = 200;
    with_each_seed(|rng| {
        for quota in quotas(1, Duration::from_secs(CAPACITY as u64 / 2)) {
            let (clock, store) = store(CAPACITY);
            let limiter = Limiter::with_store(store, quota);
            // One new key per second, each live for one or two periods: at most 200 are live.
            for n in 0..1_500 {
                let decision = limiter.check(n.to_string());
                assert!(decision.allowed() && !decision.shared(), "{quota} key {n}");
                clock.advance(Duration::from_micros(rng.u64(1_000_000..1_100_000)));
            }
        }
    });
}

#[test]
fn reset_and_refunded_keys_free_their_slots() {
    const CAPACITY: usize = 400;
    for quota in quotas_per_minute(EACH) {
        let limiter = Limiter::with_store(store(CAPACITY).1, quota);
        for generation in 0..10 {
            let keys = keys(CAPACITY, generation);
            assert_no_key_is_shared(&limiter, &keys);
            for (n, key) in keys.iter().enumerate() {
                let decision = if n % 2 == 0 {
                    limiter.reset(key)
                } else {
                    limiter.refund(key, EACH)
                };
                assert!(
                    !decision.shared() && decision.remaining() == EACH,
                    "{quota}"
                );
            }
            assert_eq!(limiter.store().live_keys(), 0, "{quota}");
        }
    }
}

#[test]
fn refusals_and_peeks_of_new_keys_take_no_slot() {
    const CAPACITY: usize = 100;
    for quota in quotas_per_minute(EACH) {
        let limiter = Limiter::with_store(store(CAPACITY).1, quota);
        for key in keys(1_000, 0) {
            let _ = limiter.peek(&key, 1);
            let _ = limiter.check_cost(&key, EACH + 1);
            let _ = limiter.check_cost(&key, 0);
            let _ = limiter.refund(&key, 1);
            let _ = limiter.reset(&key);
        }
        assert_eq!(limiter.store().live_keys(), 0, "{quota}");
        assert_no_key_is_shared(&limiter, &keys(CAPACITY, 1));
    }
}

#[test]
fn threads_that_fill_a_store_concurrently_find_a_slot_for_every_key() {
    const CAPACITY: usize = 8_000;
    const THREADS: usize = 4;
    for quota in [quotas_per_minute(EACH)[1], quotas_per_minute(EACH)[3]] {
        for _ in 0..4 {
            let limiter = Limiter::with_store(store(CAPACITY).1, quota);
            let keys = keys(CAPACITY, 0);
            race(THREADS, |thread| {
                for key in keys.iter().skip(thread).step_by(THREADS) {
                    let decision = limiter.check(key);
                    assert!(decision.allowed() && !decision.shared(), "{quota}");
                }
            });
            assert_eq!(limiter.store().shared_decisions(), 0, "{quota}");
            assert_eq!(limiter.store().live_keys(), CAPACITY, "{quota}");
        }
    }
}

#[test]
fn after_an_overload_every_key_has_its_own_slot_again() {
    const CAPACITY: usize = 1_000;
    for quota in quotas_per_minute(EACH) {
        let (clock, store) = store(CAPACITY);
        let limiter = Limiter::with_store(store, quota);
        for generation in 0..3 {
            for key in keys(5 * CAPACITY, generation) {
                let _ = limiter.check(&key);
            }
            clock.advance(2 * quota.period());
            assert_no_key_is_shared(&limiter, &keys(CAPACITY, 10 + generation));
            clock.advance(2 * quota.period());
        }
        assert!(limiter.store().shared_decisions() > 0);
    }
}

/// The keys expire a microsecond later, and with them the knowledge that the store is full.
#[test]
fn keys_that_have_just_expired_free_their_slots() {
    const CAPACITY: usize = 3_000;
    let quota: Quota = "fixed-window 2/ms".parse().unwrap();
    for _ in 0..3 {
        let (clock, store) = store(CAPACITY);
        let limiter = Limiter::with_store(store, quota);
        clock.set(T0 + 999);
        for key in keys(3 * CAPACITY, 0) {
            let _ = limiter.check(&key);
        }
        clock.set(T0 + 1_000);
        assert_eq!(limiter.store().live_keys(), 0);
        assert_no_key_is_shared(&limiter, &keys(CAPACITY, 1));
    }
}

#[test]
fn every_verb_finds_a_moved_counter() {
    const CAPACITY: usize = 2_000;
    for quota in quotas_per_minute(9) {
        let (_, store) = store(CAPACITY);
        let limit = Limit::from(quota);
        let keys = keys(CAPACITY, 0);
        let decide = |key: &str, verb: Verb, cost: u32| -> Decision {
            store.decide(&Request::new(key, &limit).verb(verb).cost(cost))
        };
        // Later insertions move earlier counters.
        for key in &keys {
            assert!(decide(key, Verb::Check, 4).allowed());
        }
        for key in &keys {
            assert_eq!(decide(key, Verb::Peek, 1).remaining(), 5, "{quota}");
            assert_eq!(decide(key, Verb::Take, 9).granted(), 5, "{quota}");
            assert_eq!(decide(key, Verb::Refund, 3).remaining(), 3, "{quota}");
            assert_eq!(decide(key, Verb::Charge, 1).remaining(), 2, "{quota}");
            assert_eq!(decide(key, Verb::Reset, 0).remaining(), 9, "{quota}");
            assert_eq!(decide(key, Verb::Check, 1).remaining(), 8, "{quota}");
        }
    }
}
