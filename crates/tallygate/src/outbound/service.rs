//! A client behind the gate: waits, calls, listens. Knows tower's contract; leaves order and
//! pauses to the lines, and what a response says to its reader.

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

use super::{Outbound, OutboundError, asked_to_wait};
use crate::http::Head;
use crate::store::{MemoryStore, Store};

/// A client whose calls wait for their turn. Made by [`Outbound`].
///
/// Clones share the lines and the limiter.
#[derive(Debug)]
pub struct OutboundService<C, S = MemoryStore> {
    inner: C,
    gate: Arc<Outbound<S>>,
}

impl<C: Clone, S> Clone for OutboundService<C, S> {
    fn clone(&self) -> Self {
        OutboundService {
            inner: self.inner.clone(),
            gate: Arc::clone(&self.gate),
        }
    }
}

impl<C, S> OutboundService<C, S> {
    /// The client.
    pub fn get_ref(&self) -> &C {
        &self.inner
    }

    /// The client, to change it.
    pub fn get_mut(&mut self) -> &mut C {
        &mut self.inner
    }

    /// The client, without the gate.
    pub fn into_inner(self) -> C {
        self.inner
    }
}

impl<C, S> Layer<C> for Outbound<S> {
    type Service = OutboundService<C, S>;

    fn layer(&self, inner: C) -> Self::Service {
        OutboundService {
            inner,
            gate: Arc::new(self.clone()),
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
    type Future = Call<R, C::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(OutboundError::Inner)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready makes the call; its clone may not be.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let gate = Arc::clone(&self.gate);
        let head = Head::from(&request);
        let (key, cost) = ((gate.by)(head).into_owned(), (gate.cost)(head));
        Call(Box::pin(async move {
            let passed = gate.pass(&key, cost).await;
            let line = passed.map_err(OutboundError::Limit)?;
            let response = inner.call(request).await.map_err(OutboundError::Inner)?;
            let wait = asked_to_wait(response.status(), response.headers(), SystemTime::now());
            if let Some(wait) = wait {
                gate.pause(line, wait);
            }
            Ok(response)
        }))
    }
}

/// A call under way: waits for its turn, then for the response.
///
/// Dropped while it waits, its place passes to the next one.
pub struct Call<R, E>(Outcome<R, E>);

type Outcome<R, E> =
    Pin<Box<dyn Future<Output = Result<Response<R>, OutboundError<E>>> + Send + 'static>>;

impl<R, E> Future for Call<R, E> {
    type Output = Result<Response<R>, OutboundError<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<R, E> fmt::Debug for Call<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}
