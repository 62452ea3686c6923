//! The tower contract: the ready service makes the call, futures are `Send`, and everything can be
//! named, cloned and boxed.

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

/// Becomes ready on the second poll; a clone is not ready.
#[derive(Debug, Default)]
struct Shy {
    polls: u32,
    calls: Arc<AtomicU32>,
}

impl Clone for Shy {
    fn clone(&self) -> Self {
        Shy {
            polls: 0,
            calls: Arc::clone(&self.calls),
        }
    }
}

impl Service<Request<()>> for Shy {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.polls += 1;
        if self.polls < 2 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(self.polls >= 2, "called without being ready");
        self.polls = 0;
        self.calls.fetch_add(1, Ordering::Relaxed);
        ready(Ok(Response::new(())))
    }
}

fn layer() -> OutboundLayer {
    OutboundLayer::new(Limiter::new(Quota::per_second(1_000)))
}

#[tokio::test]
async fn the_service_that_is_ready_makes_the_call() {
    let shy = Shy::default();
    let calls = Arc::clone(&shy.calls);
    let mut client = layer().layer(shy);
    for _ in 0..5 {
        let ready = client.ready().await.unwrap();
        ready.call(Request::new(())).await.unwrap();
    }
    // Also for concurrent calls.
    let first = client.ready().await.unwrap().call(Request::new(()));
    let second = client.ready().await.unwrap().call(Request::new(()));
    second.await.unwrap();
    first.await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 7);
}

/// Fails in `poll_ready`.
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
async fn an_error_of_poll_ready_is_the_clients() {
    let mut client = layer().layer(Broken);
    let error = client.ready().await.map(|_| ()).unwrap_err();
    assert_eq!(error.into_inner().unwrap().to_string(), "broken");
}

#[tokio::test]
async fn services_and_futures_are_send() {
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    fn sent<T: Send>(call: T) -> T {
        call
    }
    let layer = layer().by_host();
    shared(&layer);
    let mut client: OutboundService<Shy> = layer.layer(Shy::default());
    shared(&client);
    let ready = client.ready().await.unwrap();
    let call: ResponseFuture<(), Infallible> = sent(ready.call(Request::new(())));
    assert!(tokio::spawn(call).await.unwrap().is_ok());
}

#[tokio::test]
async fn the_service_composes_with_tower() {
    let client = ServiceBuilder::new()
        .concurrency_limit(2)
        .layer(layer())
        .service(Shy::default());
    let boxed: BoxCloneService<Request<()>, Response<()>, OutboundError<Infallible>> =
        BoxCloneService::new(client);
    for _ in 0..4 {
        assert!(boxed.clone().oneshot(Request::new(())).await.is_ok());
    }
}

#[test]
fn the_client_can_be_taken_back() {
    let mut client = layer().layer(Shy::default());
    client.get_mut().polls = 9;
    assert_eq!(client.get_ref().polls, 9);
    assert_eq!(client.into_inner().polls, 9);
}

#[test]
fn debug_output_shows_settings_and_no_key() {
    let layer = layer().max_wait(std::time::Duration::from_secs(30));
    let shown = format!("{layer:?} {:?}", layer.layer(Shy::default()));
    assert!(shown.contains("max_wait: Some(30s)"), "{shown}");
    assert!(shown.contains("max_pause: 3600s"), "{shown}");
}
