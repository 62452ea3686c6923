//! Limits with policies and deadlines of their own, alone and mixed in one request.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tallygate::{Decision, Limit, Limiter, OnFailure, Quota, Replicas, Request, RetryAfter, Verb};

use super::{FAILS, HANGS, Moody, WELL, check, fixed, moody};

fn limit(name: &str, quota: &str) -> Limit {
    Limit::named(name, quota.parse().unwrap())
}

/// One limit of each policy, in that order; the local one is a share of half.
fn mixed() -> [Limit; 3] {
    [
        limit("open", "fixed-window 1/366d").on_failure(OnFailure::Open),
        limit("local", "fixed-window 10/366d").on_failure(fixed(2)),
        limit("closed", "fixed-window 100/366d").on_failure(OnFailure::Closed),
    ]
}

async fn decide(limiter: &Limiter<Moody>, request: &Request<'_>) -> Decision {
    let decision = limiter.decide(request).await;
    assert!(decision.degraded());
    decision
}

#[tokio::test]
async fn a_limit_that_says_nothing_takes_the_limiters_policy() {
    let quota: Quota = "1/min".parse().unwrap();
    let limiter = moody(FAILS, "1/min").on_failure(OnFailure::Closed);
    assert!(check(&limiter, "a").await.unavailable());
    let open = limiter.with_limit(Limit::from(quota).on_failure(OnFailure::Open));
    assert!(check(&open, "a").await.allowed());
    let closed = moody(FAILS, "1/s").with_limit(Limit::from(quota).on_failure(OnFailure::Closed));
    assert!(check(&closed, "a").await.unavailable());
}

#[tokio::test]
async fn one_closed_limit_refuses_for_all_and_counts_nothing() {
    let limiter = moody(FAILS, "1/s");
    let [open, local, closed] = &mixed();
    let all = Request::with_limits("k", [open, local, closed]).unwrap();
    let decision = decide(&limiter, &all).await;
    assert!(decision.unavailable() && !decision.allowed());
    assert_eq!((decision.binding(), decision.limit()), (2, 100));
    assert!(decision.verdicts().is_empty() && decision.retry_after().is_none());
    let local = decide(&limiter, &Request::new("k", local).verb(Verb::Peek)).await;
    assert_eq!(local.remaining(), 5, "the local one was not charged");
}

#[tokio::test]
async fn local_limits_are_counted_and_open_ones_beside_them_admit() {
    let limiter = moody(FAILS, "1/s");
    let [open, local, _] = &mixed();
    let both = Request::with_limits("k", [open, local]).unwrap();
    for left in [4, 3, 2, 1, 0] {
        let decision = decide(&limiter, &both).await;
        assert!(decision.allowed() && !decision.unavailable());
        assert_eq!((decision.binding(), decision.remaining()), (1, left));
        assert_eq!((decision.granted(), decision.limit()), (1, 5));
        assert!(decision.verdicts().is_empty(), "one was not counted");
    }
    let refused = decide(&limiter, &both).await;
    assert!(!refused.allowed() && !refused.unavailable());
    assert_eq!(refused.binding(), 1);
    assert!(matches!(refused.retry_after(), Some(RetryAfter::After(_))));
}

#[tokio::test]
async fn local_limits_are_all_or_nothing_each_with_its_own_replicas() {
    let limiter = moody(FAILS, "1/s");
    let [open, ..] = &mixed();
    let half = limit("half", "fixed-window 10/366d").on_failure(fixed(2));
    let fifth = limit("fifth", "fixed-window 10/366d").on_failure(fixed(5));
    let request = Request::new("k", &half).and("k", open).unwrap();
    let request = request.and("k", &fifth).unwrap();
    for left in [1, 0] {
        let decision = decide(&limiter, &request).await;
        assert_eq!((decision.binding(), decision.remaining()), (2, left));
    }
    let refused = decide(&limiter, &request).await;
    assert_eq!((refused.allowed(), refused.binding()), (false, 2));
    let counted = Request::with_limits("k", [&half, &fifth]).unwrap();
    let peek = decide(&limiter, &counted.verb(Verb::Peek)).await;
    let left: Vec<u32> = peek.verdicts().iter().map(|v| v.remaining).collect();
    assert_eq!(left, [3, 0], "what one refused was charged to none");
}

