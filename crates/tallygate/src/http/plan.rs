//! Plans: the rules, keys, limits and costs of one request, before the store is queried.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, StatusCode};
use smallvec::SmallVec;
use tallygate_core::Verb;

use super::{Head, Headers, Limits};
use crate::key::Key;
use crate::limit::Limit;
use crate::request::{MAX_LIMITS, Request, RequestError};

/// Turns requests into plans.
pub trait Policy: Send + Sync + 'static {
    /// Evaluates the rules for a request.
    fn plan(&self, head: &Head<'_>) -> Plan;

    /// Visits every limit that a plan may contain, so that a store can prepare for it.
    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        let _ = each;
    }
}

impl<P: Policy> Policy for Arc<P> {
    fn plan(&self, head: &Head<'_>) -> Plan {
        P::plan(self, head)
    }

    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        P::limits(self, each);
    }
}

/// What one request is charged: one [`Charge`] for each rule that applies, or a rule that stops it.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    charges: SmallVec<[Charge; 1]>,
    stop: Option<Stop>,
    verb: Verb,
    delay_mode: DelayMode,
}

/// The charge of one rule.
#[derive(Clone, Debug)]
pub struct Charge {
    /// The rule's settings.
    pub settings: Arc<RuleSettings>,
    /// The key that is limited.
    pub key: Key<'static>,
    /// The limits of the key; each carries the rule's failure policy.
    pub limits: Arc<Limits>,
    /// The cost of the request, for each limit.
    pub cost: u32,
}

/// A rule that stops a request whatever the counters say.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The rule's settings.
    pub settings: Arc<RuleSettings>,
    /// Why the rule stops the request.
    pub reason: StopReason,
}

/// Why a rule stops a request whatever the counters say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The client is on the rule's deny list.
    Denied,
    /// The request lacks the rule's key, and the rule refuses such requests.
    NoKey,
    /// The rules that apply have more than [`MAX_LIMITS`] limits.
    TooManyLimits,
    /// The operator has closed the service.
    Closed,
}

/// What becomes of a shaping delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelayMode {
    /// The executor waits until the delay is over.
    #[default]
    Wait,
    /// The decision reports the delay and the caller waits.
    Report,
}

/// Settings that all limits of a rule share.
#[derive(Clone)]
pub struct RuleSettings {
    /// The rule's name.
    pub name: Arc<str>,
    /// The headers that are sent to clients.
    pub headers: Headers,
    /// Whether the rule runs in shadow mode: it counts but never refuses.
    pub shadow: bool,
    /// The longest shaping delay; a request that would be delayed for longer is refused.
    pub max_delay: Option<Duration>,
    /// Which responses count; the cost of all others is undone. All count if there is no filter.
    pub count_filter: Option<CountFilter>,
}

/// Decides by the status and the headers of the response whether a request counts.
pub type CountFilter = Arc<dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync>;

impl Plan {
    /// Returns a plan that admits the request and charges nothing.
    pub fn new() -> Self {
        Plan::default()
    }

    /// Adds the charge of a rule. A charge whose counter is in the plan already is ignored. One
    /// that exceeds [`MAX_LIMITS`] stops the request, so that no rule is bypassed. Rules in shadow
    /// mode are decided one by one and do not count towards that bound.
    pub fn charge(&mut self, charge: Charge) {
        if !charge.settings.shadow && !self.charges.is_empty() {
            if self.exceeds_max_limits(&charge) {
                return self.stop(Stop {
                    settings: charge.settings,
                    reason: StopReason::TooManyLimits,
                });
            }
            if self.shared_counter(&charge).is_some() {
                return;
            }
        }
        self.charges.push(charge);
    }

    /// Adds a charge that must neither be ignored nor stop the request.
    ///
    /// # Errors
    /// When its counter is in the plan already, or there are more than [`MAX_LIMITS`] limits.
    pub fn try_charge(&mut self, charge: Charge) -> Result<(), RequestError> {
        if let Some(name) = self.shared_counter(&charge) {
            let name = name.to_owned();
            return Err(RequestError::SameCounterTwice { name });
        }
        if self.exceeds_max_limits(&charge) {
            return Err(RequestError::TooManyLimits);
        }
        self.charges.push(charge);
        Ok(())
    }

