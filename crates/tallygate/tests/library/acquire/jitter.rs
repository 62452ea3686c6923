//! Jitter lengthens a wait, within its bound and within the deadline.

use std::time::Duration;

use tallygate::Wait;

use super::queue::TestQueue;

const MS: Duration = Duration::from_millis(1);

/// Without jitter, the second request is admitted at 1 s. Timers have whole milliseconds.
#[tokio::test(start_paused = true)]
async fn jitter_lengthens_a_wait_within_its_bound() {
    for quota in [
        "fixed-window 1/s",
        "token-bucket 1/s",
        "leaky-bucket 1/s burst 1",
        "sliding-window-log 1/s",
    ] {
        let mut seen = Vec::new();
        for _ in 0..40 {
            let queue = TestQueue::new(quota);
            assert!(queue.limiter.check("k").allowed());
            let request = queue.limiter.request("k");
            let wait = Wait::forever().jitter(200 * MS);
            assert!(queue.limiter.acquire_with(&request, wait).await.is_ok());
            let at = queue.now_ms();
            assert!((1_000..=1_201).contains(&at), "{quota}: {at}");
            seen.push(at);
        }
        seen.dedup();
        assert!(seen.len() > 5, "{quota}: always {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_need_not_wait_has_no_jitter() {
    for quota in [
        "fixed-window 1/s",
        "token-bucket 1/s",
        "leaky-bucket 1/s queue 2",
    ] {
        let queue = TestQueue::new(quota);
        let request = queue.limiter.request("k");
        let wait = Wait::forever().jitter(1_000 * MS);
        assert!(queue.limiter.acquire_with(&request, wait).await.is_ok());
        assert_eq!(queue.now_ms(), 0, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn jitter_never_misses_a_deadline_that_can_be_met() {
    for quota in [
        "fixed-window 1/s",
        "token-bucket 1/s",
        "leaky-bucket 1/s queue 2",
    ] {
        for _ in 0..20 {
            let queue = TestQueue::new(quota);
            assert!(queue.limiter.check("k").allowed());
            let request = queue.limiter.request("k");
            let wait = Wait::at_most(1_100 * MS).jitter(10_000 * MS);
            let outcome = queue.limiter.acquire_with(&request, wait).await;
            assert!(
                queue.now_ms() <= 1_100,
                "{quota}: {} ms, {outcome:?}",
                queue.now_ms()
            );
            assert!(outcome.is_ok(), "{quota}: {outcome:?}");
        }
    }
}

/// A shaping queue spaces its requests already.
#[tokio::test(start_paused = true)]
async fn a_shaping_delay_gets_no_jitter() {
    let queue = TestQueue::new("leaky-bucket 1/10s queue 10");
    assert!(queue.limiter.check("k").allowed());
    let wait = Wait::forever().jitter(Duration::from_secs(1_000_000));
    queue.enqueue_with("one", "k", 1, wait).await;
    queue.enqueue("next").await;
    queue.until_ms(100_000).await;
    queue.assert_admitted(&[("one", 10_000), ("next", 20_000)]);
    queue.assert_empty();
}
