//! One request on its way through a gate: decided, called, answered. Where a store has to be waited
//! for, the decision is a future of its own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use ::http::{Request, Response};
use bytes::Bytes;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{FromText, Gate};
use crate::http::{Head, Passage, Plan, Policy, Told};
use crate::store::Store;

pin_project! {
    /// The answer to come of a service behind a [`Gate`].
    pub struct Passing<I, A, P, S>
    where
        I: Service<Request<A>>,
    {
        #[pin]
        step: Step<I, A, P, S>,
        // Beside the service's future, which would be copied once more to lie beside it in a step.
        passed: Option<Passed<P, S>>,
    }
}

type Decided<A> = Pin<Box<dyn Future<Output = (Passage, Request<A>)> + Send>>;

pin_project! {
    #[project = StepProjection]
    enum Step<I, A, P, S>
    where
        I: Service<Request<A>>,
    {
        /// The store is asked, or a delay sat out.
        Deciding {
            decided: Decided<A>,
            ready: I,
            gate: Option<Gate<P, S>>,
            began: Option<Instant>,
        },
        /// The service works.
        Calling { #[pin] called: I::Future },
        /// The gate has answered.
        Refused { response: Option<Response<Bytes>> },
    }
}

/// What is left to do when the service has answered.
// Small: it is moved with every request.
pub(super) enum Passed<P, S> {
    /// To tell of one rule.
    Told(Told),
    /// To tell of all rules, and to give back what does not count.
    Whole(Box<(Passage, Gate<P, S>)>),
}

impl<P: Policy, S: Store> Passed<P, S> {
    pub(super) fn of(passage: Passage, gate: &Gate<P, S>) -> Option<Self> {
        let concerns = passage.concerns_answer();
        concerns.then(|| Passed::Whole(Box::new((passage, gate.clone()))))
    }

    fn answered<B>(self, response: &mut Response<B>) {
        let status = response.status();
        match self {
            Passed::Told(told) => told.tell_through(status, response.headers_mut()),
            Passed::Whole(whole) => {
                let (passage, gate) = *whole;
                passage.answered(gate.limiter(), status, response.headers());
                passage.tell_through(status, response.headers_mut());
            }
        }
    }
}

impl<I, A, P, S> Passing<I, A, P, S>
where
    I: Service<Request<A>>,
    A: Send + 'static,
    P: Policy,
    S: Store,
{
    pub(super) fn refused(response: Response<Bytes>) -> Self {
        let response = Some(response);
        Passing {
            step: Step::Refused { response },
            passed: None,
        }
    }

    #[inline]
    pub(super) fn calling(called: I::Future, passed: Option<Passed<P, S>>) -> Self {
        Passing {
            step: Step::Calling { called },
            passed,
        }
    }

    pub(super) fn waiting(
        ready: I,
        request: Request<A>,
        plan: Plan,
        gate: Gate<P, S>,
        began: Option<Instant>,
    ) -> Self {
        let limiter = gate.limiter().clone();
        let held = gate.waiting(&plan);
        let decided = Box::pin(async move {
            let passage = Passage::of(&limiter, plan).await;
            drop(held);
            (passage, request)
        });
        let gate = Some(gate);
        Passing {
            step: Step::Deciding {
                decided,
                ready,
                gate,
                began,
            },
            passed: None,
        }
    }
}

impl<I, A, B, P, S> Future for Passing<I, A, P, S>
where
    I: Service<Request<A>, Response = Response<B>>,
    B: FromText,
    P: Policy,
    S: Store,
{
    type Output = Result<Response<B>, I::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut step = this.step;
        loop {
            let next = match step.as_mut().project() {
                StepProjection::Deciding {
                    decided,
                    ready,
                    gate,
                    began,
                } => {
                    let (passage, request) = ready!(decided.as_mut().poll(context));
                    let gate = gate
                        .take()
                        .expect("a future that is done is not polled again");
                    match gate.refused(&passage, &Head::from(&request), *began) {
                        Some(response) => Step::Refused {
                            response: Some(response),
                        },
                        None => {
                            *this.passed = Passed::of(passage, &gate);
                            Step::Calling {
                                called: ready.call(request),
                            }
                        }
                    }
                }
                StepProjection::Calling { called } => {
                    let mut polled = called.poll(context);
                    // Where nothing is left to do the answer goes through as it is.
                    if let Poll::Ready(Ok(response)) = &mut polled
                        && let Some(passed) = this.passed.take()
                    {
                        passed.answered(response);
                    }
                    return polled;
                }
                StepProjection::Refused { response } => {
                    let response = response
                        .take()
                        .expect("a future that is done is not polled again");
                    return Poll::Ready(Ok(response.map(B::from_text)));
                }
            };
            step.set(next);
        }
    }
}

impl<I: Service<Request<A>>, A, P, S> fmt::Debug for Passing<I, A, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passing").finish_non_exhaustive()
    }
}
