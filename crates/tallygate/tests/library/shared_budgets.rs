//! More live keys than the capacity: keys of equal quota share budgets, no key exceeds its limit,
//! and sharing is reported.

use std::time::Duration;

use tallygate::{Decision, Limit, Limiter, Quota, Request, Retry, Verb};

use crate::conformance::oracle::Oracle;
use crate::fixtures::{MINUTE, SECOND, Store, T0, quotas_per_minute, remaining_by_limit, store};
use tallygate_testkit::{any, with_each_seed};

/// Fills every slot of a store for a year, with limits of other names.
fn fill(store: &Store, now: u64) -> Vec<(String, Limit)> {
    let quotas = ["fixed-window 9/366d", "sliding-window-log 9/366d"];
    let limits = quotas.map(|text| Limit::named("resident", text.parse().unwrap()));
    let mut residents = Vec::new();
    for limit in limits {
        for n in 0..2 * store.capacity() + 4_000 {
            let key = format!("resident {n}");
            let request = Request::new(&key, &limit);
            // Peek first, so that no resident shares a budget and each can be reset.
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

/// A limiter whose keys all share budgets.
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

/// Mostly 0, sometimes 1, rarely long.
fn pause(rng: &mut fastrand::Rng, longest: u64) -> u64 {
    let long = rng.u64(..longest);
    any(rng, &[0, 0, 0, 1, long])
}

/// Compared with an unlimited store, no further request is admitted and no delay is shorter.
#[test]
fn with_ten_times_more_keys_than_slots_no_key_exceeds_its_limit() {
    with_each_seed(|rng| {
        for capacity in [1, 10, 100] {
            for quota in quotas_per_minute(4) {
                let (_, store) = store(capacity);
                let limit = Limit::from(quota);
                // The store may have some more slots than its capacity, but not for all keys.
                let keys = 10 * capacity + 600;
                let mut oracle = Oracle::default();
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
                        let expected = oracle.decide(&charged.cost(granted), now);
                        let expected = expected.verdict();
                        assert!(expected.allowed(), "{quota}: above the limit");
                        let delay = decision.delay().as_micros();
                        assert!(delay >= expected.delay_us().into(), "{quota}: too early");
                        assert!(decision.remaining() <= expected.remaining, "{quota}");
                    }
                }
                assert!(shared > 0, "{quota}: no budget was shared");
                assert!(store.shared_decisions() >= shared.into());
            }
        }
    });
}

/// The same with refunds and resets, and residents that are removed, so that keys move from shared
/// budgets to slots.
#[test]
fn a_key_that_shared_and_gets_a_slot_does_not_exceed_its_limit() {
    with_each_seed(|rng| {
        for quota in quotas_per_minute(4) {
            let (_, store) = store(5);
            let mut residents = fill(&store, T0);
            let limit = Limit::from(quota);
            let mut oracle = Oracle::default();
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
                let is_refund = matches!(verb, Verb::Refund | Verb::Reset) && !decision.shared();
                if is_refund {
                    oracle.decide(&request, now);
                } else if decision.granted() > 0 {
                    let check = request.verb(Verb::Check).cost(decision.granted());
                    let expected = oracle.decide(&check, now);
                    assert!(expected.verdict().allowed(), "{quota}: above the limit");
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
fn units_taken_from_a_shared_budget_count_in_the_slot_later() {
    for quota in quotas_per_minute(6) {
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
    for quota in quotas_per_minute(6) {
        let (_, limiter) = full_limiter(quota);
        let taken = limiter.check_cost("k", 4);
        assert!(taken.allowed() && taken.shared(), "{quota}");
        let before = limiter.peek("k", 1);
        assert_eq!(before.remaining(), 2, "{quota}");
        for decision in [limiter.refund("k", 3), limiter.reset("k")] {
            assert!(decision.shared() && decision.allowed(), "{quota}");
            assert_eq!(decision.granted(), 0, "{quota}");
            assert_eq!(decision.remaining(), 2, "{quota}");
            assert_eq!(limiter.peek("k", 1), before, "{quota}");
        }
        assert!(!limiter.check_cost("k", 3).allowed(), "{quota}");
    }
}

#[test]
fn a_refund_over_several_limits_returns_to_those_with_their_own_slots() {
    for quota in quotas_per_minute(6) {
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
        let remaining = remaining_by_limit(&refunded);
        assert_eq!(remaining, [4, 3], "{quota}");
        let reset = store.decide(&request.verb(Verb::Reset));
        let remaining = remaining_by_limit(&reset);
        assert_eq!(remaining, [6, 3], "{quota}");
    }
}

#[test]
fn sharing_is_reported_and_counted() {
    for quota in quotas_per_minute(2) {
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
    for quota in quotas_per_minute(5) {
        let (clock, limiter) = full_limiter(quota);
        while limiter.check("k").allowed() {
            clock.advance(Duration::from_millis(7));
        }
        let refused = limiter.check("k");
        let Some(wait) = refused.retry_after().and_then(Retry::duration) else {
            panic!("{quota}: {refused:?}");
        };
        assert!(refused.shared());
        clock.advance(wait - Duration::from_micros(1));
        assert!(!limiter.peek("k", 1).allowed(), "{quota}");
        clock.advance(Duration::from_micros(1));
        assert!(limiter.check("k").allowed(), "{quota}");
    }
}

/// Only one of its limits is in a shared budget.
#[test]
fn a_request_refused_by_a_shared_budget_charges_no_slot() {
    for quota in quotas_per_minute(4) {
        let (_, store) = store(2);
        let own = Limit::named("own", quotas_per_minute(100)[0]);
        assert!(!store.decide(&Request::new("k", &own)).shared());
        fill(&store, T0);
        let tight = Limit::named("tight", quota);
        let both = Request::with_limits("k", [&own, &tight]).unwrap();
        let admitted = (0..10).filter(|_| store.decide(&both).allowed()).count();
        assert_eq!(admitted, 4, "{quota}");
        let peek = |limit| -> Decision { store.decide(&Request::new("k", limit).verb(Verb::Peek)) };
        assert_eq!(peek(&own).remaining(), 100 - 1 - 4, "{quota}");
        assert_eq!(peek(&tight).remaining(), 0, "{quota}");
    }
}

/// Two keys of one request may share one budget; it counts both.
#[test]
fn keys_of_one_request_that_share_one_budget_stay_within_their_limits() {
    for quota in quotas_per_minute(6) {
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

#[test]
fn unequal_quotas_share_no_budget() {
    for quota in quotas_per_minute(3) {
        let (_, limiter) = full_limiter(quota);
        // Exhaust every budget of this quota.
        for n in 0..2_000 {
            let _ = limiter.take(n.to_string(), 3);
        }
        let others: [Quota; 3] = [
            "fixed-window 7/h",
            "token-bucket 7/h",
            "leaky-bucket 7/h queue 7",
        ]
        .map(|text| text.parse().unwrap());
        for other in others {
            let decision = limiter.with_limit(other).check("1");
            assert!(decision.shared() && decision.allowed(), "{quota}, {other}");
            assert_eq!(decision.remaining(), 6, "{quota}, {other}");
        }
    }
}

/// A full store has no state of single keys, so a key whose quota changes takes from the budget of
/// the new quota.
#[test]
fn a_changed_quota_has_another_budget() {
    for (old, new) in quotas_per_minute(10).into_iter().zip(quotas_per_minute(12)) {
        let (_, limiter) = full_limiter(old);
        assert_eq!(limiter.take("k", 99).granted(), 10, "{old}");
        assert_eq!(limiter.with_limit(new).take("k", 99).granted(), 12, "{new}");
        assert_eq!(limiter.take("k", 99).granted(), 0, "{old}");
    }
}

/// A reset that is not reported as shared has deleted the count.
#[test]
fn a_reset_of_a_slot_drops_units_taken_from_a_shared_budget() {
    for quota in quotas_per_minute(6) {
        let (_, store) = store(1);
        let residents = fill(&store, T0);
        let limiter = Limiter::with_store(store, quota);
        assert!(limiter.take("k", 6).shared());
        for (key, limit) in &residents {
            let reset = Request::new(key, limit).verb(Verb::Reset);
            assert!(limiter.decide_now(&reset).allowed());
        }
        assert!(!limiter.check("k").allowed(), "{quota}");
        let reset = limiter.reset("k");
        assert_eq!(
            reset.remaining(),
            if reset.shared() { 0 } else { 6 },
            "{quota}"
        );
        let after = limiter.peek("k", 1);
        assert_eq!(
            after.remaining(),
            reset.remaining(),
            "{quota}: the reset reported another count"
        );
    }
}

/// Hundreds of quotas need a budget in a store of capacity 1: those without one are refused.
#[test]
fn a_quota_without_a_budget_is_refused() {
    let (_, store) = store(1);
    fill(&store, T0);
    let limits: Vec<Limit> = (0..1_500)
        .map(|n| {
            let text = format!("token-bucket 2/{}ms", 60_000 + n);
            Limit::named(format!("limit {n}"), text.parse().unwrap())
        })
        .collect();
    let mut refused = Vec::new();
    for round in 0..3 {
        for limit in &limits {
            let check = Request::new("k", limit);
            let decision = store.decide_at(&check, T0);
            assert!(decision.shared());
            assert!(
                round < 2 || !decision.allowed(),
                "a third request with a limit of 2"
            );
            if round == 0 && !decision.allowed() {
                refused.push((limit, decision));
            }
        }
    }
    assert!(refused.len() > 100, "only {} were refused", refused.len());
    assert!(refused.len() < 1_400, "{} were refused", refused.len());
    for (limit, decision) in refused {
        let Some(wait) = decision.retry_after().and_then(Retry::duration) else {
            panic!("{decision:?}");
        };
        let peek_at = |at: u64| store.decide_at(&Request::new("k", limit).verb(Verb::Peek), at);
        // Others have taken more since, so the wait may be longer now, but not shorter.
        let then = T0 + wait.as_micros() as u64;
        assert!(!peek_at(then - 1).allowed(), "admitted before retry_after");
        let now = store.decide_at(&Request::new("k", limit), T0);
        let Some(wait) = now.retry_after().and_then(Retry::duration) else {
            panic!("{now:?}");
        };
        let then = T0 + wait.as_micros() as u64;
        assert!(peek_at(then).allowed(), "refused after retry_after");
        assert!(!peek_at(then - 1).allowed(), "admitted before retry_after");
    }
}

#[test]
fn a_cost_of_0_is_admitted_even_without_a_budget() {
    let (_, store) = store(1);
    fill(&store, T0);
    for n in 0..1_500 {
        let quota = format!("fixed-window 2/{}ms", MINUTE / 1_000 + n);
        let limit = Limit::named(n.to_string(), quota.parse().unwrap());
        let decision = store.decide(&Request::new("k", &limit));
        let nothing = store.decide(&Request::new("k", &limit).cost(0));
        assert!(nothing.allowed() && nothing.granted() == 0);
        let too_much = store.decide(&Request::new("k", &limit).cost(3));
        assert_eq!(too_much.retry_after(), Some(Retry::Never), "{decision:?}");
    }
}