#[tokio::test]
async fn costs_of_their_own_count_without_the_store_too() {
    let limiter = moody(FAILS, "1/s");
    let [open, local, _] = &mixed();
    let request = |verb, costs: [u32; 2]| {
        let request = Request::new("k", open).cost(costs[0]).verb(verb);
        request.and_cost("k", local, costs[1]).unwrap()
    };
    let decision = decide(&limiter, &request(Verb::Check, [7, 1])).await;
    assert_eq!((decision.granted(), decision.remaining()), (1, 4));
    let decision = decide(&limiter, &request(Verb::Check, [7, 0])).await;
    assert_eq!((decision.granted(), decision.remaining()), (7, 4));
    // A take grants the same to every limit: what the open one asks for is the most.
    let decision = decide(&limiter, &request(Verb::Take, [2, 9])).await;
    assert_eq!((decision.granted(), decision.remaining()), (2, 2));
    let decision = decide(&limiter, &request(Verb::Take, [9, 9])).await;
    assert_eq!((decision.granted(), decision.remaining()), (2, 0));
}

#[tokio::test]
async fn a_share_too_small_to_be_said_refuses_beside_open_ones() {
    let limiter = moody(FAILS, "1/s");
    let [open, ..] = &mixed();
    let tiny = limit("tiny", "1/366d").on_failure(fixed(10));
    let decision = decide(&limiter, &Request::with_limits("k", [open, &tiny]).unwrap()).await;
    assert!(decision.unavailable());
    assert_eq!(decision.binding(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_least_deadline_of_a_requests_limits_holds() {
    let limiter = moody(HANGS, "1/s");
    let hasty = limit("hasty", "1/s").deadline(Duration::from_millis(7));
    let patient = limit("patient", "1/s").deadline(Duration::from_millis(300));
    let plain = limit("plain", "1/s");
    for (limits, ms) in [
        (vec![&patient], 300),
        (vec![&patient, &plain], 50),
        (vec![&plain, &hasty, &patient], 7),
    ] {
        let before = tokio::time::Instant::now();
        let request = Request::with_limits("k", limits).unwrap();
        decide(&limiter, &request).await;
        // The clock stands still but for timers, which have whole milliseconds.
        let over = before.elapsed() - Duration::from_millis(ms);
        assert!(over <= Duration::from_millis(1), "{ms} ms");
    }
}

#[tokio::test]
async fn a_policy_and_a_deadline_change_no_counter() {
    let limiter = moody(WELL, "1/s");
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
    assert!(twice.is_err(), "they are one counter");
}

#[tokio::test]
async fn a_limit_that_needs_to_know_the_replicas_has_the_store_count_them() {
    let at_least = NonZeroU32::new(2).unwrap();
    let counted = OnFailure::Local(Replicas::Counted { at_least });
    let limiter = moody(FAILS, "1/s");
    let counts = || limiter.store().counts.load(Relaxed);
    limiter
        .engine()
        .prepare(&limit("fixed", "1/s").on_failure(fixed(2)));
    limiter.engine().prepare(&limit("plain", "1/s"));
    assert_eq!(counts(), 0);
    let local = limit("local", "fixed-window 100/366d").on_failure(counted);
    limiter.engine().prepare(&local);
    assert_eq!(counts(), 1);
    limiter.store().counted.store(5, Relaxed);
    let decision = decide(&limiter, &Request::new("k", &local)).await;
    assert_eq!(decision.limit(), 20);
    let _ = limiter.with_limit(local);
    assert_eq!(counts(), 2);
}
