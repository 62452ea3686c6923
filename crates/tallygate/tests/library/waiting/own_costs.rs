//! Waiting with limits that have costs of their own.

use std::time::Duration;

use tallygate::{AcquireError, Decision, Limit, Request, Verb, Wait};
use tokio::task::JoinHandle;

use super::line::{Line, leave, settle};

fn limit(name: &str, quota: &str) -> Limit {
    Limit::named(name, quota.parse().unwrap())
}

/// Somebody joins for a cost of each limit and is in line when this returns.
async fn join(
    line: &Line,
    limits: &[Limit; 2],
    costs: [u32; 2],
) -> JoinHandle<Result<Decision, AcquireError>> {
    let (limiter, limits) = (line.limiter.clone(), limits.clone());
    let task = tokio::spawn(async move {
        let request = Request::new("k", &limits[0]).cost(costs[0]);
        let request = request.and_cost("k", &limits[1], costs[1]).unwrap();
        limiter.acquire_with(&request, Wait::forever()).await
    });
    settle().await;
    task
}

fn left(line: &Line, limits: &[Limit; 2]) -> Vec<u32> {
    let peek = Request::with_limits("k", limits).unwrap().verb(Verb::Peek);
    let decision = line.limiter.decide_now(&peek);
    decision.verdicts().iter().map(|v| v.remaining).collect()
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_capacity_of_its_own_limit_never_fits() {
    let line = Line::of("1/s");
    let limits = [
        limit("a", "fixed-window 9/h"),
        limit("b", "fixed-window 3/h"),
    ];
    let outcome = join(&line, &limits, [4, 4]).await.await.unwrap();
    assert!(matches!(outcome, Err(AcquireError::Never)));
    assert!(join(&line, &limits, [9, 3]).await.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_who_leaves_the_tail_gives_each_schedule_its_own_units_back() {
    let line = Line::of("1/s");
    let limits = [
        limit("a", "leaky-bucket 1/h queue 9"),
        limit("b", "leaky-bucket 1/h queue 9"),
    ];
    let first = join(&line, &limits, [1, 1]).await;
    assert!(first.await.unwrap().is_ok());
    let second = join(&line, &limits, [2, 5]).await;
    assert_eq!(left(&line, &limits), [6, 3]);
    leave(second).await;
    assert_eq!(left(&line, &limits), [8, 8]);
    line.assert_nobody_waits();
}

/// A hole of two seconds in one schedule and of five in the other: whoever is behind stays.
#[tokio::test(start_paused = true)]
async fn a_seat_of_unequal_units_passes_to_nobody_who_would_be_too_early() {
    let line = Line::of("1/s");
    let limits = [
        limit("a", "leaky-bucket 1/s queue 30"),
        limit("b", "leaky-bucket 1/s queue 30"),
    ];
    drop(join(&line, &limits, [1, 1]).await);
    let leaves = join(&line, &limits, [2, 5]).await;
    let stays = join(&line, &limits, [9, 1]).await;
    line.until_ms(500).await;
    leave(leaves).await;
    line.until_ms(5_900).await;
    assert!(!stays.is_finished());
    line.until_ms(6_100).await;
    let delay = stays.await.unwrap().unwrap().delay();
    assert_eq!(delay, Duration::from_secs(6));
    line.assert_nobody_waits();
}

/// The schedule is not asked for anything: nobody has to wait for it.
#[tokio::test(start_paused = true)]
async fn a_schedule_of_cost_0_is_not_waited_for() {
    let line = Line::of("1/s");
    let limits = [
        limit("a", "fixed-window 9/h"),
        limit("b", "leaky-bucket 1/h queue 9"),
    ];
    for _ in 0..3 {
        let outcome = join(&line, &limits, [1, 0]).await.await.unwrap();
        assert_eq!(outcome.unwrap().delay(), Duration::ZERO);
    }
    assert_eq!(line.now_ms(), 0);
    assert_eq!(left(&line, &limits), [6, 9]);
}
