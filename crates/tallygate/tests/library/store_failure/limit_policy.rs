//! Failure policies and deadlines of single limits, also mixed in one request.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tallygate::{Decision, Limit, Limiter, OnFailure, Quota, Replicas, Request, Retry, Verb};

use super::{FAILS, FaultyStore, HANGS, HEALTHY, check, faulty_limiter, local};
use crate::fixtures::remaining_by_limit;

fn limit(name: &str, quota: &str) -> Limit {
    Limit::named(name, quota.parse().unwrap())
}

/// One limit of each policy: open, local for two replicas, and closed.
fn one_of_each_policy() -> [Limit; 3] {
    [
        limit("open", "fixed-window 1/366d").on_failure(OnFailure::Open),
        limit("local", "fixed-window 10/366d").on_failure(local(2)),
        limit("closed", "fixed-window 100/366d").on_failure(OnFailure::Closed),
    ]
}

async fn decide_degraded(limiter: &Limiter<FaultyStore>, request: &Request<'_>) -> Decision {
    let decision = limiter.decide(request).await;
    assert!(decision.degraded());
    decision
}

#[tokio::test]
async fn a_limit_without_a_policy_has_that_of_the_limiter() {
    let quota: Quota = "1/min".parse().unwrap();
    let limiter = faulty_limiter(FAILS, "1/min").on_failure(OnFailure::Closed);
    assert!(check(&limiter, "a").await.unavailable());
    let open = limiter.with_limit(Limit::from(quota).on_failure(OnFailure::Open));
    assert!(check(&open, "a").await.allowed());
    let closed =
        faulty_limiter(FAILS, "1/s").with_limit(Limit::from(quota).on_failure(OnFailure::Closed));
    assert!(check(&closed, "a").await.unavailable());
}

#[tokio::test]
async fn one_closed_limit_refuses_the_request_and_nothing_is_counted() {
    let limiter = faulty_limiter(FAILS, "1/s");
    let [open, local, closed] = &one_of_each_policy();
    let all = Request::with_limits("k", [open, local, closed]).unwrap();
    let decision = decide_degraded(&limiter, &all).await;
    assert!(decision.unavailable() && !decision.allowed());
    assert_eq!((decision.binding(), decision.limit()), (2, 100));
    assert!(decision.verdicts().is_empty() && decision.retry_after().is_none());
    let peek = decide_degraded(&limiter, &Request::new("k", local).verb(Verb::Peek)).await;
    assert_eq!(peek.remaining(), 5, "the local limit was not charged");
}

#[tokio::test]
async fn with_open_and_local_limits_the_local_ones_decide() {
    let limiter = faulty_limiter(FAILS, "1/s");
    let [open, local, _] = &one_of_each_policy();
    let both = Request::with_limits("k", [open, local]).unwrap();
    for remaining in [4, 3, 2, 1, 0] {
        let decision = decide_degraded(&limiter, &both).await;
        assert!(decision.allowed() && !decision.unavailable());
        assert_eq!((decision.binding(), decision.remaining()), (1, remaining));
        assert_eq!((decision.granted(), decision.limit()), (1, 5));
        assert!(decision.verdicts().is_empty(), "one was not counted");
    }
    let refused = decide_degraded(&limiter, &both).await;
    assert!(!refused.allowed() && !refused.unavailable());
    assert_eq!(refused.binding(), 1);
    assert!(matches!(refused.retry_after(), Some(Retry::After(_))));
}

#[tokio::test]
async fn local_limits_with_different_replicas_are_all_or_nothing() {
    let limiter = faulty_limiter(FAILS, "1/s");
    let [open, ..] = &one_of_each_policy();
    let half = limit("half", "fixed-window 10/366d").on_failure(local(2));
    let fifth = limit("fifth", "fixed-window 10/366d").on_failure(local(5));
    let request = Request::new("k", &half).and("k", open).unwrap();
    let request = request.and("k", &fifth).unwrap();
    for remaining in [1, 0] {
        let decision = decide_degraded(&limiter, &request).await;
        assert_eq!((decision.binding(), decision.remaining()), (2, remaining));
    }
    let refused = decide_degraded(&limiter, &request).await;
    assert_eq!((refused.allowed(), refused.binding()), (false, 2));
    let counted = Request::with_limits("k", [&half, &fifth]).unwrap();
    let peek = decide_degraded(&limiter, &counted.verb(Verb::Peek)).await;
    let remaining = remaining_by_limit(&peek);
    assert_eq!(remaining, [3, 0], "a refused request is not charged");
}

