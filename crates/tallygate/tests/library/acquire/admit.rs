//! `admit`: waits for a shaping delay, but not for capacity.

use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use tallygate::{AcquireError, Decision, Limit, OnFailure, Quota, Request, Retry, Verb, Wait};
use tokio::task::JoinHandle;

use super::queue::{TestQueue, cancel, settle};
use crate::fixtures::{quotas_per_minute, remaining_by_limit};

const SECOND: Duration = Duration::from_secs(1);

type Task = JoinHandle<Result<Decision, AcquireError>>;

/// Calls `admit` for key `k` in a new task; it is decided when this returns.
async fn admit(queue: &TestQueue, name: &str, cost: u32, wait: Wait) -> Task {
    let (queue, name) = (queue.clone(), name.to_owned());
    let task = tokio::spawn(async move {
        let request = queue.limiter.request("k").cost(cost);
        let outcome = queue.limiter.admit(&request, wait).await;
        if outcome.as_ref().is_ok_and(Decision::allowed) {
            queue.admitted.lock().unwrap().push((name, queue.now_ms()));
        }
        outcome
    });
    settle().await;
    task
}

async fn finished(task: Task) -> Decision {
    assert!(task.is_finished(), "it still waits");
    task.await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn delayed_requests_wait_in_order() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 4");
    let mut tasks = Vec::new();
    for name in ["a", "b", "c", "d"] {
        tasks.push(admit(&queue, name, 1, Wait::forever()).await);
    }
    assert_eq!(queue.limiter.waiting(), 3);
    queue.until_ms(20_000).await;
    queue.assert_admitted(&[("a", 0), ("b", 1_000), ("c", 2_000), ("d", 3_000)]);
    assert_eq!(queue.limiter.waiting(), 0);
    for (i, task) in tasks.into_iter().enumerate() {
        let decision = task.await.unwrap().unwrap();
        assert_eq!(decision.delay(), SECOND * u32::try_from(i).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_capacity_is_refused_immediately() {
    for quota in quotas_per_minute(2) {
        let queue = TestQueue::with_limit(quota);
        assert!(queue.limiter.check_cost("k", 2).allowed());
        let expected = queue.limiter.peek("k", 1);
        assert!(!expected.allowed());
        for wait in [Wait::forever(), Wait::at_most(SECOND * 1_000)] {
            assert_eq!(
                finished(admit(&queue, "a", 1, wait).await).await,
                expected,
                "{quota}"
            );
        }
        let never = finished(admit(&queue, "a", 3, Wait::forever()).await).await;
        assert_eq!(never.retry_after(), Some(Retry::Never));
        assert_eq!((queue.now_ms(), queue.limiter.waiting()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_above_the_maximum_wait_is_refused_and_not_charged() {
    let window = Limit::named("window", "fixed-window 9/h".parse().unwrap());
    let queue = TestQueue::new("leaky-bucket 1/s queue 9").and(window);
    for _ in 0..3 {
        assert!(queue.limiter.check("k").allowed());
    }
    let wait = Wait::at_most(SECOND * 2);
    let refused = finished(admit(&queue, "early", 1, wait).await).await;
    assert!(!refused.allowed() && !refused.degraded());
    assert_eq!((refused.binding(), refused.granted()), (0, 0));
    assert_eq!(refused.retry_after(), Some(Retry::after_us(1_000_000)));
    let remaining = remaining_by_limit(&refused);
    assert_eq!(remaining, [6, 6], "nothing was charged");
    queue.until_ms(999).await;
    assert!(
        !finished(admit(&queue, "early", 1, wait).await)
            .await
            .allowed()
    );
    queue.until_ms(1_000).await;
    admit(&queue, "in time", 1, wait).await;
    queue.until_ms(20_000).await;
    queue.assert_admitted(&[("in time", 3_000)]);
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_a_cancelled_request_passes_to_the_next() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 10");
    let mut tasks = Vec::new();
    for name in ["a", "b", "c", "d"] {
        tasks.push(admit(&queue, name, 1, Wait::forever()).await);
    }
    queue.until_ms(500).await;
    cancel(tasks.remove(1)).await;
    admit(&queue, "e", 1, Wait::forever()).await;
    queue.until_ms(20_000).await;
    queue.assert_admitted(&[("a", 0), ("c", 1_000), ("d", 2_000), ("e", 3_000)]);
    assert_eq!(queue.limiter.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_last_slot_is_refunded() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 10");
    admit(&queue, "a", 1, Wait::forever()).await;
    let b = admit(&queue, "b", 3, Wait::forever()).await;
    assert_eq!(queue.remaining(), 6);
    cancel(b).await;
    assert_eq!(queue.remaining(), 9);
}

/// `acquire` and `admit` share the schedule.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_capacity_does_not_delay_admit() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 3");
    queue.enqueue("a").await;
    queue.enqueue("b").await;
    queue.enqueue_cost("large", 3).await;
    admit(&queue, "c", 1, Wait::forever()).await;
    let refused = admit(&queue, "d", 1, Wait::forever()).await;
    assert!(!finished(refused).await.allowed());
    queue.until_ms(20_000).await;
    queue.assert_admitted(&[("a", 0), ("b", 1_000), ("c", 2_000), ("large", 3_000)]);
    queue.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn without_a_shaping_limit_admit_does_not_queue() {
    let window = Limit::named("window", "fixed-window 9/h".parse().unwrap());
    let shaping = Limit::named("shaping", "leaky-bucket 1/h queue 9".parse().unwrap());
    let queue = TestQueue::with_limit(window.clone());
    let limiter = &queue.limiter;
    // Fill all queues: any further request that has to queue fails.
    assert!(limiter.check_cost("busy", 9).allowed());
    let busy = limiter.request("busy");
    let mut waiters = Vec::new();
    while limiter.waiting() < 100_000 {
        let mut waiter = Box::pin(limiter.acquire_with(&busy, Wait::forever()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiter.as_mut().poll(&mut context).is_pending());
        waiters.push(waiter);
    }
    let plain = Request::new("k", &window);
    assert!(
        limiter
            .admit(&plain, Wait::forever())
            .await
            .unwrap()
            .allowed()
    );
    let free = plain.clone().and_cost("k", &shaping, 0).unwrap();
    assert!(
        limiter
            .admit(&free, Wait::forever())
            .await
            .unwrap()
            .allowed()
    );
    let before = queue.remaining();
    let both = plain.and("k", &shaping).unwrap();
    let too_many = limiter.admit(&both, Wait::forever()).await;
    assert!(matches!(too_many, Err(AcquireError::TooManyWaiting)));
    assert_eq!(queue.remaining(), before, "nothing was charged");
}

#[tokio::test(start_paused = true)]
async fn admit_ignores_the_verb() {
    for verb in Verb::BASIC {
        let queue = TestQueue::new("token-bucket 1/s burst 5");
        let request = queue.limiter.request("k").cost(2).verb(verb);
        let decision = queue
            .limiter
            .admit(&request, Wait::forever())
            .await
            .unwrap();
        assert_eq!((decision.granted(), queue.remaining()), (2, 3), "{verb}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_policy_refuses_without_waiting() {
    let quota: Quota = "leaky-bucket 1/s queue 9".parse().unwrap();
    let limiter = crate::store_failure::broken_limiter(quota).on_failure(OnFailure::Closed);
    for wait in [Wait::forever(), Wait::at_most(SECOND)] {
        let decision = limiter.admit(&limiter.request("k"), wait).await.unwrap();
        assert!(decision.unavailable());
    }
    assert_eq!(limiter.waiting(), 0);
}
