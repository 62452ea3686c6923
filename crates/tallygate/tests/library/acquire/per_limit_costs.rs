//! `acquire` with a cost per limit.

use std::time::Duration;

use tallygate::{AcquireError, Decision, Limit, Request, Verb, Wait};
use tokio::task::JoinHandle;

use super::queue::{TestQueue, cancel, settle};
use crate::fixtures::remaining_by_limit;

fn limit(name: &str, quota: &str) -> Limit {
    Limit::named(name, quota.parse().unwrap())
}

/// Acquires a cost of each limit in a new task; it is queued when this returns.
async fn enqueue(
    queue: &TestQueue,
    limits: &[Limit; 2],
    costs: [u32; 2],
) -> JoinHandle<Result<Decision, AcquireError>> {
    let (limiter, limits) = (queue.limiter.clone(), limits.clone());
    let task = tokio::spawn(async move {
        let request = Request::new("k", &limits[0]).cost(costs[0]);
        let request = request.and_cost("k", &limits[1], costs[1]).unwrap();
        limiter.acquire_with(&request, Wait::forever()).await
    });
    settle().await;
    task
}

fn remaining(queue: &TestQueue, limits: &[Limit; 2]) -> Vec<u32> {
    let peek = Request::with_limits("k", limits).unwrap().verb(Verb::Peek);
    let decision = queue.limiter.decide_now(&peek);
    remaining_by_limit(&decision)
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_capacity_of_its_limit_never_fits() {
    let queue = TestQueue::new("1/s");
    let limits = [
        limit("a", "fixed-window 9/h"),
        limit("b", "fixed-window 3/h"),
    ];
    let outcome = enqueue(&queue, &limits, [4, 4]).await.await.unwrap();
    assert!(matches!(outcome, Err(AcquireError::Never)));
    assert!(
        enqueue(&queue, &limits, [9, 3])
            .await
            .await
            .unwrap()
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_last_slot_refunds_each_limit_its_cost() {
    let queue = TestQueue::new("1/s");
    let limits = [
        limit("a", "leaky-bucket 1/h queue 9"),
        limit("b", "leaky-bucket 1/h queue 9"),
    ];
    let first = enqueue(&queue, &limits, [1, 1]).await;
    assert!(first.await.unwrap().is_ok());
    let second = enqueue(&queue, &limits, [2, 5]).await;
    assert_eq!(remaining(&queue, &limits), [6, 3]);
    cancel(second).await;
    assert_eq!(remaining(&queue, &limits), [8, 8]);
    queue.assert_empty();
}

/// The cancelled slot is two seconds long in one schedule and five in the other, so the next
/// request keeps its slot.
#[tokio::test(start_paused = true)]
async fn a_cancelled_slot_with_unequal_costs_moves_no_request_ahead_of_its_time() {
    let queue = TestQueue::new("1/s");
    let limits = [
        limit("a", "leaky-bucket 1/s queue 30"),
        limit("b", "leaky-bucket 1/s queue 30"),
    ];
    drop(enqueue(&queue, &limits, [1, 1]).await);
    let cancelled = enqueue(&queue, &limits, [2, 5]).await;
    let next = enqueue(&queue, &limits, [9, 1]).await;
    queue.until_ms(500).await;
    cancel(cancelled).await;
    queue.until_ms(5_900).await;
    assert!(!next.is_finished());
    queue.until_ms(6_100).await;
    let delay = next.await.unwrap().unwrap().delay();
    assert_eq!(delay, Duration::from_secs(6));
    queue.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn acquire_does_not_wait_for_a_limit_of_cost_0() {
    let queue = TestQueue::new("1/s");
    let limits = [
        limit("a", "fixed-window 9/h"),
        limit("b", "leaky-bucket 1/h queue 9"),
    ];
    for _ in 0..3 {
        let outcome = enqueue(&queue, &limits, [1, 0]).await.await.unwrap();
        assert_eq!(outcome.unwrap().delay(), Duration::ZERO);
    }
    assert_eq!(queue.now_ms(), 0);
    assert_eq!(remaining(&queue, &limits), [6, 9]);
}
