//! A batch gives the same decisions as single requests, in order.

use tallygate::{Decision, Key, Limit, Limiter, Quota, Request, Verb};

use crate::fixtures::{T0, quotas_per_minute, store};
use tallygate_testkit::{any, with_each_seed};

/// 0 to 100 keys with duplicates.
fn any_keys(rng: &mut fastrand::Rng) -> Vec<Key<'static>> {
    let n = any(rng, &[0, 1, 2, 31, 32, 33, 64, 65, 100]);
    (0..n)
        .map(|_| Key::from(rng.u32(..20).to_string()))
        .collect()
}

#[test]
fn check_many_decides_as_single_checks_do() {
    with_each_seed(|rng| {
        for quota in quotas_per_minute(4) {
            let ((clock, single), (batch_clock, batch)) = (store(100), store(100));
            let single = Limiter::with_store(single, quota);
            let batch = Limiter::with_store(batch, quota);
            let mut now = T0;
            for _ in 0..20 {
                now += rng.u64(..20_000_000);
                clock.set(now);
                batch_clock.set(now);
                let keys = any_keys(rng);
                let expected: Vec<Decision> = keys.iter().map(|key| single.check(key)).collect();
                assert_eq!(batch.check_many(&keys), expected, "{quota}");
            }
        }
    });
}

#[test]
fn check_many_over_several_limits_decides_as_single_checks_do() {
    with_each_seed(|rng| {
        let limits = quotas_per_minute(5);
        let build = |store| {
            let first = Limiter::with_store(store, limits[0]);
            let add = |limiter: Limiter<_>, &quota: &Quota| limiter.and(quota).unwrap();
            limits[1..].iter().fold(first, add)
        };
        let (single, batch) = (build(store(1_000).1), build(store(1_000).1));
        for _ in 0..5 {
            let keys = any_keys(rng);
            let expected: Vec<Decision> = keys.iter().map(|key| single.check(key)).collect();
            assert_eq!(batch.check_many(&keys), expected);
        }
    });
}

#[test]
fn decide_many_decides_as_single_requests_do() {
    with_each_seed(|rng| {
        let limits: Vec<Limit> = quotas_per_minute(6).into_iter().map(Limit::from).collect();
        let ((clock, single), (batch_clock, batch)) = (store(1_000), store(1_000));
        let mut now = T0;
        for _ in 0..60 {
            now += rng.u64(..10_000_000);
            clock.set(now);
            batch_clock.set(now);
            let keys = any_keys(rng);
            let requests: Vec<Request<'_>> = keys
                .iter()
                .map(|key| {
                    let (a, b) = (&limits[rng.usize(..6)], &limits[rng.usize(..6)]);
                    let request = Request::new(key, a);
                    let request = request.clone().and("all", b).unwrap_or(request);
                    request.verb(any(rng, &Verb::BASIC)).cost(rng.u32(..4))
                })
                .collect();
            let expected: Vec<Decision> = requests.iter().map(|r| single.decide(r)).collect();
            assert_eq!(batch.decide_many(&requests), expected);
        }
    });
}

/// Runs of equal keys are decided in one step each.
#[test]
fn runs_of_equal_checks_are_decided_as_single_ones() {
    with_each_seed(|rng| {
        let limits: Vec<Limit> = quotas_per_minute(40).into_iter().map(Limit::from).collect();
        // Also in a store that is full, where keys share budgets.
        let capacity = any(rng, &[1, 1_000]);
        let ((clock, single), (batch_clock, batch)) = (store(capacity), store(capacity));
        let mut now = T0;
        for _ in 0..40 {
            now += rng.u64(..40_000_000);
            clock.set(now);
            batch_clock.set(now);
            let mut requests: Vec<Request<'_>> = Vec::new();
            while requests.len() < 150 {
                let key = Key::from(rng.u32(..3).to_string());
                let request = Request::new(key, &limits[rng.usize(..limits.len())]);
                let request = request.cost(any(rng, &[0, 1, 1, 3, 50]));
                let request = match rng.u8(..8) {
                    0 => request.verb(any(rng, &Verb::BASIC)),
                    _ => request,
                };
                let times = any(rng, &[1, 2, 5, 40, 70]);
                requests.extend((0..times).map(|_| request.clone()));
            }
            let expected: Vec<Decision> = requests.iter().map(|r| single.decide(r)).collect();
            let decisions = batch.decide_many(&requests);
            assert_eq!(decisions, expected);
            for (one, other) in decisions.iter().zip(&expected) {
                assert_eq!(one.taken_us(), other.taken_us());
            }
        }
    });
}

#[test]
fn check_many_of_one_key_admits_the_first_that_fit() {
    for quota in quotas_per_minute(40) {
        let limiter = Limiter::with_store(store(10).1, quota);
        let keys = ["one"; 100];
        let decisions = limiter.check_many(keys);
        let admitted: Vec<bool> = decisions.iter().map(Decision::allowed).collect();
        assert!(admitted[..40].iter().all(|allowed| *allowed), "{quota}");
        assert!(admitted[40..].iter().all(|allowed| !allowed), "{quota}");
        let left: Vec<u32> = decisions[..40].iter().map(Decision::remaining).collect();
        assert_eq!(left, (0..40).rev().collect::<Vec<u32>>(), "{quota}");
    }
}

#[test]
fn a_batch_larger_than_the_capacity_is_decided_in_order() {
    let limiter = Limiter::with_store(store(1).1, quotas_per_minute(2)[3]);
    let keys: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    let decisions = limiter.check_many(&keys);
    assert_eq!(decisions.len(), 500);
    assert!(decisions[0].allowed() && !decisions[0].shared());
    assert!(decisions.iter().any(Decision::shared));
}
