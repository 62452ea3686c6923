//! The bounds of queues and pauses, and what happens beyond them.

use std::pin::Pin;
use std::task::{Context, Waker};

use tallygate::AcquireError;
use tallygate::outbound::{OutboundError, OutboundLayer};

use crate::remote::{Calls, Outcome, limiter, settle};

const MAX_WAITING: usize = 100_000;
const MAX_PAUSED: u64 = 10_000;

#[tokio::test(start_paused = true)]
async fn a_call_beyond_the_bound_fails() {
    let calls = Calls::with_quota("token-bucket 9/s burst 9");
    calls.call("a?429&retry-after=3600").await;
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<Pin<Box<dyn Future<Output = Outcome> + Send>>> = Vec::new();
    for _ in 0..MAX_WAITING {
        let mut call = Box::pin(calls.calling("b"));
        assert!(call.as_mut().poll(&mut context).is_pending());
        waiting.push(call);
    }
    let error = calls.calling("c").await.unwrap_err();
    assert!(
        matches!(error, OutboundError::Limit(AcquireError::TooManyWaiting)),
        "{error:?}"
    );
    // A call that leaves makes room.
    waiting.pop();
    let last = calls.call("d").await;
    assert!(!last.is_finished());
    drop(waiting);
    assert_eq!(calls.queue_sizes(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_the_pause_that_ends_soonest_is_dropped() {
    let layer = OutboundLayer::new(limiter("token-bucket 9/s burst 9"));
    let calls = Calls::through(&layer.by(|head| head.uri().path().into()));
    for n in 0..MAX_PAUSED {
        // The 77th ends first.
        let wait = if n == 77 { 60 } else { 600 + n % 10 };
        let outcome = calls.calling(&format!("{n}?429&retry-after={wait}")).await;
        assert_eq!(outcome.unwrap(), 429);
    }
    let soonest = calls.call("77").await;
    assert!(!soonest.is_finished());
    let outcome = calls.calling("one-more?429&retry-after=700").await;
    assert_eq!(outcome.unwrap(), 429);
    settle().await;
    // Its waiting call is sent.
    assert_eq!(soonest.await.unwrap().unwrap(), 200);
    assert_eq!(calls.queue_sizes(), (0, 10_000));
    let held = calls.call("78").await;
    let new = calls.call("one-more").await;
    assert!(!held.is_finished() && !new.is_finished());
}

#[tokio::test(start_paused = true)]
async fn finished_pauses_make_room() {
    let layer = OutboundLayer::new(limiter("token-bucket 9/s burst 9"));
    let calls = Calls::through(&layer.by(|head| head.uri().path().into()));
    for n in 0..MAX_PAUSED {
        let wait = if n < 100 { 3_600 } else { 10 };
        let outcome = calls.calling(&format!("{n}?429&retry-after={wait}")).await;
        assert_eq!(outcome.unwrap(), 429);
    }
    assert_eq!(calls.queue_sizes(), (0, 10_000));
    calls.remote.until_ms(20_000).await;
    let outcome = calls.calling("one-more?429&retry-after=1").await;
    assert_eq!(outcome.unwrap(), 429);
    assert_eq!(calls.queue_sizes(), (0, 101));
    let held = calls.call("1").await;
    assert!(!held.is_finished());
}
