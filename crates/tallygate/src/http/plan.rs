//! Plans: the rules, keys, limits and costs of one request, before the store is queried.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, StatusCode};
use smallvec::SmallVec;
use tallygate_core::Verb;

use super::{ActualCost, Head, Headers, JsonPath, Limits};
use crate::failure::OnFailure;
use crate::key::Key;
use crate::limit::Limit;
use crate::request::{MAX_LIMITS, Member, Request, RequestEntry, RequestError};
use crate::unique::unique_name;

/// Turns requests into plans.
pub trait Policy: Send + Sync + 'static {
    /// Evaluates the rules for a request.
    fn plan(&self, head: &Head<'_>) -> Plan;

    /// Visits every limit that a plan may contain, so that a store can prepare for it.
    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        let _ = each;
    }

    /// The paths in the JSON body of a request that [`plan`](Policy::plan) needs the values of, as a
    /// [`RequestJson`](super::RequestJson) in the request's extensions. None by default.
    fn json_paths(&self, head: &Head<'_>) -> Vec<JsonPath> {
        let _ = head;
        Vec::new()
    }
}

impl<P: Policy> Policy for Arc<P> {
    fn plan(&self, head: &Head<'_>) -> Plan {
        P::plan(self, head)
    }

    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        P::limits(self, each);
    }

    fn json_paths(&self, head: &Head<'_>) -> Vec<JsonPath> {
        P::json_paths(self, head)
    }
}

/// What one request is charged: one [`Charge`] for each rule that applies, or a rule that stops it.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    charges: SmallVec<[Charge; 1]>,
    /// Whether enforced charges have counters in common.
    shares_counters: bool,
    /// Whether nobody settles estimates.
    keeps_estimates: bool,
    stop: Option<Stop>,
    verb: Verb,
    delay_mode: DelayMode,
    /// Boxed: few requests have one.
    caller: Option<Box<Caller>>,
}

/// Who asks, as far as limits tell callers apart.
#[derive(Clone, Debug, Default)]
struct Caller {
    owner: Option<Key<'static>>,
    id: Option<Key<'static>>,
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
    /// The units that the request holds of each concurrency limit, whatever it costs: 1 for a rule.
    pub in_flight: u32,
    /// The member that the request is of, for limits that are shared. Boxed: few rules have one, and
    /// charges are moved often.
    pub member: Option<Box<Member<'static>>>,
}

/// The name that stands for no rule: no rule can have it.
pub const NO_RULE: &str = "(none)";

/// A rule that stops a request whatever the counters say.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The rule's settings; of a rule [`NO_RULE`] if it is none's decision.
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
    /// The rule needs the address of the client, and the server does not record it.
    NoAddress,
    /// The rules that apply have more than [`MAX_LIMITS`] limits.
    TooManyLimits,
    /// The path has more than 256 segments.
    TooManySegments,
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
    /// Whether the rule's limits are in these headers.
    pub reported: bool,
    /// Whether the rule runs in shadow mode: it counts but never refuses.
    pub shadow: bool,
    /// The longest shaping delay; a request that would be delayed for longer is refused.
    pub max_delay: Option<Duration>,
    /// Which responses count; the cost of all others is undone. All count if there is no filter.
    pub count_filter: Option<CountFilter>,
    /// Where the response says what the request really cost.
    pub actual: Option<ActualCost>,
}

/// Decides by the status and the headers of the response whether a request counts.
pub type CountFilter = Arc<dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync>;

impl Plan {
    /// Returns a plan that admits the request and charges nothing.
    pub fn new() -> Self {
        Plan::default()
    }

    /// Adds the charge of a rule. If its counter is in the plan already, because the rules spend one
    /// budget, the counter is charged the sum of both costs. A charge that exceeds [`MAX_LIMITS`]
    /// stops the request, so that no rule is bypassed. Rules in shadow mode are decided one by one and
    /// do not count towards that bound.
    pub fn charge(&mut self, charge: Charge) {
        if !charge.settings.shadow && !self.charges.is_empty() {
            if self.exceeds_max_limits(&charge) {
                return self.stop(Stop {
                    settings: charge.settings,
                    reason: StopReason::TooManyLimits,
                });
            }
            self.shares_counters |= self.shared_counter(&charge).is_some();
        }
        self.charges.push(charge);
    }

    /// Adds a charge that must neither share a counter nor stop the request.
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

    /// Sets the owner of what the request holds of concurrency limits.
    pub fn set_owner(&mut self, owner: impl Into<Key<'static>>) {
        self.caller.get_or_insert_default().owner = Some(owner.into());
    }

    /// Sets the id of the reservation that the verb makes or settles.
    pub fn set_id(&mut self, id: impl Into<Key<'static>>) {
        self.caller.get_or_insert_default().id = Some(id.into());
    }

    /// Sets the member that the request is of, for all shared limits.
    pub fn set_member(&mut self, member: &Member<'static>) {
        for charge in &mut self.charges {
            charge.member = Some(Box::new(member.clone()));
        }
    }

    /// Charges estimates for good, where nobody sees the response that says the actual cost: an estimate
    /// to be settled is remembered for an hour.
    pub fn keep_estimates(&mut self) {
        self.keeps_estimates = true;
    }