    fn exceeds_max_limits(&self, new: &Charge) -> bool {
        let limits = self.enforced().map(|charge| charge.limits.len());
        limits.sum::<usize>() + new.limits.len() > MAX_LIMITS
    }

    /// The name of a limit whose counter the plan already contains.
    fn shared_counter<'c>(&self, new: &'c Charge) -> Option<&'c str> {
        let same_key = self.enforced().filter(|charge| charge.key == new.key);
        let mut names = same_key.flat_map(|charge| charge.limits.iter().map(Limit::name));
        names.find_map(|name| {
            let shared = new.limits.iter().find(|limit| limit.name() == name)?;
            Some(shared.name())
        })
    }

    /// Stops the request. The first stop wins.
    pub fn stop(&mut self, stop: Stop) {
        self.stop.get_or_insert(stop);
    }

    /// Sets the verb, [`Verb::Check`] by default.
    pub fn set_verb(&mut self, verb: Verb) {
        self.verb = verb;
    }

    /// Replaces the cost of every charge.
    pub fn set_cost(&mut self, cost: u32) {
        self.charges
            .iter_mut()
            .for_each(|charge| charge.cost = cost);
    }

    /// Sets what becomes of a shaping delay, [`DelayMode::Wait`] by default. With
    /// [`DelayMode::Report`] a rule's `max_delay` is ignored.
    pub fn set_delay_mode(&mut self, mode: DelayMode) {
        self.delay_mode = mode;
    }

    /// The charges, in order.
    pub fn charges(&self) -> &[Charge] {
        &self.charges
    }

    /// The rule that stops the request.
    pub fn stopped(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    /// The verb.
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// What becomes of a shaping delay.
    pub fn delay_mode(&self) -> DelayMode {
        self.delay_mode
    }

    /// The charges of rules that can refuse.
    pub(super) fn enforced(&self) -> impl Iterator<Item = &Charge> + Clone {
        self.charges.iter().filter(|charge| !charge.settings.shadow)
    }

    /// The charges of rules in shadow mode, with their positions.
    pub(super) fn shadows(&self) -> impl Iterator<Item = (usize, &Charge)> {
        let each = self.charges.iter().enumerate();
        each.filter(|(_, charge)| charge.settings.shadow)
    }

    /// The request to the store for all charges that can refuse.
    pub(super) fn request(&self) -> Option<Request<'_>> {
        match self.stop {
            Some(_) => None,
            None => Some(request(self.enforced())?.verb(self.verb)),
        }
    }

    /// The request to the store for one charge.
    pub(super) fn single_request<'p>(&self, charge: &'p Charge) -> Request<'p> {
        let request = request(std::iter::once(charge)).expect("a rule has a limit");
        request.verb(self.verb)
    }

    /// The shortest `max_delay` of the rules that can refuse.
    pub(super) fn max_delay(&self) -> Option<Duration> {
        self.enforced()
            .filter_map(|charge| charge.settings.max_delay)
            .min()
    }
}

/// Joins the limits of several charges to one request.
#[inline]
pub(super) fn request<'p>(mut charges: impl Iterator<Item = &'p Charge>) -> Option<Request<'p>> {
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
    let request = request.and_cost(&charge.key, limit, charge.cost);
    request.expect("a plan contains no counter twice and at most MAX_LIMITS limits")
}

impl RuleSettings {
    /// Returns settings that enforce the rule, count every response and send all headers.
    pub fn new(name: impl AsRef<str>) -> Self {
        RuleSettings {
            name: name.as_ref().into(),
            headers: Headers::default(),
            shadow: false,
            max_delay: None,
            count_filter: None,
        }
    }

    /// Whether the response has to be seen.
    #[inline]
    pub(super) fn uses_response(&self) -> bool {
        self.count_filter.is_some() || self.headers.reports_counts()
    }
}

impl fmt::Debug for RuleSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleSettings")
            .field("name", &self.name)
            .field("shadow", &self.shadow)
            .finish_non_exhaustive()
    }
}
