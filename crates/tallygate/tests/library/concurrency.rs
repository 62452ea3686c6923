//! Many threads on few keys with a stopped clock: exactly the limit is admitted.

mod multi_limit;

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use tallygate::Limiter;

use crate::fixtures::{limiter, quotas_per_minute, race, seeded, store};

const LIMIT: u32 = 500;
const THREADS: usize = 8;

fn keys(n: usize) -> Vec<String> {
    (0..n).map(|key| format!("key {key}")).collect()
}

fn totals(keys: &[String]) -> Vec<AtomicU32> {
    keys.iter().map(|_| AtomicU32::new(0)).collect()
}

#[test]
fn checks_by_many_threads_admit_exactly_the_limit() {
    for quota in quotas_per_minute(LIMIT) {
        let (_, limiter) = limiter(quota);
        let keys = keys(3);
        let admitted = totals(&keys);
        race(THREADS, |thread| {
            let mut rng = seeded(thread);
            // All threads together exceed the limit of every key.
            for _ in 0..LIMIT {
                let key = rng.usize(..keys.len());
                let decision = limiter.check(&keys[key]);
                admitted[key].fetch_add(decision.granted(), SeqCst);
            }
            for (key, admitted) in keys.iter().zip(&admitted) {
                while limiter.check(key).allowed() {
                    admitted.fetch_add(1, SeqCst);
                }
            }
        });
        for admitted in &admitted {
            assert_eq!(admitted.load(SeqCst), LIMIT, "{quota}");
        }
    }
}

#[test]
fn checks_that_fit_are_all_admitted() {
    for quota in quotas_per_minute(LIMIT) {
        let (_, limiter) = limiter(quota);
        race(5, |_| {
            for _ in 0..LIMIT / 5 {
                assert!(limiter.check("all").allowed(), "{quota}");
            }
        });
        assert!(!limiter.check("all").allowed(), "{quota}");
    }
}

#[test]
fn checks_of_several_units_admit_exactly_the_limit() {
    for quota in quotas_per_minute(LIMIT) {
        let (_, limiter) = limiter(quota);
        let admitted = AtomicU32::new(0);
        race(THREADS, |thread| {
            let mut rng = seeded(thread);
            loop {
                let cost = rng.u32(1..=7);
                let decision = limiter.check_cost("costs", cost);
                admitted.fetch_add(decision.granted(), SeqCst);
                if !decision.allowed() {
                    assert!(decision.remaining() < cost, "{quota} refused what fits");
                    if decision.remaining() == 0 {
                        break;
                    }
                }
            }
        });
        assert_eq!(admitted.load(SeqCst), LIMIT, "{quota}");
    }
}

#[test]
fn takes_by_many_threads_grant_exactly_the_limit() {
    for quota in quotas_per_minute(LIMIT) {
        let (_, limiter) = limiter(quota);
        let granted = AtomicU32::new(0);
        race(THREADS, |thread| {
            let mut rng = seeded(thread);
            loop {
                let cost = rng.u32(1..=9);
                let decision = limiter.take("takes", cost);
                assert!(decision.granted() <= cost);
                assert_eq!(decision.allowed(), decision.granted() > 0);
                granted.fetch_add(decision.granted(), SeqCst);
                if !decision.allowed() {
                    break;
                }
            }
        });
        assert_eq!(granted.load(SeqCst), LIMIT, "{quota}");
    }
}

#[test]
fn a_refund_admits_exactly_one_more() {
    for quota in quotas_per_minute(THREADS as u32) {
        let (_, limiter) = limiter(quota);
        let in_use = AtomicU32::new(0);
        race(THREADS, |_| {
            for _ in 0..300 {
                // There is one unit per thread.
                assert!(limiter.check("pairs").allowed(), "{quota}");
                let now = in_use.fetch_add(1, SeqCst) + 1;
                assert!(now <= THREADS as u32, "{quota}");
                in_use.fetch_sub(1, SeqCst);
                assert!(limiter.refund("pairs", 1).allowed());
            }
        });
        let remaining = limiter.peek("pairs", 1);
        assert_eq!(remaining.remaining(), THREADS as u32, "{quota}");
        assert!(remaining.reset_after().is_zero(), "{quota}");
    }
}