    /// The owner, if one is set.
    pub fn owner(&self) -> Option<&Key<'static>> {
        self.caller.as_ref()?.owner.as_ref()
    }

    /// Whether a rule that applies, also one in shadow mode, has a concurrency limit.
    pub fn is_concurrent(&self) -> bool {
        let mut limits = limits(self.charges.iter());
        limits.any(|(_, limit)| limit.quota().algorithm().is_concurrent())
    }

    /// Prepares a request that is enforced until its response has ended: what it holds of concurrency
    /// limits gets an owner, and an estimate an id to be settled by. Returns whether it holds something
    /// that has to be released.
    pub(super) fn begin(&mut self) -> bool {
        if self.delay_mode != DelayMode::Wait || self.verb != Verb::Check || self.stop.is_some() {
            return false;
        }
        let mut charges = self.charges.iter();
        let estimates = charges.any(|charge| charge.settings.actual.is_some());
        if estimates && !self.keeps_estimates {
            self.verb = Verb::Reserve;
            self.set_id(unique_name());
        }
        // Whoever sets an owner releases what it holds.
        let holds = self.lacks_owner();
        if holds {
            self.set_owner(unique_name());
        }
        holds
    }

    /// The requests that settle what was reserved, at a cost for each charge: one for all charges that
    /// can refuse, and one for each in shadow mode.
    pub(super) fn settle_requests<'p>(
        &'p self,
        costs: &'p [u32],
    ) -> impl Iterator<Item = Request<'p>> {
        let costed = || self.charges.iter().zip(costs.iter().copied());
        let enforced = costed().filter(|(charge, _)| !charge.settings.shadow);
        let shadows = costed().filter(|(charge, _)| charge.settings.shadow);
        let shadows = shadows.filter_map(|own| self.undo_request(std::iter::once(own)));
        let enforced = self.undo_request(enforced).into_iter();
        let requests = enforced.chain(shadows);
        requests.map(|request| self.asked(request).verb(Verb::Settle))
    }

    /// Whether the verb needs an owner that is not set.
    pub fn lacks_owner(&self) -> bool {
        self.verb.needs_owner() && self.owner().is_none() && self.is_concurrent()
    }

    /// Replaces the cost of every charge.
    pub fn set_cost(&mut self, cost: u32) {
        self.charges
            .iter_mut()
            .for_each(|charge| charge.cost = cost);
    }

    /// Replaces the units that every charge holds of concurrency limits.
    pub fn set_in_flight(&mut self, units: u32) {
        let charges = self.charges.iter_mut();
        charges.for_each(|charge| charge.in_flight = units);
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
    #[inline]
    pub(super) fn request(&self) -> Option<Request<'_>> {
        if self.stop.is_some() {
            return None;
        }
        let charges = self.enforced().map(|charge| (charge, charge.cost));
        Some(self.asked(self.join(charges, |_| true)?))
    }

    /// The request to take back what some of its charges took. What is in flight stays so until the
    /// response has ended.
    pub(super) fn undo_request<'p>(
        &self,
        charges: impl Iterator<Item = (&'p Charge, u32)>,
    ) -> Option<Request<'p>> {
        self.join(charges, |limit| !limit.quota().algorithm().is_concurrent())
    }

    /// Joins some limits of charges to one request, of verb check, each with the cost of its charge.
    #[inline]
    fn join<'p>(
        &self,
        charges: impl Iterator<Item = (&'p Charge, u32)>,
        selects: impl Fn(&Limit) -> bool,
    ) -> Option<Request<'p>> {
        match self.shares_counters {
            false => request(charges, selects),
            true => joined_request(charges, selects),
        }
    }

    /// Sets the verb and the caller of a request.
    #[inline]
    fn asked<'p>(&'p self, request: Request<'p>) -> Request<'p> {
        let mut request = request.verb(self.verb);
        if let Some(caller) = &self.caller {
            if let Some(owner) = &caller.owner {
                request = request.owner(owner);
            }
            if let Some(id) = &caller.id {
                request = request.id(id);
            }
        }
        request
    }

    /// For each limit of the enforced charges, in order, its position in the request. `None` if
    /// no counter is shared: they are in the same order.
    pub(super) fn positions<'p>(&'p self) -> Option<Vec<usize>> {
        if !self.shares_counters {
            return None;
        }
        let mut counters = Vec::new();
        let counter = |(charge, limit): (&'p Charge, &'p Limit)| (&charge.key, limit.name());
        let positions = limits(self.enforced()).map(counter).map(|counter| {
            let known = counters.iter().position(|known| *known == counter);
            known.unwrap_or_else(|| {
                counters.push(counter);
                counters.len() - 1
            })
        });
        Some(positions.collect())
    }

    /// Removes charges whose counters another one before has too.
    pub(super) fn distinct<'p>(
        &self,
        charges: impl Iterator<Item = &'p Charge> + Clone,
    ) -> impl Iterator<Item = &'p Charge> {
        let shares = self.shares_counters;
        let all = charges.clone();
        let repeated = move |number: usize, charge: &Charge| {
            let mut before = all.clone().take(number);
            shares && before.any(|other| other.has_counters_of(charge))
        };
        let each = charges.enumerate();
        each.filter_map(move |(number, charge)| (!repeated(number, charge)).then_some(charge))
    }

    /// The request to the store for one charge.
    pub(super) fn single_request<'p>(&'p self, charge: &'p Charge) -> Request<'p> {
        let charges = std::iter::once((charge, charge.cost));
        let request = request(charges, |_| true).expect("a rule has a limit");
        self.asked(request)
    }

    /// The shortest `max_delay` of the rules that can refuse.
    pub(super) fn max_delay(&self) -> Option<Duration> {
        self.enforced()
            .filter_map(|charge| charge.settings.max_delay)
            .min()
    }
}

