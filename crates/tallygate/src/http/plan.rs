//! What a request has to pass, as rules work it out before any store is asked. Knows rules by
//! their terms only; knows nothing of how they matched.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, StatusCode};
use smallvec::SmallVec;

use super::{Consulted, Head, Headers, Limits, Lone};
use crate::key::Key;
use crate::limit::Limit;
use crate::request::{MAX_LIMITS, Request};

/// Turns requests into plans: rules in Rust, or from a file.
pub trait Policy: Send + Sync + 'static {
    /// Works out what a request has to pass.
    fn plan(&self, head: &Head<'_>) -> Plan;

    /// The same where a rule can be lent: what is asked where [`lone`](Policy::lone) says nothing.
    /// A plan unless told otherwise.
    fn consult(&self, head: &Head<'_>) -> Consulted<'_> {
        Consulted::Plan(self.plan(head))
    }

    /// The one rule that a request has to pass, where that is plain at a glance: what is asked
    /// before every request. None unless told otherwise: then the policy is consulted.
    #[inline]
    fn lone(&self, head: &Head<'_>) -> Option<Lone<'_>> {
        let _ = head;
        None
    }

    /// Names every limit that plans may hold, so that a store can make ready for them.
    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        let _ = each;
    }
}

impl<P: Policy> Policy for Arc<P> {
    fn plan(&self, head: &Head<'_>) -> Plan {
        P::plan(self, head)
    }

    fn consult(&self, head: &Head<'_>) -> Consulted<'_> {
        P::consult(self, head)
    }

    #[inline]
    fn lone(&self, head: &Head<'_>) -> Option<Lone<'_>> {
        P::lone(self, head)
    }

    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        P::limits(self, each);
    }
}

/// What one request has to pass: every rule that applies, or one that stops it.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    charges: SmallVec<[Charge; 1]>,
    stop: Option<Stop>,
}

/// One rule that a request has to pass.
#[derive(Clone, Debug)]
pub struct Charge {
    /// The rule.
    pub terms: Arc<Terms>,
    /// Who is limited.
    pub key: Key<'static>,
    /// How much is allowed; each limit carries the rule's failure policy.
    pub limits: Arc<Limits>,
    /// How much this request takes of each.
    pub cost: u32,
}

/// A rule that stops a request whatever the counts.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The rule.
    pub terms: Arc<Terms>,
    /// Why.
    pub why: Why,
}

/// Why a rule stops a request whatever the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The client is on the rule's list of those it turns away.
    Denied,
    /// The request does not say who is to be limited, and the rule refuses such.
    NoKey,
    /// The rules that apply have more limits than one request may carry.
    TooManyLimits,
    /// Whoever runs the service lets nobody through for now.
    Closed,
}

/// What holds for all limits of a rule.
#[derive(Clone)]
pub struct Terms {
    /// The rule's name.
    pub name: Arc<str>,
    /// Which headers tell the client.
    pub headers: Headers,
    /// Whether it only watches: it counts, and what it would refuse passes.
    pub shadow: bool,
    /// The longest that a request may be held back by shaping; a longer delay is refused.
    pub longest_delay: Option<Duration>,
    /// Which answers count: what was taken for any other is given back. None: all count.
    pub counts: Option<Counts>,
}

/// Tells by the answer's status and headers whether a request counts.
pub type Counts = Arc<dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync>;

impl Plan {
    /// A plan that lets everything pass.
    pub fn new() -> Self {
        Plan::default()
    }

    /// Adds a rule. One whose counters are in the plan already is left out; one beyond
    /// [`MAX_LIMITS`] limits stops the request, so that no rule is passed over unseen. A rule that
    /// only watches is asked by itself and takes no room.
    pub fn charge(&mut self, charge: Charge) {
        if !charge.terms.shadow && !self.charges.is_empty() {
            let limits = self.enforced().map(|charge| charge.limits.len());
            if limits.sum::<usize>() + charge.limits.len() > MAX_LIMITS {
                let terms = charge.terms;
                let why = Why::TooManyLimits;
                return self.stop(Stop { terms, why });
            }
            if self.has_counter_of(&charge) {
                return;
            }
        }
        self.charges.push(charge);
    }

    fn has_counter_of(&self, new: &Charge) -> bool {
        let names =
            |charge: &Charge, name: &str| charge.limits.iter().any(|limit| limit.name() == name);
        let meets = |charge: &Charge| {
            charge.key == new.key && new.limits.iter().any(|limit| names(charge, limit.name()))
        };
        self.enforced().any(meets)
    }

    /// Adds all of another plan.
    pub(super) fn join(&mut self, other: Plan) {
        other
            .charges
            .into_iter()
            .for_each(|charge| self.charge(charge));
        other.stop.into_iter().for_each(|stop| self.stop(stop));
    }

    /// Stops the request; the first rule that does so counts.
    pub fn stop(&mut self, stop: Stop) {
        self.stop.get_or_insert(stop);
    }

    /// The rules and what they take, in order.
    pub fn charges(&self) -> &[Charge] {
        &self.charges
    }

    /// The rule that stops the request, if any does.
    pub fn stopped(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    /// The rules that can refuse.
    pub(super) fn enforced(&self) -> impl Iterator<Item = &Charge> + Clone {
        self.charges.iter().filter(|charge| !charge.terms.shadow)
    }

    /// The rules that only watch, with their places.
    pub(super) fn shadows(&self) -> impl Iterator<Item = (usize, &Charge)> {
        let each = self.charges.iter().enumerate();
        each.filter(|(_, charge)| charge.terms.shadow)
    }

    /// What is asked of the store, all or nothing; none if there is nothing to ask.
    pub(super) fn request(&self) -> Option<Request<'_>> {
        match self.stop {
            Some(_) => None,
            None => join(self.enforced()),
        }
    }

    /// The longest that shaping may hold the request back.
    pub(super) fn longest_delay(&self) -> Option<Duration> {
        self.enforced()
            .filter_map(|charge| charge.terms.longest_delay)
            .min()
    }
}

impl Charge {
    /// What is asked of the store for this rule by itself.
    pub(super) fn request(&self) -> Request<'_> {
        join(std::iter::once(self)).expect("a rule has a limit")
    }
}

/// One request of all limits of some rules.
pub(super) fn join<'p>(mut charges: impl Iterator<Item = &'p Charge>) -> Option<Request<'p>> {
    let first = charges.next()?;
    let (limit, more) = first.limits.split_first()?;
    let mut request = Request::new(&first.key, limit).cost(first.cost);
    for limit in more {
        request = with(request, first, limit);
    }
    for charge in charges {
        for limit in &**charge.limits {
            request = with(request, charge, limit);
        }
    }
    Some(request)
}

fn with<'p>(request: Request<'p>, charge: &'p Charge, limit: &'p Limit) -> Request<'p> {
    let added = request.and_cost(&charge.key, limit, charge.cost);
    added.expect("a plan holds no counter twice, and not too many")
}

impl Terms {
    /// Terms of a rule that enforces, counts every answer and tells all.
    pub fn new(name: impl AsRef<str>) -> Self {
        Terms {
            name: name.as_ref().into(),
            headers: Headers::default(),
            shadow: false,
            longest_delay: None,
            counts: None,
        }
    }

    /// Whether there is anything to do when a request is answered.
    pub(super) fn concern_answer(&self) -> bool {
        self.counts.is_some() || self.headers.any()
    }
}

impl fmt::Debug for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terms")
            .field("name", &self.name)
            .field("shadow", &self.shadow)
            .finish_non_exhaustive()
    }
}
