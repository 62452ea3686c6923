//! A request that cannot meet its deadline fails immediately and takes nothing.

use std::time::Duration;

use tallygate::{AcquireError, Limiter, Quota, Wait};

use super::queue::TestQueue;
use crate::fixtures::quotas_per_minute;

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_capacity_fails_immediately() {
    for quota in quotas_per_minute(3) {
        let queue = TestQueue::with_limit(quota);
        let too_much = queue.limiter.request("k").cost(4);
        for _ in 0..2 {
            for wait in [Wait::forever(), Wait::at_most(MS)] {
                let outcome = queue.limiter.acquire_with(&too_much, wait).await;
                assert!(matches!(outcome, Err(AcquireError::Never)), "{quota}");
            }
            assert_eq!(queue.now_ms(), 0, "{quota}");
            // Again behind a waiting request.
            let _ = queue.limiter.take("k", 3);
            queue.enqueue("other").await;
        }
        assert_eq!(queue.remaining(), 0, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_too_early_fails_immediately_and_takes_nothing() {
    for quota in quotas_per_minute(3) {
        let queue = TestQueue::with_limit(quota);
        assert!(queue.limiter.check_cost("k", 2).allowed());
        let shapes = quota.algorithm().is_shaping();
        let request = queue.limiter.request("k").cost(if shapes { 1 } else { 2 });
        let before = queue.limiter.peek("k", 1);
        let early = Wait::at_most(Duration::from_secs(10));
        let outcome = queue.limiter.acquire_with(&request, early).await;
        let Err(AcquireError::TooLate { wait }) = outcome else {
            panic!("{quota}: {outcome:?}");
        };
        assert!(wait > Duration::from_secs(10), "{quota}: {wait:?}");
        assert_eq!(queue.now_ms(), 0, "{quota}");
        assert_eq!(queue.limiter.peek("k", 1), before, "{quota}");
        queue.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_at_exactly_the_wait_is_met() {
    for quota in [
        "fixed-window 1/s",
        "token-bucket 1/s",
        "leaky-bucket 1/s queue 2",
        "sliding-window-log 1/s",
    ] {
        for (max_wait, fits) in [(1_000 * MS, true), (999 * MS, false)] {
            let queue = TestQueue::new(quota);
            assert!(queue.limiter.check("k").allowed());
            let request = queue.limiter.request("k");
            let outcome = queue
                .limiter
                .acquire_with(&request, Wait::at_most(max_wait))
                .await;
            assert_eq!(outcome.is_ok(), fits, "{quota} {max_wait:?}: {outcome:?}");
            assert_eq!(queue.now_ms(), if fits { 1_000 } else { 0 }, "{quota}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_request_fails_at_its_deadline_and_takes_nothing() {
    let queue = TestQueue::new("fixed-window 1/s");
    queue.enqueue("a").await;
    queue.enqueue("b").await;
    queue.enqueue("c").await;
    let late = queue
        .enqueue_with("late", "k", 1, Wait::at_most(1_500 * MS))
        .await;
    queue.enqueue("d").await;
    let outcome = late.await.unwrap();
    assert!(
        matches!(outcome, Err(AcquireError::TooLate { .. })),
        "{outcome:?}"
    );
    assert!(queue.now_ms() <= 1_500, "{}", queue.now_ms());
    queue.until_ms(10_000).await;
    queue.assert_admitted(&[("a", 0), ("b", 1_000), ("c", 2_000), ("d", 3_000)]);
    queue.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_shaping_slot_after_the_deadline_takes_nothing() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 3");
    for name in ["a", "b", "c"] {
        queue.enqueue(name).await;
    }
    let remaining = queue.remaining();
    let request = queue.limiter.request("k");
    let outcome = queue
        .limiter
        .acquire_with(&request, Wait::at_most(500 * MS))
        .await;
    assert!(matches!(outcome, Err(AcquireError::TooLate { .. })));
    assert_eq!((queue.now_ms(), queue.remaining()), (0, remaining));
    queue.enqueue("d").await;
    queue.until_ms(9_000).await;
    queue.assert_admitted(&[("a", 0), ("b", 1_000), ("c", 2_000), ("d", 3_000)]);
}

/// On the system clock, which advances between two reads.
#[tokio::test]
async fn a_wait_of_zero_admits_a_request_that_fits_now() {
    let limiter = Limiter::new(Quota::per_day(1));
    let request = limiter.request("k");
    let now = Wait::at_most(Duration::ZERO);
    let outcome = limiter.acquire_with(&request, now).await;
    assert!(outcome.is_ok(), "no wait was needed: {outcome:?}");
    assert!(limiter.acquire_with(&request, now).await.is_err());
}

#[tokio::test]
async fn the_maximum_duration_does_not_panic() {
    for max_wait in [
        Duration::MAX,
        Duration::from_secs(u64::MAX),
        Duration::from_secs(1 << 40),
    ] {
        let limiter = Limiter::new(Quota::per_day(1));
        let request = limiter.request("k");
        let wait = Wait::at_most(max_wait).jitter(Duration::MAX);
        assert!(limiter.acquire_with(&request, wait).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_debt_of_a_century_does_not_panic() {
    for quota in quotas_per_minute(1) {
        let queue = TestQueue::with_limit(quota);
        for _ in 0..3 {
            let _ = queue.limiter.charge("k", u32::MAX);
        }
        let request = queue.limiter.request("k");
        let outcome = queue
            .limiter
            .acquire_with(&request, Wait::at_most(MS))
            .await;
        assert!(
            matches!(outcome, Err(AcquireError::TooLate { .. })),
            "{quota}"
        );
        queue.enqueue("patient").await;
        queue.until_ms(1_000).await;
        queue.assert_admitted(&[]);
    }
}

/// A reset clears the counter but not the queue: a new request still waits behind it and fails
/// if that is too late.
#[tokio::test(start_paused = true)]
async fn after_a_reset_the_deadline_accounts_for_requests_still_queued() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 20");
    for n in 0..10 {
        queue.enqueue(&n.to_string()).await;
    }
    let _ = queue.limiter.reset("k");
    assert!(queue.limiter.acquire("k").await.is_ok());
    let request = queue.limiter.request("k");
    let wait = Wait::at_most(Duration::from_secs(2));
    let outcome = queue.limiter.acquire_with(&request, wait).await;
    assert!(outcome.is_err(), "{outcome:?}");
    assert_eq!(queue.now_ms(), 0);
}
