//! The service that [`RateLimitLayer`] wraps around another one.

use std::fmt;
use std::mem;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use tower_service::Service;

use super::future::AfterResponse;
use super::{FromBytes, RateLimitLayer, ResponseFuture};
use crate::http::{Head, Policy, TryEnforce, try_enforce};
use crate::rules::Rules;
use crate::store::{MemoryStore, Store};

/// A service whose requests are limited by a [`RateLimitLayer`].
pub struct RateLimit<I, P = Rules, S = MemoryStore> {
    inner: I,
    layer: RateLimitLayer<P, S>,
}

impl<I, P, S> RateLimit<I, P, S> {
    pub(super) fn new(inner: I, layer: RateLimitLayer<P, S>) -> Self {
        RateLimit { inner, layer }
    }
}

impl<I, A, B, P, S> Service<Request<A>> for RateLimit<I, P, S>
where
    I: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    I::Future: Send + 'static,
    A: Send + 'static,
    B: FromBytes,
    P: Policy,
    S: Store,
{
    type Response = Response<B>;
    type Error = I::Error;
    type Future = ResponseFuture<I, A, P, S>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(context)
    }

    // Inlined into a stack of layers, its future would be copied once more.
    #[inline(never)]
    fn call(&mut self, request: Request<A>) -> Self::Future {
        let started = self.layer.start_timer();
        let head = Head::from(&request);
        let plan = self.layer.policy().plan(&head);
        match try_enforce(self.layer.engine(), plan) {
            TryEnforce::Done(enforcement) => {
                match self.layer.refuse(&enforcement, &head, started) {
                    Some(response) => ResponseFuture::refused(response),
                    None => {
                        let after = AfterResponse::new(enforcement, &self.layer);
                        ResponseFuture::calling(self.inner.call(request), after)
                    }
                }
            }
            TryEnforce::Pending(plan) => {
                // `poll_ready` was called on `inner`: the clone stays behind and has to be polled again.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::pending(ready, request, plan, self.layer.clone(), started)
            }
        }
    }
}

impl<I: Clone, P, S> Clone for RateLimit<I, P, S> {
    fn clone(&self) -> Self {
        RateLimit {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<I: fmt::Debug, P, S> fmt::Debug for RateLimit<I, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
