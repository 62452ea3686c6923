//! The service behind a gate. Knows tower's contract: what was ready is what is called.

use std::fmt;
use std::mem;
use std::task::{Context, Poll};
use std::time::Instant;

use ::http::{Request, Response};
use tower_service::Service;

use super::passing::Passed;
use super::{FromText, Gate, Passing};
use crate::http::{Consulted, Head, Lone, Passage, Plan, Policy, Rules};
use crate::store::{MemoryStore, Store};

/// A service behind a [`Gate`].
pub struct Gated<I, P = Rules, S = MemoryStore> {
    inner: I,
    gate: Gate<P, S>,
}

impl<I, P, S> Gated<I, P, S> {
    pub(super) fn new(inner: I, gate: Gate<P, S>) -> Self {
        Gated { inner, gate }
    }
}

impl<I, A, B, P, S> Service<Request<A>> for Gated<I, P, S>
where
    I: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    I::Future: Send + 'static,
    A: Send + 'static,
    B: FromText,
    P: Policy,
    S: Store,
{
    type Response = Response<B>;
    type Error = I::Error;
    type Future = Passing<I, A, P, S>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(context)
    }

    // Where layers are put together, its future would be copied once more.
    #[inline(never)]
    fn call(&mut self, request: Request<A>) -> Self::Future {
        let began = self.gate.began();
        let Some(lone) = self.gate.lone(&Head::from(&request)) else {
            return self.consult(request, began);
        };
        let passage = match Asked::of(&self.gate, lone) {
            Asked::Done(passed) => return Passing::calling(self.inner.call(request), passed),
            Asked::Open(passage) => passage,
        };
        self.go_on(request, passage, began)
    }
}

/// What came of asking the one rule that a request has to pass.
enum Asked<P, S> {
    /// Nothing is left to do but to call the service, and to tell its client.
    Done(Option<Passed<P, S>>),
    /// It is to be seen what became of it, or its plan has to be waited for.
    Open(Result<Passage, Plan>),
}

impl<P: Policy, S: Store> Asked<P, S> {
    #[inline(always)]
    fn of(gate: &Gate<P, S>, lone: Lone<'_>) -> Self {
        // Where nobody is told anything, nobody need know what is left.
        if gate.settles(&lone) && !lone.tells() {
            return match lone.admit_at_once(gate.limiter()) {
                Some(Ok(())) => Asked::Done(None),
                Some(Err(refused)) => Asked::Open(Ok(lone.decided(refused))),
                None => Asked::Open(Err(lone.into_plan())),
            };
        }
        match lone.at_once(gate.limiter()) {
            Some(decision) if gate.settles(&lone) && decision.allowed() => {
                Asked::Done(Some(Passed::Told(lone.told(decision))))
            }
            Some(decision) => Asked::Open(Ok(lone.decided(decision))),
            None => Asked::Open(Err(lone.into_plan())),
        }
    }
}

impl<I, P: Policy, S: Store> Gated<I, P, S> {
    /// Asks what a request has to pass.
    // Most requests need not have this in their way.
    #[inline(never)]
    fn consult<A>(&mut self, request: Request<A>, began: Option<Instant>) -> Passing<I, A, P, S>
    where
        I: Service<Request<A>> + Clone,
        A: Send + 'static,
    {
        let passage = match self.gate.consult(&Head::from(&request)) {
            Consulted::Lone(lone) => match Asked::of(&self.gate, lone) {
                Asked::Done(passed) => return Passing::calling(self.inner.call(request), passed),
                Asked::Open(passage) => passage,
            },
            Consulted::Plan(plan) => Passage::at_once(self.gate.limiter(), plan),
        };
        self.go_on(request, passage, began)
    }

    /// Does what a decision, or a plan that has to be waited for, says.
    #[inline(never)]
    fn go_on<A>(
        &mut self,
        request: Request<A>,
        passage: Result<Passage, Plan>,
        began: Option<Instant>,
    ) -> Passing<I, A, P, S>
    where
        I: Service<Request<A>> + Clone,
        A: Send + 'static,
    {
        let head = Head::from(&request);
        match passage {
            Ok(passage) => match self.gate.refused(&passage, &head, began) {
                Some(response) => Passing::refused(response),
                None => {
                    let passed = Passed::of(passage, &self.gate);
                    Passing::calling(self.inner.call(request), passed)
                }
            },
            Err(plan) => {
                // The one that is ready goes with the request; its clone is asked anew.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                Passing::waiting(ready, request, plan, self.gate.clone(), began)
            }
        }
    }
}

impl<I: Clone, P, S> Clone for Gated<I, P, S> {
    fn clone(&self) -> Self {
        Gated {
            inner: self.inner.clone(),
            gate: self.gate.clone(),
        }
    }
}

impl<I: fmt::Debug, P, S> fmt::Debug for Gated<I, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gated")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