#[tokio::test]
async fn costs_per_limit_apply_without_the_store_too() {
    let limiter = faulty_limiter(FAILS, "1/s");
    let [open, local, _] = &one_of_each_policy();
    let request = |verb, costs: [u32; 2]| {
        let request = Request::new("k", open).cost(costs[0]).verb(verb);
        request.and_cost("k", local, costs[1]).unwrap()
    };
    let decision = decide_degraded(&limiter, &request(Verb::Check, [7, 1])).await;
    assert_eq!((decision.granted(), decision.remaining()), (1, 4));
    let decision = decide_degraded(&limiter, &request(Verb::Check, [7, 0])).await;
    assert_eq!((decision.granted(), decision.remaining()), (7, 4));
    // A take grants the same to every limit: at most the cost of the open one.
    let decision = decide_degraded(&limiter, &request(Verb::Take, [2, 9])).await;
    assert_eq!((decision.granted(), decision.remaining()), (2, 2));
    let decision = decide_degraded(&limiter, &request(Verb::Take, [9, 9])).await;
    assert_eq!((decision.granted(), decision.remaining()), (2, 0));
}

#[tokio::test]
async fn a_share_below_the_smallest_quota_refuses_beside_open_limits() {
    let limiter = faulty_limiter(FAILS, "1/s");
    let [open, ..] = &one_of_each_policy();
    let tiny = limit("tiny", "1/366d").on_failure(local(10));
    let decision =
        decide_degraded(&limiter, &Request::with_limits("k", [open, &tiny]).unwrap()).await;
    assert!(decision.unavailable());
    assert_eq!(decision.binding(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_shortest_deadline_of_a_request_applies() {
    let limiter = faulty_limiter(HANGS, "1/s");
    let short = limit("short", "1/s").deadline(Duration::from_millis(7));
    let long = limit("long", "1/s").deadline(Duration::from_millis(300));
    let plain = limit("plain", "1/s");
    for (limits, ms) in [
        (vec![&long], 300),
        (vec![&long, &plain], 50),
        (vec![&plain, &short, &long], 7),
    ] {
        let before = tokio::time::Instant::now();
        let request = Request::with_limits("k", limits).unwrap();
        decide_degraded(&limiter, &request).await;
        // Timers have whole milliseconds.
        let over = before.elapsed() - Duration::from_millis(ms);
        assert!(over <= Duration::from_millis(1), "{ms} ms");
    }
}

#[tokio::test]
async fn policy_and_deadline_do_not_identify_a_counter() {
    let limiter = faulty_limiter(HEALTHY, "1/s");
    let quota = "fixed-window 10/366d";
    let plain = limit("name", quota);
    let changed = limit("name", quota)
        .on_failure(OnFailure::Closed)
        .deadline(Duration::from_secs(1));
    assert_ne!(plain, changed);
    limiter.decide(&Request::new("k", &plain)).await;
    let decision = limiter.decide(&Request::new("k", &changed)).await;
    assert_eq!(decision.remaining(), 8);
    let twice = Request::new("k", &plain).and("k", &changed);
    assert!(twice.is_err(), "they are the same counter");
}

#[tokio::test]
async fn a_limit_with_counted_replicas_starts_the_count_in_the_store() {
    let at_least = NonZeroU32::new(2).unwrap();
    let counted = OnFailure::Local(Replicas::Counted { at_least });
    let limiter = faulty_limiter(FAILS, "1/s");
    let counts = || limiter.store().replica_counts.load(Relaxed);
    assert_eq!(counts(), 1, "the default policy needs the number");
    limiter
        .engine()
        .prepare(&limit("fixed", "1/s").on_failure(local(2)));
    limiter.engine().prepare(&limit("plain", "1/s"));
    assert_eq!(counts(), 1);
    let with_counted = limit("local", "fixed-window 100/366d").on_failure(counted);
    limiter.engine().prepare(&with_counted);
    assert_eq!(counts(), 2);
    limiter.store().replicas.store(5, Relaxed);
    let decision = decide_degraded(&limiter, &Request::new("k", &with_counted)).await;
    assert_eq!(decision.limit(), 20);
    let _ = limiter.with_limit(with_counted);
    assert_eq!(counts(), 3);
}
