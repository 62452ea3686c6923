//! Whoever cannot make it fails at once and takes nothing.

use std::time::Duration;

use tallygate::{AcquireError, Limiter, Quota, Wait};

use super::line::Line;
use crate::behaviours::each_minute;

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn what_never_fits_fails_at_once() {
    for quota in each_minute(3) {
        let line = Line::under(quota);
        let too_much = line.limiter.request("k").cost(4);
        for _ in 0..2 {
            for wait in [Wait::forever(), Wait::at_most(MS)] {
                let outcome = line.limiter.acquire_with(&too_much, wait).await;
                assert!(matches!(outcome, Err(AcquireError::Never)), "{quota}");
            }
            assert_eq!(line.now_ms(), 0, "{quota}");
            // Again behind others who wait.
            let _ = line.limiter.take("k", 3);
            line.join("other").await;
        }
        assert_eq!(line.left(), 0, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_too_early_fails_at_once_and_takes_nothing() {
    for quota in each_minute(3) {
        let line = Line::under(quota);
        assert!(line.limiter.check_cost("k", 2).allowed());
        let shapes = quota.algorithm().is_shaping();
        let request = line.limiter.request("k").cost(if shapes { 1 } else { 2 });
        let before = line.limiter.peek("k", 1);
        let early = Wait::at_most(Duration::from_secs(10));
        let outcome = line.limiter.acquire_with(&request, early).await;
        let Err(AcquireError::TooLate { wait }) = outcome else {
            panic!("{quota}: {outcome:?}");
        };
        assert!(wait > Duration::from_secs(10), "{quota}: {wait:?}");
        assert_eq!(line.now_ms(), 0, "{quota}");
        assert_eq!(line.limiter.peek("k", 1), before, "{quota}");
        line.assert_nobody_waits();
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_just_enough_is_enough() {
    for quota in [
        "fixed-window 1/s",
        "token-bucket 1/s",
        "leaky-bucket 1/s queue 2",
        "sliding-window-log 1/s",
    ] {
        for (longest, fits) in [(1_000 * MS, true), (999 * MS, false)] {
            let line = Line::of(quota);
            assert!(line.limiter.check("k").allowed());
            let request = line.limiter.request("k");
            let outcome = line
                .limiter
                .acquire_with(&request, Wait::at_most(longest))
                .await;
            assert_eq!(outcome.is_ok(), fits, "{quota} {longest:?}: {outcome:?}");
            assert_eq!(line.now_ms(), if fits { 1_000 } else { 0 }, "{quota}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_behind_others_gives_up_at_the_deadline_and_takes_nothing() {
    let line = Line::of("fixed-window 1/s");
    line.join("a").await;
    line.join("b").await;
    line.join("c").await;
    let late = line
        .join_with("late", "k", 1, Wait::at_most(1_500 * MS))
        .await;
    line.join("d").await;
    let outcome = late.await.unwrap();
    assert!(
        matches!(outcome, Err(AcquireError::TooLate { .. })),
        "{outcome:?}"
    );
    assert!(line.now_ms() <= 1_500, "{}", line.now_ms());
    line.until_ms(10_000).await;
    line.assert_through(&[("a", 0), ("b", 1_000), ("c", 2_000), ("d", 3_000)]);
    line.assert_nobody_waits();
}

#[tokio::test(start_paused = true)]
async fn one_whose_turn_comes_too_late_in_a_shaping_queue_takes_nothing() {
    let line = Line::of("leaky-bucket 1/s queue 3");
    for name in ["a", "b", "c"] {
        line.join(name).await;
    }
    let left = line.left();
    let request = line.limiter.request("k");
    let outcome = line
        .limiter
        .acquire_with(&request, Wait::at_most(500 * MS))
        .await;
    assert!(matches!(outcome, Err(AcquireError::TooLate { .. })));
    assert_eq!((line.now_ms(), line.left()), (0, left));
    line.join("d").await;
    line.until_ms(9_000).await;
    line.assert_through(&[("a", 0), ("b", 1_000), ("c", 2_000), ("d", 3_000)]);
}

/// On the machine's own clock, which moves on between two looks at it.
#[tokio::test]
async fn a_wait_of_nothing_admits_what_fits_now() {
    let limiter = Limiter::new(Quota::per_day(1));
    let request = limiter.request("k");
    let now = Wait::at_most(Duration::ZERO);
    let outcome = limiter.acquire_with(&request, now).await;
    assert!(outcome.is_ok(), "nothing was to wait for: {outcome:?}");
    assert!(limiter.acquire_with(&request, now).await.is_err());
}

#[tokio::test]
async fn the_longest_wait_there_is_does_not_panic() {
    for longest in [
        Duration::MAX,
        Duration::from_secs(u64::MAX),
        Duration::from_secs(1 << 40),
    ] {
        let limiter = Limiter::new(Quota::per_day(1));
        let request = limiter.request("k");
        let wait = Wait::at_most(longest).jitter(Duration::MAX);
        assert!(limiter.acquire_with(&request, wait).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_debt_of_a_century_is_waited_for_or_refused_and_does_not_panic() {
    for quota in each_minute(1) {
        let line = Line::under(quota);
        for _ in 0..3 {
            let _ = line.limiter.charge("k", u32::MAX);
        }
        let request = line.limiter.request("k");
        let outcome = line.limiter.acquire_with(&request, Wait::at_most(MS)).await;
        assert!(
            matches!(outcome, Err(AcquireError::TooLate { .. })),
            "{quota}"
        );
        line.join("patient").await;
        line.until_ms(1_000).await;
        line.assert_through(&[]);
    }
}

/// A reset empties the schedule, but not the seats: whoever comes next waits behind them, and is
/// told so in time.
#[tokio::test(start_paused = true)]
async fn nobody_sits_past_their_deadline_behind_those_who_were_there_before_a_reset() {
    let line = Line::of("leaky-bucket 1/s queue 20");
    for n in 0..10 {
        line.join(&n.to_string()).await;
    }
    let _ = line.limiter.reset("k");
    assert!(line.limiter.acquire("k").await.is_ok());
    let request = line.limiter.request("k");
    let wait = Wait::at_most(Duration::from_secs(2));
    let outcome = line.limiter.acquire_with(&request, wait).await;
    assert!(outcome.is_err(), "{outcome:?}");
    assert_eq!(line.now_ms(), 0);
}
