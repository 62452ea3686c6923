//! More live keys than the capacity: no key exceeds its limit, and sharing is reported.

mod budgets;

use std::time::Duration;

use tallygate::{Decision, Limit, Limiter, Quota, Request, RetryAfter, Verb};

use crate::behaviours::{SECOND, Store, T0, each_minute, store};
use crate::conformance::oracle::Oracle;
use tallygate_testkit::{any, with_each_seed};

/// Keeps every place of a store taken for a year, under a limit of its own.
fn fill(store: &Store, now: u64) -> Vec<(String, Limit)> {
    let quotas = ["fixed-window 9/366d", "sliding-window-log 9/366d"];
    let limits = quotas.map(|text| Limit::named("resident", text.parse().unwrap()));
    let mut residents = Vec::new();
    for limit in limits {
        for n in 0..2 * store.capacity() + 4_000 {
            let key = format!("resident {n}");
            let request = Request::new(&key, &limit);
            // Looking first, so that no resident shares and each can be forgotten by itself.
            if store
                .decide_at(&request.clone().verb(Verb::Peek), now)
                .shared()
            {
                continue;
            }
            assert!(store.decide_at(&request, now).allowed());
            residents.push((key.clone(), limit.clone()));
        }
    }
    residents
}

/// A limiter whose keys all share.
fn full_limiter(
    quota: Quota,
) -> (
    std::sync::Arc<tallygate::ManualClock>,
    Limiter<std::sync::Arc<Store>>,
) {
    let (clock, store) = store(1);
    fill(&store, T0);
    (clock, Limiter::with_store(store, quota))
}

/// Mostly none, sometimes the smallest, seldom a long one.
fn pause(rng: &mut fastrand::Rng, longest: u64) -> u64 {
    let long = rng.u64(..longest);
    any(rng, &[0, 0, 0, 1, long])
}

/// What a store of its own for each key would have admitted: with ten times as many keys as
/// places, and time moving on, no request is admitted that would not be there, and no delay is
/// shorter.
#[test]
fn with_ten_times_more_keys_than_slots_no_key_exceeds_its_limit() {
    with_each_seed(|rng| {
        for capacity in [1, 10, 100] {
            for quota in each_minute(4) {
                let (_, store) = store(capacity);
                let limit = Limit::from(quota);
                // A place or two more than it says must not make room for them all.
                let keys = 10 * capacity + 600;
                let mut alone = Oracle::default();
                let mut now = T0;
                let mut shared = 0;
                for _ in 0..3 * keys {
                    now += pause(rng, SECOND / 8);
                    let key = rng.usize(..keys).to_string();
                    let verb = any(rng, &[Verb::Check, Verb::Check, Verb::Take, Verb::Charge]);
                    let request = Request::new(&key, &limit).verb(verb).cost(rng.u32(..4));
                    let decision = store.decide_at(&request, now);
                    shared += u32::from(decision.shared());
                    let granted = decision.granted();
                    if granted > 0 {
                        let charged = request.clone().verb(match verb {
                            Verb::Charge => Verb::Charge,
                            _ => Verb::Check,
                        });
                        let right = alone.decide(&charged.cost(granted), now);
                        let right = right.verdict();
                        assert!(right.allowed(), "{quota}: above the limit");
                        let delay = decision.delay().as_micros();
                        assert!(delay >= right.delay_us().into(), "{quota}: too early");
                        assert!(decision.remaining() <= right.remaining, "{quota}");
                    }
                }
                assert!(shared > 0, "{quota}: nobody shared");
                assert!(store.shared_decisions() >= shared.into());
            }
        }
    });
}

/// The same with keys that are given back to and forgotten, and residents that leave, so that
/// those who shared move into places of their own.
#[test]
fn a_key_that_shared_and_gets_a_slot_does_not_exceed_its_limit() {
    with_each_seed(|rng| {
        for quota in each_minute(4) {
            let (_, store) = store(5);
            let mut residents = fill(&store, T0);
            let limit = Limit::from(quota);
            let mut alone = Oracle::default();
            let mut now = T0;
            let (mut shared, mut own) = (0, 0);
            for step in 0..1_500 {
                now += pause(rng, SECOND);
                if step % 4 == 0
                    && let Some((key, limit)) = residents.pop()
                {
                    let reset = Request::new(&key, &limit).verb(Verb::Reset);
                    assert!(store.decide_at(&reset, now).allowed());
                }
                let key = rng.u32(..60).to_string();
                let verb = any(
                    rng,
                    &[
                        Verb::Check,
                        Verb::Check,
                        Verb::Take,
                        Verb::Refund,
                        Verb::Reset,
                    ],
                );
                let request = Request::new(&key, &limit).verb(verb).cost(rng.u32(1..3));
                let decision = store.decide_at(&request, now);
                *(if decision.shared() {
                    &mut shared
                } else {
                    &mut own
                }) += 1;
                let gave_back = matches!(verb, Verb::Refund | Verb::Reset) && !decision.shared();
                if gave_back {
                    alone.decide(&request, now);
                } else if decision.granted() > 0 {
                    let check = request.verb(Verb::Check).cost(decision.granted());
                    let right = alone.decide(&check, now);
                    assert!(right.verdict().allowed(), "{quota}: above the limit");
                }
            }
            assert!(
                shared > 50 && own > 50,
                "{quota}: {shared} shared, {own} own"
            );
        }
    });
}

