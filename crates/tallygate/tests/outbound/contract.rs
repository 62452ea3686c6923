//! What tower asks of a layer: the service that is ready makes the call, futures may move between
//! threads, and everything can be named, cloned and boxed.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response};
use tallygate::outbound::{OutboundError, OutboundLayer, OutboundService, ResponseFuture};
use tallygate::{Limiter, Quota};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

/// Ready only after a second look, and only itself: a clone has to be made ready anew.
#[derive(Debug, Default)]
struct Shy {
    looks: u32,
    calls: Arc<AtomicU32>,
}

impl Clone for Shy {
    fn clone(&self) -> Self {
        Shy {
            looks: 0,
            calls: Arc::clone(&self.calls),
        }
    }
}

impl Service<Request<()>> for Shy {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.looks += 1;
        if self.looks < 2 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(self.looks >= 2, "called without being ready");
        self.looks = 0;
        self.calls.fetch_add(1, Ordering::Relaxed);
        ready(Ok(Response::new(())))
    }
}

fn gate() -> OutboundLayer {
    OutboundLayer::new(Limiter::new(Quota::per_second(1_000)))
}

#[tokio::test]
async fn the_service_that_is_ready_makes_the_call() {
    let shy = Shy::default();
    let calls = Arc::clone(&shy.calls);
    let mut client = gate().layer(shy);
    for _ in 0..5 {
        let ready = client.ready().await.unwrap();
        ready.call(Request::new(())).await.unwrap();
    }
    // Calls that are under way at once, too.
    let first = client.ready().await.unwrap().call(Request::new(()));
    let second = client.ready().await.unwrap().call(Request::new(()));
    second.await.unwrap();
    first.await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 7);
}

/// Never ready: says so with an error.
#[derive(Clone)]
struct Broken;

impl Service<Request<()>> for Broken {
    type Response = Response<()>;
    type Error = std::io::Error;
    type Future = Ready<Result<Response<()>, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Err(std::io::Error::other("broken")))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        unreachable!("it is never ready")
    }
}

#[tokio::test]
async fn a_client_that_cannot_be_made_ready_says_so_in_its_own_words() {
    let mut client = gate().layer(Broken);
    let error = client.ready().await.map(|_| ()).unwrap_err();
    assert_eq!(error.into_inner().unwrap().to_string(), "broken");
}

#[tokio::test]
async fn services_and_calls_may_move_between_threads() {
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    fn sent<T: Send>(call: T) -> T {
        call
    }
    let gate = gate().by_host();
    shared(&gate);
    let mut client: OutboundService<Shy> = gate.layer(Shy::default());
    shared(&client);
    let ready = client.ready().await.unwrap();
    let call: ResponseFuture<(), Infallible> = sent(ready.call(Request::new(())));
    assert!(tokio::spawn(call).await.unwrap().is_ok());
}

#[tokio::test]
async fn a_client_behind_the_gate_is_one_among_tower_services() {
    let client = ServiceBuilder::new()
        .concurrency_limit(2)
        .layer(gate())
        .service(Shy::default());
    let boxed: BoxCloneService<Request<()>, Response<()>, OutboundError<Infallible>> =
        BoxCloneService::new(client);
    for _ in 0..4 {
        assert!(boxed.clone().oneshot(Request::new(())).await.is_ok());
    }
}

#[test]
fn the_client_can_be_had_back() {
    let mut client = gate().layer(Shy::default());
    client.get_mut().looks = 9;
    assert_eq!(client.get_ref().looks, 9);
    assert_eq!(client.into_inner().looks, 9);
}

#[test]
fn what_it_prints_says_how_it_is_set_and_no_key() {
    let gate = gate().max_wait(std::time::Duration::from_secs(30));
    let shown = format!("{gate:?} {:?}", gate.layer(Shy::default()));
    assert!(shown.contains("at_most: Some(30s)"), "{shown}");
    assert!(shown.contains("believed: 3600s"), "{shown}");
}
