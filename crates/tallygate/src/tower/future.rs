//! The response future: waits for the decision if necessary, then for the inner service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use ::http::{Request, Response};
use bytes::Bytes;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{FromBytes, RateLimitLayer};
use crate::http::{Enforcement, Head, Plan, Policy, enforce};
use crate::store::Store;

pin_project! {
    /// The response future of [`RateLimit`](super::RateLimit).
    pub struct ResponseFuture<I, A, P, S>
    where
        I: Service<Request<A>>,
    {
        #[pin]
        state: State<I, A, P, S>,
        // Outside of `State`, so that building the enum does not move the inner future again.
        after: Option<Box<AfterResponse<P, S>>>,
    }
}

type EnforceFuture<A> = Pin<Box<dyn Future<Output = (Enforcement, Request<A>)> + Send>>;

pin_project! {
    #[project = StateProjection]
    enum State<I, A, P, S>
    where
        I: Service<Request<A>>,
    {
        /// Waits for the store or for a shaping delay.
        Pending {
            enforce: EnforceFuture<A>,
            ready: I,
            layer: Option<RateLimitLayer<P, S>>,
            started: Option<Instant>,
        },
        /// Waits for the inner service.
        Calling { #[pin] future: I::Future },
        Refused { response: Option<Response<Bytes>> },
    }
}

/// What is needed once the inner service has responded.
pub(super) struct AfterResponse<P, S> {
    enforcement: Enforcement,
    layer: RateLimitLayer<P, S>,
}

impl<P: Policy, S: Store> AfterResponse<P, S> {
    /// `None` if there is nothing to do.
    #[inline]
    pub(super) fn new(enforcement: Enforcement, layer: &RateLimitLayer<P, S>) -> Option<Box<Self>> {
        enforcement.uses_response().then(|| {
            Box::new(AfterResponse {
                enforcement,
                layer: layer.clone(),
            })
        })
    }

    fn apply<B>(&self, response: &mut Response<B>) {
        let AfterResponse { enforcement, layer } = self;
        let status = response.status();
        enforcement.on_response(layer.engine(), status, response.headers());
        enforcement.merge_headers(status, response.headers_mut());
    }
}

impl<I, A, P, S> ResponseFuture<I, A, P, S>
where
    I: Service<Request<A>>,
    A: Send + 'static,
    P: Policy,
    S: Store,
{
    pub(super) fn refused(response: Response<Bytes>) -> Self {
        let response = Some(response);
        ResponseFuture {
            state: State::Refused { response },
            after: None,
        }
    }

    #[inline]
    pub(super) fn calling(future: I::Future, after: Option<Box<AfterResponse<P, S>>>) -> Self {
        ResponseFuture {
            state: State::Calling { future },
            after,
        }
    }

    pub(super) fn pending(
        ready: I,
        request: Request<A>,
        plan: Plan,
        layer: RateLimitLayer<P, S>,
        started: Option<Instant>,
    ) -> Self {
        let engine = layer.engine().clone();
        let guard = layer.pending_guard(&plan);
        let enforce = Box::pin(async move {
            let enforcement = enforce(&engine, plan).await;
            drop(guard);
            (enforcement, request)
        });
        let layer = Some(layer);
        ResponseFuture {
            state: State::Pending {
                enforce,
                ready,
                layer,
                started,
            },
            after: None,
        }
    }
}

impl<I, A, B, P, S> Future for ResponseFuture<I, A, P, S>
where
    I: Service<Request<A>, Response = Response<B>>,
    B: FromBytes,
    P: Policy,
    S: Store,
{
    type Output = Result<Response<B>, I::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut state = this.state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Pending {
                    enforce,
                    ready,
                    layer,
                    started,
                } => {
                    let (enforcement, request) = ready!(enforce.as_mut().poll(context));
                    let layer = layer.take().expect("not polled after completion");
                    match layer.refuse(&enforcement, &Head::from(&request), *started) {
                        Some(response) => State::Refused {
                            response: Some(response),
                        },
                        None => {
                            *this.after = AfterResponse::new(enforcement, &layer);
                            State::Calling {
                                future: ready.call(request),
                            }
                        }
                    }
                }
                StateProjection::Calling { future } => {
                    let mut polled = future.poll(context);
                    if let Poll::Ready(Ok(response)) = &mut polled
                        && let Some(after) = this.after.take()
                    {
                        after.apply(response);
                    }
                    return polled;
                }
                StateProjection::Refused { response } => {
                    let response = response.take().expect("not polled after completion");
                    return Poll::Ready(Ok(response.map(B::from_bytes)));
                }
            };
            state.set(next);
        }
    }
}

impl<I: Service<Request<A>>, A, P, S> fmt::Debug for ResponseFuture<I, A, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