#[test]
fn what_a_key_took_while_it_shared_counts_in_its_own_slot() {
    for quota in each_minute(6) {
        let (_, store) = store(3);
        let residents = fill(&store, T0);
        let limiter = Limiter::with_store(store, quota);
        let first = limiter.check_cost("k", 4);
        assert!(first.allowed() && first.shared(), "{quota}");
        for (key, limit) in &residents {
            let reset = Request::new(key, limit).verb(Verb::Reset);
            assert!(limiter.decide_now(&reset).allowed());
        }
        let second = limiter.check_cost("k", 2);
        assert!(second.allowed() && !second.shared(), "{quota}");
        assert!(!limiter.check("k").allowed(), "{quota}");
    }
}

#[test]
fn a_refund_or_a_reset_of_a_shared_budget_changes_nothing_and_reports_it() {
    for quota in each_minute(6) {
        let (_, limiter) = full_limiter(quota);
        let taken = limiter.check_cost("k", 4);
        assert!(taken.allowed() && taken.shared(), "{quota}");
        let before = limiter.peek("k", 1);
        assert_eq!(before.remaining(), 2, "{quota}");
        for given_back in [limiter.refund("k", 3), limiter.reset("k")] {
            assert!(given_back.shared() && given_back.allowed(), "{quota}");
            assert_eq!(given_back.granted(), 0, "{quota}");
            assert_eq!(given_back.remaining(), 2, "{quota}");
            assert_eq!(limiter.peek("k", 1), before, "{quota}");
        }
        assert!(!limiter.check_cost("k", 3).allowed(), "{quota}");
    }
}

#[test]
fn a_refund_over_several_limits_returns_to_those_with_their_own_slots() {
    for quota in each_minute(6) {
        let (_, store) = store(3);
        let own = Limit::named("own", quota);
        let shared = Limit::named("shared", quota);
        assert!(!store.decide(&Request::new("k", &own)).shared());
        fill(&store, T0);
        let request = Request::with_limits("k", [&own, &shared]).unwrap();
        let decision = store.decide(&request.clone().cost(3));
        assert!(decision.allowed() && decision.shared(), "{quota}");
        let refunded = store.decide(&request.clone().cost(2).verb(Verb::Refund));
        assert!(refunded.shared(), "{quota}");
        let left: Vec<u32> = refunded.verdicts().iter().map(|v| v.remaining).collect();
        assert_eq!(left, [4, 3], "{quota}");
        let reset = store.decide(&request.verb(Verb::Reset));
        let left: Vec<u32> = reset.verdicts().iter().map(|v| v.remaining).collect();
        assert_eq!(left, [6, 3], "{quota}");
    }
}

#[test]
fn sharing_is_reported_and_counted() {
    for quota in each_minute(2) {
        let (_, limiter) = full_limiter(quota);
        let before = limiter.store().shared_decisions();
        for n in 1..=20 {
            assert!(limiter.check("k").shared(), "{quota}");
            assert_eq!(limiter.store().shared_decisions(), before + n, "{quota}");
        }
    }
}

#[test]
fn a_shared_refusal_has_an_exact_retry_after() {
    for quota in each_minute(5) {
        let (clock, limiter) = full_limiter(quota);
        while limiter.check("k").allowed() {
            clock.advance(Duration::from_millis(7));
        }
        let refused = limiter.check("k");
        let Some(RetryAfter::After(wait)) = refused.retry_after() else {
            panic!("{quota}: {refused:?}");
        };
        assert!(refused.shared());
        clock.advance(wait - Duration::from_micros(1));
        assert!(!limiter.peek("k", 1).allowed(), "{quota}");
        clock.advance(Duration::from_micros(1));
        assert!(limiter.check("k").allowed(), "{quota}");
    }
}

/// All or nothing holds for a request whose limits are partly shared.
#[test]
fn a_request_refused_by_a_shared_limit_charges_no_own_one() {
    for quota in each_minute(4) {
        let (_, store) = store(2);
        let own = Limit::named("own", each_minute(100)[0]);
        assert!(!store.decide(&Request::new("k", &own)).shared());
        fill(&store, T0);
        let tight = Limit::named("tight", quota);
        let both = Request::with_limits("k", [&own, &tight]).unwrap();
        let admitted = (0..10).filter(|_| store.decide(&both).allowed()).count();
        assert_eq!(admitted, 4, "{quota}");
        let left = |limit| -> Decision { store.decide(&Request::new("k", limit).verb(Verb::Peek)) };
        assert_eq!(left(&own).remaining(), 100 - 1 - 4, "{quota}");
        assert_eq!(left(&tight).remaining(), 0, "{quota}");
    }
}

/// Two keys of one request may share one budget; it counts both.
#[test]
fn keys_of_one_request_that_share_one_budget_stay_within_their_limits() {
    for quota in each_minute(6) {
        let (_, store) = store(1);
        fill(&store, T0);
        let limit = Limit::from(quota);
        let keys: Vec<String> = (0..40).map(|n| n.to_string()).collect();
        let mut request = Request::new(&keys[0], &limit);
        for key in &keys[1..] {
            request = request.and(key, &limit).unwrap();
        }
        let granted: u32 = (0..10).map(|_| store.decide(&request).granted()).sum();
        assert!(granted <= 6, "{quota}: {granted}");
        assert!(granted >= 1, "{quota}");
    }
}
