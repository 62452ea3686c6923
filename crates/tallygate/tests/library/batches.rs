//! A batch gives the same decisions as single requests, in order.

use tallygate::{Decision, Key, Limit, Limiter, Quota, Request, Verb};

use crate::behaviours::{T0, each_minute, store};
use tallygate_testkit::{any, with_each_seed};

/// 0 to 100 keys, many of them twice and more.
fn any_keys(rng: &mut fastrand::Rng) -> Vec<Key<'static>> {
    let n = any(rng, &[0, 1, 2, 31, 32, 33, 64, 65, 100]);
    (0..n)
        .map(|_| Key::from(rng.u32(..20).to_string()))
        .collect()
}

#[test]
fn check_many_answers_what_check_does_one_by_one() {
    with_each_seed(|rng| {
        for quota in each_minute(4) {
            let ((clock, one), (many_clock, many)) = (store(100), store(100));
            let one = Limiter::with_store(one, quota);
            let many = Limiter::with_store(many, quota);
            let mut now = T0;
            for _ in 0..20 {
                now += rng.u64(..20_000_000);
                clock.set(now);
                many_clock.set(now);
                let keys = any_keys(rng);
                let right: Vec<Decision> = keys.iter().map(|key| one.check(key)).collect();
                assert_eq!(many.check_many(&keys), right, "{quota}");
            }
        }
    });
}

#[test]
fn check_many_over_several_limits_answers_what_check_does_one_by_one() {
    with_each_seed(|rng| {
        let limits = each_minute(5);
        let build = |store| {
            let first = Limiter::with_store(store, limits[0]);
            let add = |limiter: Limiter<_>, &quota: &Quota| limiter.and(quota).unwrap();
            limits[1..].iter().fold(first, add)
        };
        let (one, many) = (build(store(1_000).1), build(store(1_000).1));
        for _ in 0..5 {
            let keys = any_keys(rng);
            let right: Vec<Decision> = keys.iter().map(|key| one.check(key)).collect();
            assert_eq!(many.check_many(&keys), right);
        }
    });
}

#[test]
fn decide_many_answers_what_decide_does_one_by_one() {
    with_each_seed(|rng| {
        let limits: Vec<Limit> = each_minute(6).into_iter().map(Limit::from).collect();
        let ((clock, one), (many_clock, many)) = (store(1_000), store(1_000));
        let mut now = T0;
        for _ in 0..60 {
            now += rng.u64(..10_000_000);
            clock.set(now);
            many_clock.set(now);
            let keys = any_keys(rng);
            let requests: Vec<Request<'_>> = keys
                .iter()
                .map(|key| {
                    let (a, b) = (&limits[rng.usize(..6)], &limits[rng.usize(..6)]);
                    let request = Request::new(key, a);
                    let request = request.clone().and("everybody", b).unwrap_or(request);
                    request.verb(any(rng, &Verb::ALL)).cost(rng.u32(..4))
                })
                .collect();
            let right: Vec<Decision> = requests.iter().map(|r| one.decide(r)).collect();
            assert_eq!(many.decide_many(&requests), right);
        }
    });
}

#[test]
fn a_batch_beyond_the_capacity_is_still_answered_in_order() {
    let limiter = Limiter::with_store(store(1).1, each_minute(2)[3]);
    let keys: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    let decisions = limiter.check_many(&keys);
    assert_eq!(decisions.len(), 500);
    assert!(decisions[0].allowed() && !decisions[0].shared());
    assert!(decisions.iter().any(Decision::shared));
}