/// Joins some limits of charges without a common counter to one request.
#[inline]
fn request<'p>(
    charges: impl Iterator<Item = (&'p Charge, u32)>,
    selects: impl Fn(&Limit) -> bool,
) -> Option<Request<'p>> {
    let mut request: Option<Request<'p>> = None;
    for (charge, cost) in charges {
        for limit in charge.limits.iter().filter(|limit| selects(limit)) {
            let entry = charge.entry(limit, charge.units(limit, cost));
            request = Some(match request {
                None => Request::from_entry(entry).cost(cost),
                Some(request) => with(request, entry),
            });
        }
    }
    request
}

/// Joins some limits of charges to one request. A counter of several is charged the sum of their
/// costs, under the strictest of their failure policies.
fn joined_request<'p>(
    charges: impl Iterator<Item = (&'p Charge, u32)>,
    selects: impl Fn(&Limit) -> bool,
) -> Option<Request<'p>> {
    let mut costs: Vec<(&Charge, &Limit, u32)> = Vec::new();
    for (charge, own_cost) in charges {
        for limit in charge.limits.iter().filter(|limit| selects(limit)) {
            let own_units = charge.units(limit, own_cost);
            let known = costs
                .iter_mut()
                .find(|(other, known, _)| other.key == charge.key && known.name() == limit.name());
            match known {
                Some((_, known, units)) => {
                    *units = match limit.quota().algorithm().is_concurrent() {
                        // One request is in flight once.
                        true => (*units).max(own_units),
                        false => units.saturating_add(own_units),
                    };
                    if strictness(limit) > strictness(known) {
                        *known = limit;
                    }
                }
                None => costs.push((charge, limit, own_units)),
            }
        }
    }
    let ((charge, limit, units), more) = costs.split_first()?;
    let request = Request::from_entry(charge.entry(limit, *units)).cost(*units);
    let more = more.iter();
    Some(more.fold(request, |request, (charge, limit, units)| {
        with(request, charge.entry(limit, *units))
    }))
}

/// Orders limits by what their failure policy admits, least first.
fn strictness(limit: &Limit) -> u8 {
    match limit.own_policy() {
        Some(OnFailure::Open) => 0,
        None => 1,
        Some(OnFailure::Local(_)) => 2,
        Some(OnFailure::Closed) => 3,
    }
}

fn with<'p>(request: Request<'p>, entry: RequestEntry<'p>) -> Request<'p> {
    let request = request.and_entry(entry);
    request.expect("no counter is given twice, and a plan has at most MAX_LIMITS limits")
}

/// The limits of charges, in order.
fn limits<'p>(
    charges: impl Iterator<Item = &'p Charge>,
) -> impl Iterator<Item = (&'p Charge, &'p Limit)> {
    charges.flat_map(|charge| charge.limits.iter().map(move |limit| (charge, limit)))
}

impl Charge {
    /// What a cost is of one of its limits.
    #[inline]
    fn units(&self, limit: &Limit, cost: u32) -> u32 {
        match limit.quota().algorithm().is_concurrent() {
            true => self.in_flight,
            false => cost,
        }
    }

    /// One of its limits, with a cost.
    #[inline]
    fn entry<'p>(&'p self, limit: &'p Limit, cost: u32) -> RequestEntry<'p> {
        let entry = RequestEntry::new(&self.key, limit).with_cost(cost);
        match &self.member {
            Some(member) if limit.quota().algorithm().is_shared() => {
                entry.with_member((**member).clone())
            }
            Some(_) | None => entry,
        }
    }

    /// Whether it has every counter of another one.
    fn has_counters_of(&self, other: &Charge) -> bool {
        let has = |limit: &Limit| self.limits.iter().any(|own| own.name() == limit.name());
        self.key == other.key && other.limits.iter().all(has)
    }
}

impl RuleSettings {
    /// Returns settings that enforce the rule, count every response, and send all headers with the
    /// rule's limits.
    pub fn new(name: impl AsRef<str>) -> Self {
        RuleSettings {
            name: name.as_ref().into(),
            headers: Headers::default(),
            reported: true,
            shadow: false,
            max_delay: None,
            count_filter: None,
            actual: None,
        }
    }

    /// Whether the response has to be seen.
    #[inline]
    pub(super) fn uses_response(&self) -> bool {
        self.count_filter.is_some() || self.actual.is_some() || self.reported
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
