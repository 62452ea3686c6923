//! Calls a service behind a layer, without a socket.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tallygate::http::{Outcome, Peer, Policy};
use tallygate::tower::RateLimitLayer;
use tallygate::{ManualClock, MemoryStore, Store};
use tower::{Layer, Service, service_fn};

pub(crate) type TestRequest = Request<Full<Bytes>>;

/// A store on a manual_store clock.
pub(crate) fn manual_store() -> (Arc<ManualClock>, MemoryStore<Arc<ManualClock>>) {
    let clock = Arc::new(ManualClock::at(1_000_000_000_000_000));
    let store = MemoryStore::builder().clock(Arc::clone(&clock)).build();
    (clock, store)
}

/// A request from an address.
pub(crate) fn from(ip: &str) -> TestRequest {
    let mut request = Request::new(Full::default());
    let peer = SocketAddr::new(ip.parse().unwrap(), 40_000);
    request.extensions_mut().insert(Peer(peer));
    request
}

/// Appends a header.
pub(crate) fn with(
    mut request: TestRequest,
    name: &'static str,
    value: impl AsRef<[u8]>,
) -> TestRequest {
    let value = http::HeaderValue::from_bytes(value.as_ref()).unwrap();
    request.headers_mut().append(name, value);
    request
}

/// Calls a service that responds with 200 through a layer.
pub(crate) async fn call<P: Policy, S: Store>(
    layer: &RateLimitLayer<P, S>,
    request: TestRequest,
) -> Response<Bytes> {
    call_with_status(layer, request, StatusCode::OK).await
}

/// Calls a service that responds with this status through a layer.
pub(crate) async fn call_with_status<P: Policy, S: Store>(
    layer: &RateLimitLayer<P, S>,
    request: TestRequest,
    status: StatusCode,
) -> Response<Bytes> {
    let inner = service_fn(move |_: TestRequest| async move {
        let mut response = Response::new(Full::new(Bytes::from_static(b"hello")));
        *response.status_mut() = status;
        Ok::<_, Infallible>(response)
    });
    let response = layer.layer(inner).call(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Response::from_parts(parts, body)
}

/// The outcomes of decisions, with the rule of each.
pub(crate) type Outcomes = Arc<Mutex<Vec<(String, Outcome)>>>;

/// Records the outcomes of all decisions of a layer.
pub(crate) fn record_outcomes<P: Policy, S: Store>(
    layer: RateLimitLayer<P, S>,
) -> (RateLimitLayer<P, S>, Outcomes) {
    let outcomes = Outcomes::default();
    let recorded = Arc::clone(&outcomes);
    let layer = layer.on_decision(move |enforcement, _| {
        let by_rule = enforcement.outcomes();
        let by_rule = by_rule.map(|(rule, outcome)| (rule.to_owned(), outcome));
        recorded.lock().unwrap().extend(by_rule);
    });
    (layer, outcomes)
}

/// Checks the recorded outcomes and their order.
#[track_caller]
pub(crate) fn assert_outcomes(recorded: &Outcomes, expected: &[(&str, Outcome)]) {
    let recorded = recorded.lock().unwrap();
    let recorded: Vec<_> = recorded.iter().map(|(rule, o)| (&**rule, *o)).collect();
    assert_eq!(recorded, expected);
}

/// The only value of a response header.
pub(crate) fn header<'r>(response: &'r Response<Bytes>, name: &str) -> Option<&'r str> {
    let mut values = response.headers().get_all(name).iter();
    let value = values.next()?.to_str().unwrap();
    assert!(values.next().is_none(), "duplicate header {name}");
    Some(value)
}
