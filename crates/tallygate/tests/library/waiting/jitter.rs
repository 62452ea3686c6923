//! Jitter only ever adds, and no more than it says.

use std::time::Duration;

use tallygate::Wait;

use super::line::Line;

const MS: Duration = Duration::from_millis(1);

/// Without jitter the second waiter is through at 1 s; timers count in milliseconds.
#[tokio::test(start_paused = true)]
async fn jitter_adds_a_bounded_bit() {
    for quota in [
        "fixed-window 1/s",
        "token-bucket 1/s",
        "leaky-bucket 1/s burst 1",
        "sliding-window-log 1/s",
    ] {
        let mut seen = Vec::new();
        for _ in 0..40 {
            let line = Line::of(quota);
            assert!(line.limiter.check("k").allowed());
            let request = line.limiter.request("k");
            let wait = Wait::forever().jitter(200 * MS);
            assert!(line.limiter.acquire_with(&request, wait).await.is_ok());
            let at = line.now_ms();
            assert!((1_000..=1_201).contains(&at), "{quota}: {at}");
            seen.push(at);
        }
        seen.dedup();
        assert!(seen.len() > 5, "{quota}: always {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_who_need_not_wait_is_not_held_up_by_jitter() {
    for quota in [
        "fixed-window 1/s",
        "token-bucket 1/s",
        "leaky-bucket 1/s queue 2",
    ] {
        let line = Line::of(quota);
        let request = line.limiter.request("k");
        let wait = Wait::forever().jitter(1_000 * MS);
        assert!(line.limiter.acquire_with(&request, wait).await.is_ok());
        assert_eq!(line.now_ms(), 0, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn jitter_carries_nobody_past_their_deadline() {
    for quota in [
        "fixed-window 1/s",
        "token-bucket 1/s",
        "leaky-bucket 1/s queue 2",
    ] {
        for _ in 0..20 {
            let line = Line::of(quota);
            assert!(line.limiter.check("k").allowed());
            let request = line.limiter.request("k");
            let wait = Wait::at_most(1_100 * MS).jitter(10_000 * MS);
            let outcome = line.limiter.acquire_with(&request, wait).await;
            assert!(
                line.now_ms() <= 1_100,
                "{quota}: {} ms, {outcome:?}",
                line.now_ms()
            );
        }
    }
}

/// There is room in time; a random bit must not turn that into a failure.
#[tokio::test(start_paused = true)]
async fn jitter_makes_nobody_miss_a_deadline_they_can_make() {
    for quota in [
        "fixed-window 1/s",
        "token-bucket 1/s",
        "leaky-bucket 1/s queue 2",
    ] {
        for _ in 0..20 {
            let line = Line::of(quota);
            assert!(line.limiter.check("k").allowed());
            let request = line.limiter.request("k");
            let wait = Wait::at_most(1_100 * MS).jitter(10_000 * MS);
            let outcome = line.limiter.acquire_with(&request, wait).await;
            assert!(outcome.is_ok(), "{quota}: {outcome:?}");
        }
    }
}

/// A queue spaces its waiters already.
#[tokio::test(start_paused = true)]
async fn a_shaping_delay_gets_no_jitter() {
    let line = Line::of("leaky-bucket 1/10s queue 10");
    assert!(line.limiter.check("k").allowed());
    let wait = Wait::forever().jitter(Duration::from_secs(1_000_000));
    line.join_with("one", "k", 1, wait).await;
    line.join("next").await;
    line.until_ms(100_000).await;
    line.assert_through(&[("one", 10_000), ("next", 20_000)]);
    line.assert_nobody_waits();
}
