//! A service behind a layer, called without a socket.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tallygate::http::{Peer, Policy};
use tallygate::tower::RateLimitLayer;
use tallygate::{ManualClock, MemoryStore, Store};
use tower::{Layer, Service, service_fn};

pub(crate) type Asked = Request<Full<Bytes>>;

/// A store whose time moves when told to.
pub(crate) fn manual() -> (Arc<ManualClock>, MemoryStore<Arc<ManualClock>>) {
    let clock = Arc::new(ManualClock::at(1_000_000_000_000_000));
    let store = MemoryStore::builder().clock(Arc::clone(&clock)).build();
    (clock, store)
}

/// A request from an address.
pub(crate) fn from(ip: &str) -> Asked {
    let mut request = Request::new(Full::default());
    let peer = SocketAddr::new(ip.parse().unwrap(), 40_000);
    request.extensions_mut().insert(Peer(peer));
    request
}

/// The same request with a header more.
pub(crate) fn with(mut request: Asked, name: &'static str, value: impl AsRef<[u8]>) -> Asked {
    let value = http::HeaderValue::from_bytes(value.as_ref()).unwrap();
    request.headers_mut().append(name, value);
    request
}

/// Calls a service that answers 200 through a layer.
pub(crate) async fn call<P: Policy, S: Store>(
    layer: &RateLimitLayer<P, S>,
    request: Asked,
) -> Response<Bytes> {
    answered(layer, request, StatusCode::OK).await
}

/// Calls a service that answers with a status through a layer.
pub(crate) async fn answered<P: Policy, S: Store>(
    layer: &RateLimitLayer<P, S>,
    request: Asked,
    status: StatusCode,
) -> Response<Bytes> {
    let inner = service_fn(move |_: Asked| async move {
        let mut response = Response::new(Full::new(Bytes::from_static(b"hello")));
        *response.status_mut() = status;
        Ok::<_, Infallible>(response)
    });
    let response = layer.layer(inner).call(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Response::from_parts(parts, body)
}

/// A header of an answer as text.
pub(crate) fn header<'r>(response: &'r Response<Bytes>, name: &str) -> Option<&'r str> {
    let mut values = response.headers().get_all(name).iter();
    let value = values.next()?.to_str().unwrap();
    assert!(values.next().is_none(), "{name} is there twice");
    Some(value)
}
