//! The one rule that a request has to pass, lent by the policy. Most gates have one rule, and for
//! most requests nothing is left to do once it admits: a plan of their own would be the most of
//! their cost. Knows limiters and terms; knows nothing of how a rule matched.

use std::sync::Arc;

use ::http::{HeaderMap, StatusCode};

use super::{Charge, Limits, Passage, Plan, Terms, headers};
use crate::decision::Decision;
use crate::key::Key;
use crate::limiter::Limiter;
use crate::store::Store;

/// What a policy works out for a request.
#[derive(Debug)]
pub enum Consulted<'p> {
    /// Whatever it has to pass.
    Plan(Plan),
    /// One rule that enforces one limit, without shaping.
    Lone(Lone<'p>),
}

/// The one rule that a request has to pass, lent by its policy.
#[derive(Debug)]
pub struct Lone<'p> {
    terms: &'p Arc<Terms>,
    key: Key<'static>,
    limits: &'p Arc<Limits>,
    cost: u32,
}

impl<'p> Consulted<'p> {
    /// Lends the only rule that a request has to pass, if it is of the kind that can be lent.
    pub fn of(
        terms: &'p Arc<Terms>,
        key: Key<'static>,
        limits: &'p Arc<Limits>,
        cost: u32,
    ) -> Self {
        let lone = Lone::new(terms, key, limits, cost);
        match Lone::can_be(terms, limits) {
            true => Consulted::Lone(lone),
            false => Consulted::Plan(lone.into_plan()),
        }
    }
}

impl<'p> Lone<'p> {
    /// Whether a rule with these terms and limits can be lent.
    pub(super) fn can_be(terms: &Terms, limits: &Limits) -> bool {
        !terms.shadow && matches!(&**limits, [limit] if !limit.quota().algorithm().is_shaping())
    }

    /// Lends a rule that [can be](Lone::can_be).
    #[inline]
    pub(super) fn new(
        terms: &'p Arc<Terms>,
        key: Key<'static>,
        limits: &'p Arc<Limits>,
        cost: u32,
    ) -> Self {
        Lone {
            terms,
            key,
            limits,
            cost,
        }
    }

    /// Asks a store that is in this process; none if it has to be waited for.
    #[inline]
    pub(crate) fn at_once<S: Store>(&self, limiter: &Limiter<S>) -> Option<Decision> {
        let limit = self.limits.first()?;
        limiter.store().check_at_once(&self.key, limit, self.cost)
    }

    /// The same for those who want to know no more of an admission than that it is one.
    #[inline]
    pub(crate) fn admit_at_once<S: Store>(
        &self,
        limiter: &Limiter<S>,
    ) -> Option<Result<(), Decision>> {
        let limit = self.limits.first()?;
        limiter.store().admit_at_once(&self.key, limit, self.cost)
    }

    /// Whether what it takes counts whatever the answer to the request is.
    #[inline]
    pub(crate) fn counts_always(&self) -> bool {
        self.terms.counts.is_none()
    }

    /// Whether a client that is admitted is told anything.
    #[inline]
    pub(crate) fn tells(&self) -> bool {
        self.terms.headers.any()
    }

    /// What a client that was admitted is to be told.
    pub(crate) fn told(&self, decision: Decision) -> Told {
        Told {
            terms: Arc::clone(self.terms),
            limits: Arc::clone(self.limits),
            decision,
        }
    }

    /// What became of it, as something that can be kept.
    pub(crate) fn decided(self, decision: Decision) -> Passage {
        Passage::decided(self.into_plan(), decision)
    }

    /// The same as a plan that can be kept.
    pub(crate) fn into_plan(self) -> Plan {
        let mut plan = Plan::new();
        plan.charge(self.into());
        plan
    }
}

/// What a client is to be told of the one rule that it passed.
#[derive(Debug)]
pub(crate) struct Told {
    terms: Arc<Terms>,
    limits: Arc<Limits>,
    decision: Decision,
}

impl Told {
    /// As [`Passage::tell_through`].
    pub(crate) fn tell_through(&self, status: StatusCode, headers: &mut HeaderMap) {
        if !headers::stands(headers, status, &self.decision) {
            let limits = std::iter::once(&*self.limits);
            self.terms.headers.tell(headers, &self.decision, limits);
        }
    }
}

impl From<Lone<'_>> for Charge {
    fn from(lone: Lone<'_>) -> Self {
        Charge {
            terms: Arc::clone(lone.terms),
            key: lone.key,
            limits: Arc::clone(lone.limits),
            cost: lone.cost,
        }
    }
}
