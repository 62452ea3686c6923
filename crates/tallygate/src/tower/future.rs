//! The response future: waits for the decision if necessary, then for the inner service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use ::http::header::CONTENT_LENGTH;
use ::http::{Request, Response};
use bytes::Bytes;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body_watch::{BodyWatch, Watcher};
use super::service::prepare;
use super::{FromBytes, RateLimitLayer};
use crate::http::{Enforcement, Head, Plan, Policy, Settlement, enforce};
use crate::store::Store;

pin_project! {
    /// The response future of [`RateLimit`](super::RateLimit).
    pub struct ResponseFuture<I, A, P, S>
    where
        I: Service<Request<A>>,
        S: Store,
    {
        #[pin]
        state: State<I, A, P, S>,
        // Outside of `State`, so that building the enum does not move the inner future again.
        after: Option<Box<AfterResponse<P, S>>>,
    }
}

type EnforceFuture<A> = Pin<Box<dyn Future<Output = Enforced<A>> + Send>>;

/// A decided request, and when its decision began.
struct Enforced<A> {
    enforcement: Enforcement,
    request: Request<A>,
    started: Option<Instant>,
}

pin_project! {
    #[project = StateProjection]
    enum State<I, A, P, S>
    where
        I: Service<Request<A>>,
    {
        /// Waits for the request's body, for the store or for a shaping delay.
        Pending {
            enforce: EnforceFuture<A>,
            ready: I,
            layer: Option<RateLimitLayer<P, S>>,
        },
        /// Waits for the inner service.
        Calling { #[pin] future: I::Future },
        Refused { response: Option<Response<Bytes>> },
    }
}

/// What is needed once the inner service has responded.
pub(super) struct AfterResponse<P, S: Store> {
    enforcement: Enforcement,
    layer: RateLimitLayer<P, S>,
    /// Whether there may be an actual cost to be settled.
    unsettled: bool,
}

impl<P: Policy, S: Store> AfterResponse<P, S> {
    /// `None` if there is nothing to do.
    #[inline]
    pub(super) fn new(enforcement: Enforcement, layer: &RateLimitLayer<P, S>) -> Option<Box<Self>> {
        let needed = enforcement.uses_response() || enforcement.holds().is_some();
        needed.then(|| {
            Box::new(AfterResponse {
                unsettled: enforcement.settles(),
                enforcement,
                layer: layer.clone(),
            })
        })
    }

    fn apply<B: FromBytes>(mut self: Box<Self>, mut response: Response<B>) -> Response<B> {
        let AfterResponse {
            enforcement, layer, ..
        } = &*self;
        let status = response.status();
        enforcement.on_response(layer.engine(), status, response.headers());
        let settlement = match self.unsettled {
            true => Some(enforcement.settlement(status, response.headers())),
            false => None,
        };
        enforcement.merge_headers(status, response.headers_mut());
        let settlement = match settlement {
            Some(settlement) if settlement.needs_body() => Some(settlement),
            Some(settlement) => {
                self.settle(settlement);
                None
            }
            None => None,
        };
        if settlement.is_none() && self.enforcement.holds().is_none() {
            return response;
        }
        let length = response.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let ending = Ending {
            settlement,
            after: self,
        };
        let watch = BodyWatch::new(Box::new(ending), length);
        response.map(|body| body.watched(watch))
    }

    fn settle(&mut self, settlement: Settlement) {
        self.unsettled = false;
        let engine = self.layer.engine();
        self.enforcement.settle(engine, Some(settlement));
    }
}

impl<P, S: Store> Drop for AfterResponse<P, S> {
    /// Forgets the reservation of a request whose response broke off: the estimate stays charged.
    fn drop(&mut self) {
        if self.unsettled {
            self.enforcement.settle(self.layer.shared_engine(), None);
        }
    }
}

/// Waits for the end of a response: for the actual cost, and to release what the request holds.
struct Ending<P, S: Store> {
    settlement: Option<Settlement>,
    after: Box<AfterResponse<P, S>>,
}

impl<P: Policy, S: Store> Watcher for Ending<P, S> {
    fn data(&mut self, data: &[u8]) {
        if let Some(settlement) = &mut self.settlement {
            settlement.read(data);
        }
    }

    fn end(mut self: Box<Self>) {
        if let Some(settlement) = self.settlement.take() {
            self.after.settle(settlement);
        }
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
            Enforced {
                enforcement,
                request,
                started,
            }
        });
        ResponseFuture::enforcing(ready, enforce, layer)
    }

    /// Waits for the start of the request's body before it is decided.
    pub(super) fn reading(
        ready: I,
        request: impl Future<Output = Request<A>> + Send + 'static,
        layer: RateLimitLayer<P, S>,
    ) -> Self {
        let own = layer.clone();
        let enforce = Box::pin(async move {
            let request = request.await;
            let started = own.start_timer();
            let plan = own.policy().plan(&Head::from(&request));
            let guard = own.pending_guard(&plan);
            let enforcement = enforce(own.engine(), plan).await;
            drop(guard);
            Enforced {
                enforcement,
                request,
                started,
            }
        });
        ResponseFuture::enforcing(ready, enforce, layer)
    }

    fn enforcing(ready: I, enforce: EnforceFuture<A>, layer: RateLimitLayer<P, S>) -> Self {
        let layer = Some(layer);
        ResponseFuture {
            state: State::Pending {
                enforce,
                ready,
                layer,
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
                } => {
                    let Enforced {
                        enforcement,
                        mut request,
                        started,
                    } = ready!(enforce.as_mut().poll(context));
                    let layer = layer.take().expect("not polled after completion");
                    match layer.refuse(&enforcement, &Head::from(&request), started) {
                        Some(response) => State::Refused {
                            response: Some(response),
                        },
                        None => {
                            prepare(&enforcement, &mut request);
                            *this.after = AfterResponse::new(enforcement, &layer);
                            State::Calling {
                                future: ready.call(request),
                            }
                        }
                    }
                }
                StateProjection::Calling { future } => {
                    let polled = ready!(future.poll(context));
                    return Poll::Ready(match this.after.take() {
                        None => polled,
                        Some(after) => polled.map(|response| after.apply(response)),
                    });
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

impl<I: Service<Request<A>>, A, P, S: Store> fmt::Debug for ResponseFuture<I, A, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
