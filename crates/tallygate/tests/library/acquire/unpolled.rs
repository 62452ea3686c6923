//! A future that is not polled stops nobody.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tallygate::{Limiter, Wait};
use tokio::time::Instant;

use super::queue::{TestQueue, settle};

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_slot_delays_no_later_one() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 10");
    queue.enqueue("a").await;
    let request = queue.limiter.request("k");
    let mut first = Box::pin(queue.limiter.admit(&request, Wait::forever()));
    assert!(poll_once(first.as_mut()).is_pending());
    queue.enqueue("c").await;
    let mut middle = Box::pin(queue.limiter.acquire_with(&request, Wait::forever()));
    assert!(poll_once(middle.as_mut()).is_pending());
    queue.enqueue("e").await;
    queue.until_ms(20_000).await;
    queue.assert_admitted(&[("a", 0), ("c", 2_000), ("e", 4_000)]);
    // Both start as soon as they are polled.
    assert!(poll_once(middle.as_mut()).is_ready());
    assert!(poll_once(first.as_mut()).is_ready());
    drop((first, middle));
    queue.assert_empty();
}

/// Its slot is in the past: a request that took it over would be too close to the next.
#[tokio::test(start_paused = true)]
async fn an_unpolled_slot_that_is_dropped_after_its_start_moves_nobody() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 10");
    queue.enqueue("a").await;
    let request = queue.limiter.request("k");
    let mut unpolled = Box::pin(queue.limiter.admit(&request, Wait::forever()));
    assert!(poll_once(unpolled.as_mut()).is_pending());
    queue.enqueue("c").await;
    queue.enqueue("d").await;
    queue.until_ms(1_500).await;
    drop(unpolled);
    queue.until_ms(20_000).await;
    queue.assert_admitted(&[("a", 0), ("c", 2_000), ("d", 3_000)]);
}

/// The first holds the turn, the second never takes it: both are passed over after a grace period.
#[tokio::test(start_paused = true)]
async fn unpolled_requests_that_wait_for_capacity_are_passed_over() {
    let queue = TestQueue::new("token-bucket 1/s burst 1");
    queue.enqueue("a").await;
    let request = queue.limiter.request("k");
    let mut unpolled =
        [0, 1].map(|_| Box::pin(queue.limiter.acquire_with(&request, Wait::forever())));
    for future in &mut unpolled {
        assert!(poll_once(future.as_mut()).is_pending());
    }
    queue.enqueue("b").await;
    queue.enqueue("c").await;
    queue.until_ms(20_000).await;
    let admitted = queue.admitted();
    let names: Vec<&str> = admitted.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["a", "b", "c"], "{admitted:?}");
    assert!(admitted[1].1 < 1_500, "passed over once: {admitted:?}");
    assert!(admitted[2].1 < 2_500, "passed over once: {admitted:?}");
    // They still work when they are polled again.
    for future in unpolled {
        assert!(future.await.unwrap().allowed());
    }
    queue.assert_empty();
}

/// Two engines over one store: the stored schedule ends with a request of the other engine.
#[tokio::test(start_paused = true)]
async fn a_cancelled_last_slot_is_not_refunded_if_others_are_scheduled_behind_it() {
    let start = Instant::now();
    let store = Arc::new(super::queue::paused_store(start));
    let quota: tallygate::Quota = "leaky-bucket 1/s queue 10".parse().unwrap();
    let [ours, theirs] = [0, 1].map(|_| Limiter::with_store(Arc::clone(&store), quota));
    let request = ours.request("k");
    assert!(ours.check("k").allowed());
    let mut last = Box::pin(ours.admit(&request, Wait::forever()));
    assert!(poll_once(last.as_mut()).is_pending());
    let mut behind = Box::pin(theirs.admit(&request, Wait::forever()));
    assert!(poll_once(behind.as_mut()).is_pending());
    drop(last);
    settle().await;
    assert_eq!(
        ours.peek("k", 1).delay().as_secs(),
        3,
        "the other's slot is kept"
    );
    // The other engine's is the last one: it is refunded.
    drop(behind);
    assert_eq!(ours.peek("k", 1).delay().as_secs(), 2);
    assert_eq!(ours.waiting() + theirs.waiting(), 0);
}
