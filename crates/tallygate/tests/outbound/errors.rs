//! Calls that cannot be sent in time fail as early as possible; the client's errors pass through.

use std::error::Error;
use std::io;
use std::time::Duration;

use http::{Request, Response};
use tallygate::outbound::{OutboundError, OutboundLayer};
use tallygate::{AcquireError, Decision, Limiter, OnFailure, Quota, Store, StoreError};
use tokio::task::JoinHandle;
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::remote::{Calls, Outcome, TestLayer, limiter};

const MS: Duration = Duration::from_millis(1);

fn layer(quota: &str) -> TestLayer {
    OutboundLayer::new(limiter(quota))
}

/// The wait in the error of a finished call.
#[track_caller]
fn too_late(call: JoinHandle<Outcome>) -> Duration {
    let outcome = ended(call);
    match outcome {
        Err(OutboundError::Limit(AcquireError::TooLate { wait })) => wait,
        other => panic!("{other:?}"),
    }
}

/// The outcome of a finished call.
#[track_caller]
fn ended(call: JoinHandle<Outcome>) -> Outcome {
    assert!(call.is_finished(), "it waits");
    let mut call = std::pin::pin!(call);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match call.as_mut().poll(&mut context) {
        std::task::Poll::Ready(outcome) => outcome.unwrap(),
        std::task::Poll::Pending => panic!("it waits"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_longer_than_max_wait_fails_immediately() {
    let calls = Calls::through(&layer("token-bucket 9/s burst 9").max_wait(3_000 * MS));
    calls.call("a?429&retry-after=5").await;
    assert_eq!(too_late(calls.call("b").await), 5_000 * MS);
    calls.remote.until_ms(1_999).await;
    assert_eq!(too_late(calls.call("c").await), 3_001 * MS);
    calls.remote.until_ms(2_000).await;
    let d = calls.call("d").await;
    assert_eq!(d.await.unwrap().unwrap(), 200);
    calls.remote.assert_arrived(&[("a", 0), ("d", 5_000)]);
    assert_eq!(calls.queue_sizes(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_queue_longer_than_max_wait_fails_immediately() {
    let calls = Calls::through(&layer("leaky-bucket 10/s queue 1000").max_wait(250 * MS));
    let mut tasks = Vec::new();
    for n in 0..3 {
        tasks.push(calls.call(&n.to_string()).await);
    }
    assert_eq!(too_late(calls.call("3").await), 300 * MS);
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), 200);
    }
    calls
        .remote
        .assert_arrived(&[("0", 0), ("1", 100), ("2", 200)]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_fails_waiting_calls_that_cannot_meet_their_deadline() {
    let calls = Calls::through(&layer("leaky-bucket 1/s queue 9").max_wait(4_000 * MS));
    calls.call("a?429&after=500&retry-after=4").await;
    let b = calls.call("b").await;
    let c = calls.call("c").await;
    calls.remote.until_ms(400).await;
    assert!(!b.is_finished() && !c.is_finished());
    calls.remote.until_ms(501).await;
    assert_eq!(too_late(b), 4_000 * MS);
    assert_eq!(too_late(c), 4_000 * MS);
    assert_eq!(calls.queue_sizes(), (0, 1));
}

/// Both deadlines are after the pause, but the second is before its turn.
#[tokio::test(start_paused = true)]
async fn pause_and_quota_add_up() {
    let calls = Calls::through(&layer("leaky-bucket 1/s queue 9").max_wait(5_500 * MS));
    calls.call("a?429&retry-after=5").await;
    let b = calls.call("b").await;
    let c = calls.call("c").await;
    calls.remote.until_ms(4_999).await;
    assert!(!b.is_finished() && !c.is_finished());
    calls.remote.until_ms(5_001).await;
    assert_eq!(b.await.unwrap().unwrap(), 200);
    assert_eq!(too_late(c), 1_000 * MS);
    calls.remote.assert_arrived(&[("a", 0), ("b", 5_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_with_no_wait_is_sent_when_there_is_capacity() {
    let calls = Calls::through(&layer("token-bucket 1/s burst 2").max_wait(Duration::ZERO));
    calls.call("a").await;
    calls.call("b").await;
    assert_eq!(too_late(calls.call("c").await), 1_000 * MS);
    calls.remote.assert_arrived(&[("a", 0), ("b", 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_fits_fails_immediately_during_a_pause() {
    let large = layer("token-bucket 9/s burst 9").cost(|head| match head.uri().path() {
        "/large" => 10,
        _ => 9,
    });
    let calls = Calls::through(&large);
    calls.call("a?429&retry-after=5").await;
    let outcome = ended(calls.call("large").await).unwrap_err();
    assert!(
        matches!(outcome, OutboundError::Limit(AcquireError::Never)),
        "{outcome:?}"
    );
}

/// A store that cannot be reached.
#[derive(Debug)]
struct Down;

impl Store for Down {
    async fn decide(&self, _: &tallygate::Request<'_>) -> Result<Decision, StoreError> {
        Err(StoreError::new("down"))
    }

    fn submit(&self, _: &tallygate::Request<'_>) {}

    fn undo(&self, _: &tallygate::Request<'_>, _: &Decision) {}
}

#[tokio::test]
async fn a_store_failure_follows_the_failure_policy() {
    let client = || service_fn(|_: Request<()>| async { Ok::<_, io::Error>(Response::new(())) });
    let open = Limiter::with_store(Down, Quota::per_second(1));
    let closed = open.clone().on_failure(OnFailure::Closed);
    let request = || Request::new(());

    let open = ServiceBuilder::new()
        .layer(OutboundLayer::new(open))
        .service(client());
    assert!(open.oneshot(request()).await.is_ok());
    let closed = ServiceBuilder::new()
        .layer(OutboundLayer::new(closed))
        .service(client());
    let error = closed.oneshot(request()).await.unwrap_err();
    assert!(matches!(
        error,
        OutboundError::Limit(AcquireError::Unavailable)
    ));
}

#[tokio::test]
async fn the_clients_error_passes_through() {
    let client = service_fn(|_: Request<()>| async {
        Err::<Response<()>, _>(io::Error::other("the line is cut"))
    });
    let layer = OutboundLayer::new(Limiter::new(Quota::per_second(9)));
    let client = ServiceBuilder::new().layer(layer).service(client);
    let error = client.oneshot(Request::new(())).await.unwrap_err();
    assert_eq!(error.to_string(), "the call failed: the line is cut");
    assert!(error.source().unwrap().is::<io::Error>());
    assert_eq!(error.into_inner().unwrap().to_string(), "the line is cut");
}

#[tokio::test(start_paused = true)]
async fn a_limit_error_has_a_source_and_shows_no_key() {
    let calls = Calls::through(&layer("token-bucket 1/s").max_wait(Duration::ZERO));
    calls.call("secret-token").await;
    let error = ended(calls.call("secret-token").await).unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(
        shown.starts_with("the call was not sent: a wait of 1s or more is longer than allowed"),
        "{shown}"
    );
    assert!(!shown.contains("secret"), "{shown}");
    assert!(error.source().unwrap().is::<AcquireError>());
    assert!(error.into_inner().is_none());
}

/// Many tower layers use boxed errors, which do not implement `Error`.
#[tokio::test]
async fn boxed_errors_are_not_boxed_twice() {
    type Boxed = Box<dyn Error + Send + Sync>;
    let client = service_fn(|_: Request<()>| async {
        Err::<Response<()>, Boxed>(Box::new(io::Error::other("cut")))
    });
    let layer = OutboundLayer::new(Limiter::new(Quota::per_second(1))).max_wait(Duration::ZERO);
    let client = ServiceBuilder::new()
        .map_err(OutboundError::<Boxed>::into_boxed)
        .layer(layer)
        .service(client);
    let error = client.clone().oneshot(Request::new(())).await.unwrap_err();
    assert!(error.is::<io::Error>());
    let error = client.oneshot(Request::new(())).await.unwrap_err();
    assert!(error.is::<AcquireError>());
}
