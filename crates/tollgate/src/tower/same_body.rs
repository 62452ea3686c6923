//! A gate whose answers keep the service's own kind of body. Knows nothing of how they come about.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::http::{Request, Response};
use bytes::Bytes;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{Gate, GateBody, Gated};

pin_project! {
    /// A gate, a service behind one, or its answer to come, that keeps the service's own kind of
    /// body: see [`Gate::same_body`].
    #[derive(Clone, Debug)]
    pub struct SameBody<T> {
        #[pin]
        inner: T,
    }
}

impl<T> SameBody<T> {
    pub(super) fn new(inner: T) -> Self {
        SameBody { inner }
    }
}

impl<I, P, S> Layer<I> for SameBody<Gate<P, S>> {
    type Service = SameBody<Gated<I, P, S>>;

    fn layer(&self, inner: I) -> Self::Service {
        SameBody::new(self.inner.layer(inner))
    }
}

impl<G, A, B> Service<Request<A>> for SameBody<G>
where
    G: Service<Request<A>, Response = Response<GateBody<B>>>,
    B: From<Bytes>,
{
    type Response = Response<B>;
    type Error = G::Error;
    type Future = SameBody<G::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), G::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        SameBody::new(self.inner.call(request))
    }
}

impl<F, B, E> Future for SameBody<F>
where
    F: Future<Output = Result<Response<GateBody<B>>, E>>,
    B: From<Bytes>,
{
    type Output = Result<Response<B>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(self.project().inner.poll(context))?;
        Poll::Ready(Ok(response.map(GateBody::into_service)))
    }
}