#[test]
fn a_limit_below_the_number_of_threads_bounds_the_concurrency() {
    const LIMIT_BELOW_THREADS: u32 = 3;
    for quota in quotas_per_minute(LIMIT_BELOW_THREADS) {
        let (_, limiter) = limiter(quota);
        let in_use = AtomicU32::new(0);
        race(THREADS, |_| {
            for _ in 0..300 {
                if limiter.check("units").allowed() {
                    assert!(in_use.fetch_add(1, SeqCst) < LIMIT_BELOW_THREADS, "{quota}");
                    in_use.fetch_sub(1, SeqCst);
                    assert!(limiter.refund("units", 1).allowed());
                }
            }
        });
        assert_eq!(
            limiter.peek("units", 1).remaining(),
            LIMIT_BELOW_THREADS,
            "{quota}"
        );
    }
}

#[test]
fn charges_by_many_threads_all_count() {
    for quota in quotas_per_minute(LIMIT) {
        let (_, limiter) = limiter(quota);
        race(THREADS, |_| {
            for _ in 0..50 {
                assert_eq!(limiter.charge("charged", 1).granted(), 1);
            }
        });
        let remaining = limiter.peek("charged", 1).remaining();
        assert_eq!(remaining, LIMIT - 50 * THREADS as u32, "{quota}");
    }
}

#[test]
fn batches_by_many_threads_admit_exactly_the_limit() {
    for quota in quotas_per_minute(LIMIT) {
        let (_, limiter) = limiter(quota);
        let keys = keys(5);
        let admitted = totals(&keys);
        race(THREADS, |_| {
            let batch: Vec<usize> = (0..40).map(|i| i % keys.len()).collect();
            for _ in 0..20 {
                let decisions = limiter.check_many(batch.iter().map(|&i| &keys[i]));
                for (&key, decision) in batch.iter().zip(&decisions) {
                    admitted[key].fetch_add(decision.granted(), SeqCst);
                }
            }
        });
        for admitted in &admitted {
            assert_eq!(admitted.load(SeqCst), LIMIT, "{quota}");
        }
    }
}

/// The table is filled to its capacity under load, so that counters are moved while in use.
#[test]
fn counters_that_are_moved_under_load_lose_nothing() {
    const KEYS: usize = 3_000;
    const EACH: u32 = 3;
    for quota in quotas_per_minute(EACH) {
        let limiter = Limiter::with_store(store(KEYS).1, quota);
        let keys = keys(KEYS);
        let admitted = totals(&keys);
        race(4, |thread| {
            let mut rng = seeded(thread);
            let mut order: Vec<usize> = (0..KEYS).collect();
            rng.shuffle(&mut order);
            for key in order.into_iter().flat_map(|key| [key, key]) {
                let decision = limiter.check(&keys[key]);
                admitted[key].fetch_add(decision.granted(), SeqCst);
            }
        });
        let shared = limiter.store().shared_decisions();
        assert_eq!(shared, 0, "{quota}: shared below the capacity");
        for admitted in &admitted {
            assert_eq!(admitted.load(SeqCst), EACH, "{quota}");
        }
    }
}

#[test]
fn many_threads_and_keys_in_a_tiny_store_exceed_no_limit() {
    const EACH: u32 = 3;
    for capacity in [1, 2, 7, 64] {
        for quota in quotas_per_minute(EACH) {
            let limiter = Limiter::with_store(store(capacity).1, quota);
            let keys = keys(400);
            let admitted = totals(&keys);
            race(THREADS, |thread| {
                let mut rng = seeded(thread);
                for _ in 0..400 {
                    let key = rng.usize(..keys.len());
                    let decision = limiter.check(&keys[key]);
                    let total = admitted[key].fetch_add(decision.granted(), SeqCst);
                    assert!(total + decision.granted() <= EACH, "{quota}");
                }
            });
            assert!(limiter.store().shared_decisions() > 0);
        }
    }
}
