//! The service that [`RateLimitLayer`] wraps around another one.

use std::fmt;
use std::mem;
use std::task::{Context, Poll};

use ::http::header::{ACCEPT_ENCODING, HeaderValue};
use ::http::{Request, Response};
use tower_service::Service;

use super::future::AfterResponse;
use super::read_ahead::{ReadAhead, read_ahead};
use super::{FromBytes, RateLimitLayer, ResponseFuture};
use crate::http::{Enforcement, Head, Policy, TryEnforce, try_enforce};
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
    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let paths = self.layer.policy().json_paths(&Head::from(&request));
        if !paths.is_empty() {
            match read_ahead(request, paths) {
                ReadAhead::Reading(read) => {
                    let ready = self.take_ready();
                    return ResponseFuture::reading(ready, read, self.layer.clone());
                }
                ReadAhead::Unread(unread) => request = *unread,
            }
        }
        let started = self.layer.start_timer();
        let head = Head::from(&request);
        let plan = self.layer.policy().plan(&head);
        match try_enforce(self.layer.engine(), plan) {
            TryEnforce::Done(enforcement) => {
                match self.layer.refuse(&enforcement, &head, started) {
                    Some(response) => ResponseFuture::refused(response),
                    None => {
                        prepare(&enforcement, &mut request);
                        let after = AfterResponse::new(enforcement, &self.layer);
                        ResponseFuture::calling(self.inner.call(request), after)
                    }
                }
            }
            TryEnforce::Pending(plan) => {
                let ready = self.take_ready();
                ResponseFuture::pending(ready, request, plan, self.layer.clone(), started)
            }
        }
    }
}

impl<I: Clone, P, S> RateLimit<I, P, S> {
    /// `poll_ready` was called on `inner`: the clone stays behind and has to be polled again.
    fn take_ready(&mut self) -> I {
        let clone = self.inner.clone();
        mem::replace(&mut self.inner, clone)
    }
}

/// Changes an admitted request so that its response can be read, and the service can keep what the
/// request holds.
#[inline]
pub(super) fn prepare<A>(enforcement: &Enforcement, request: &mut Request<A>) {
    if enforcement.needs_identity() {
        let identity = HeaderValue::from_static("identity");
        request.headers_mut().insert(ACCEPT_ENCODING, identity);
    }
    if let Some(holds) = enforcement.holds() {
        request.extensions_mut().insert(holds.clone());
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
