//! The tower service and its future: waits for its turn, calls the client, reads the response's
//! hints.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use ::http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::{OutboundError, OutboundLayer, requested_pause};
use crate::http::Head;
use crate::store::{MemoryStore, Store};

/// A client whose calls wait for their turn. Built by [`OutboundLayer`].
///
/// Clones share the queues and the limiter.
#[derive(Debug)]
pub struct OutboundService<C, S = MemoryStore> {
    inner: C,
    layer: Arc<OutboundLayer<S>>,
}

impl<C: Clone, S> Clone for OutboundService<C, S> {
    fn clone(&self) -> Self {
        OutboundService {
            inner: self.inner.clone(),
            layer: Arc::clone(&self.layer),
        }
    }
}

impl<C, S> OutboundService<C, S> {
    /// The client.
    pub fn get_ref(&self) -> &C {
        &self.inner
    }

    /// The client, mutably.
    pub fn get_mut(&mut self) -> &mut C {
        &mut self.inner
    }

    /// The client, without the layer.
    pub fn into_inner(self) -> C {
        self.inner
    }
}

impl<C, S> Layer<C> for OutboundLayer<S> {
    type Service = OutboundService<C, S>;

    fn layer(&self, inner: C) -> Self::Service {
        OutboundService {
            inner,
            layer: Arc::new(self.clone()),
        }
    }
}

impl<C, S, B, R> Service<Request<B>> for OutboundService<C, S>
where
    C: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    C::Future: Send,
    S: Store,
    B: Send + 'static,
{
    type Response = Response<R>;
    type Error = OutboundError<C::Error>;
    type Future = ResponseFuture<R, C::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(OutboundError::Inner)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone may not be ready: the original makes the call.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let layer = Arc::clone(&self.layer);
        let head = Head::from(&request);
        let (key, cost) = ((layer.key)(head).into_owned(), (layer.cost)(head));
        ResponseFuture(Box::pin(async move {
            let turn = layer.wait_turn(&key, cost).await;
            let queue = turn.map_err(OutboundError::Limit)?;
            let response = inner.call(request).await.map_err(OutboundError::Inner)?;
            let (status, headers) = (response.status(), response.headers());
            if let Some(wait) = requested_pause(status, headers, SystemTime::now()) {
                layer.pause(queue, wait);
            }
            Ok(response)
        }))
    }
}

/// Waits for its turn, then for the response. Dropping it leaves the queue.
pub struct ResponseFuture<R, E>(Outcome<R, E>);

type Outcome<R, E> =
    Pin<Box<dyn Future<Output = Result<Response<R>, OutboundError<E>>> + Send + 'static>>;

impl<R, E> Future for ResponseFuture<R, E> {
    type Output = Result<Response<R>, OutboundError<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<R, E> fmt::Debug for ResponseFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
