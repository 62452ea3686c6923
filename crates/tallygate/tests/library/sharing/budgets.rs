//! Only equal quotas share a budget.

use tallygate::{Limit, Limiter, Quota, Request, RetryAfter, Verb};

use super::{fill, full_limiter};
use crate::behaviours::{MINUTE, T0, each_minute, store};

#[test]
fn unequal_quotas_share_nothing() {
    for quota in each_minute(3) {
        let (_, limiter) = full_limiter(quota);
        // Until every budget of this quota is used up.
        for n in 0..2_000 {
            let _ = limiter.take(n.to_string(), 3);
        }
        let strangers: [Quota; 3] = [
            "fixed-window 7/h",
            "token-bucket 7/h",
            "leaky-bucket 7/h queue 7",
        ]
        .map(|text| text.parse().unwrap());
        for stranger in strangers {
            let decision = limiter.with_limit(stranger).check("1");
            assert!(
                decision.shared() && decision.allowed(),
                "{quota}, {stranger}"
            );
            assert_eq!(decision.remaining(), 6, "{quota}, {stranger}");
        }
    }
}

/// A full store keeps nothing of single keys, so that a key whose quota changes while it shares
/// takes from the new quota's budget: within each quota, and no more than that is promised.
#[test]
fn a_changed_quota_is_another_budget() {
    for (old, new) in each_minute(10).into_iter().zip(each_minute(12)) {
        let (_, limiter) = full_limiter(old);
        assert_eq!(limiter.take("k", 99).granted(), 10, "{old}");
        assert_eq!(limiter.with_limit(new).take("k", 99).granted(), 12, "{new}");
        assert_eq!(limiter.take("k", 99).granted(), 0, "{old}");
    }
}

/// A reset that does not say it was shared has forgotten the key.
#[test]
fn a_reset_of_a_slot_drops_what_was_taken_while_sharing() {
    for quota in each_minute(6) {
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
            "{quota}: told one thing, did another"
        );
    }
}

/// Hundreds of quotas that all need a budget in a store with room for one key: some cannot be
/// counted at all, and are refused.
#[test]
fn more_quotas_than_there_are_budgets_refuse_rather_than_admit() {
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
            assert!(round < 2 || !decision.allowed(), "a third of two");
            if round == 0 && !decision.allowed() {
                refused.push((limit, decision));
            }
        }
    }
    assert!(refused.len() > 100, "only {} were refused", refused.len());
    assert!(refused.len() < 1_400, "{} were refused", refused.len());
    for (limit, decision) in refused {
        let Some(RetryAfter::After(wait)) = decision.retry_after() else {
            panic!("{decision:?}");
        };
        let peek_at = |at: u64| store.decide_at(&Request::new("k", limit).verb(Verb::Peek), at);
        // The others have taken more since, so the wait may have grown; it was never too long.
        let then = T0 + wait.as_micros() as u64;
        assert!(!peek_at(then - 1).allowed(), "sooner than told");
        let now = store.decide_at(&Request::new("k", limit), T0);
        let Some(RetryAfter::After(wait)) = now.retry_after() else {
            panic!("{now:?}");
        };
        let then = T0 + wait.as_micros() as u64;
        assert!(peek_at(then).allowed(), "later than told");
        assert!(!peek_at(then - 1).allowed(), "sooner than told");
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
        assert_eq!(
            too_much.retry_after(),
            Some(RetryAfter::Never),
            "{decision:?}"
        );
    }
}
