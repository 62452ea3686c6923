//! The executor: decides a plan and reports the outcome, the headers and the refusal.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, StatusCode};
use tallygate_core::{Retry, Verb, Verdict};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::actual::{ActualCost, ActualReader};
use super::outcome::Outcome;
use super::plan::{Charge, DelayMode, Plan, StopReason};
use super::refusal::{IN_FLIGHT_RETRY, OVERLOAD_RETRY};
use super::{Refusal, headers};
use crate::decision::Decision;
use crate::engine::{Engine, Hold, Wait};
use crate::key::Key;
use crate::store::Store;

/// A plan that was decided.
#[derive(Debug)]
pub struct Enforcement {
    plan: Plan,
    combined: Combined,
    /// The verdict of each limit of the plan, if charges have counters in common: the decision has
    /// one of each counter.
    verdicts: Option<Box<[Verdict]>>,
    /// The decision of each rule in shadow mode, by its position in the plan.
    shadows: Vec<(usize, Decision)>,
    /// Boxed by the `Arc`: few requests hold something.
    holds: Option<Holds>,
}

/// What a request holds of concurrency limits, as an extension of the request: it is released when the
/// last clone is dropped. A service whose response does not end with its body, such as an upgrade,
/// keeps it until then.
#[derive(Clone, Debug)]
pub struct Holds(#[expect(dead_code, reason = "it is only dropped")] Arc<[Hold]>);

/// Reads the actual costs of a request from its response.
#[derive(Debug)]
pub struct Settlement(ActualReader);

impl Settlement {
    /// Whether the body of the response has to be [read](Settlement::read).
    pub fn needs_body(&self) -> bool {
        self.0.needs_body()
    }

    /// Reads the next piece of the body.
    pub fn read(&mut self, piece: &[u8]) {
        self.0.read(piece);
    }
}

/// A limit of a rule that can refuse, and its verdict.
#[derive(Clone, Copy)]
struct Decided<'e> {
    charge: &'e Charge,
    /// The position of the limit in the charge.
    limit: usize,
    verdict: &'e Verdict,
}

/// When to try again.
pub(super) enum RetryHint {
    After(Duration),
    /// When somebody else's request ends.
    Soon,
    Never,
}

impl RetryHint {
    /// After the longest exact retry of the limits that refuse. What is in flight may end at any time.
    /// `None` if no counter refuses.
    pub(super) fn new(decision: &Decision, verdicts: &[Verdict]) -> Option<Self> {
        let retry = decision.retry_after()?;
        let Some(wait) = retry.duration() else {
            return Some(RetryHint::Never);
        };
        let refusing = verdicts.iter().filter_map(Verdict::retry);
        let exact = refusing.filter(|retry| retry.is_exact());
        let longest = exact.filter_map(Retry::duration).max();
        Some(match longest {
            Some(longest) => RetryHint::After(longest),
            None if retry.is_exact() => RetryHint::After(wait),
            None => RetryHint::Soon,
        })
    }

    /// The time for `Retry-After`.
    pub(super) fn wait(self) -> Option<Duration> {
        match self {
            RetryHint::After(wait) => Some(wait),
            RetryHint::Soon => Some(IN_FLIGHT_RETRY),
            RetryHint::Never => None,
        }
    }
}

/// The decision over all charges that can refuse.
#[derive(Debug)]
enum Combined {
    /// There is no such charge, or a rule stops the request.
    Skipped,
    Decided(Decision),
    /// Too many requests are waiting for a shaping delay.
    QueueFull,
}

/// What [`try_enforce`] returns.
#[derive(Debug)]
pub enum TryEnforce {
    /// The plan is decided.
    Done(Enforcement),
    /// The plan needs [`enforce`]. Nothing was decided.
    Pending(Plan),
}

/// Decides a plan and, if it is admitted with a shaping delay, waits until the delay is over,
/// except in [`DelayMode::Report`]. If the future is dropped during the delay, the next request in
/// the queue moves up.
///
/// What the request holds of concurrency limits is renewed until the enforcement and all of its
/// [`Holds`] are dropped, unless the plan has an owner already.
pub async fn enforce<S: Store>(engine: &Engine<S>, mut plan: Plan) -> Enforcement {
    if plan.begin() {
        return enforce_holding(engine, plan).await;
    }
    let combined = match (plan.request(), plan.delay_mode()) {
        (None, _) => Combined::Skipped,
        (Some(request), DelayMode::Report) => Combined::Decided(engine.decide(&request).await),
        (Some(request), DelayMode::Wait) => {
            let wait = plan.max_delay().map_or(Wait::forever(), Wait::at_most);
            match engine.admit(&request, wait).await {
                Ok(decision) => Combined::Decided(decision),
                Err(_) => Combined::QueueFull,
            }
        }
    };
    let mut shadows = Vec::new();
    if combined.admits() && plan.stopped().is_none() {
        for (i, charge) in plan.shadows() {
            shadows.push((i, engine.decide(&plan.single_request(charge)).await));
        }
    }
    Enforcement::new(plan, combined, shadows)
}

/// Decides a plan with concurrency limits. Boxed: few plans have any, and the other futures stay small.
fn enforce_holding<S: Store>(
    engine: &Engine<S>,
    plan: Plan,
) -> Pin<Box<dyn Future<Output = Enforcement> + Send + '_>> {
    Box::pin(async move {
        let mut holds = Vec::new();
        let combined = match plan.request() {
            None => Combined::Skipped,
            Some(request) => match engine.hold(&request).await {
                Err(refused) => Combined::Decided(refused.decision().clone()),
                Ok(hold) => {
                    let decision = hold.decision().clone();
                    let too_long = plan
                        .max_delay()
                        .and_then(|max| decision.refused_beyond(max));
                    if let Some(refusal) = too_long {
                        engine.undo(&request, &decision);
                        Combined::Decided(refusal)
                    } else {
                        if !decision.delay().is_zero() {
                            sleep(decision.delay()).await;
                        }
                        holds.push(hold);
                        Combined::Decided(decision)
                    }
                }
            },
        };
        let mut shadows = Vec::new();
        if combined.admits() {
            for (i, charge) in plan.shadows() {
                let decision = match engine.hold(&plan.single_request(charge)).await {
                    Err(refused) => refused.decision().clone(),
                    Ok(hold) => {
                        let decision = hold.decision().clone();
                        holds.push(hold);
                        decision
                    }
                };
                shadows.push((i, decision));
            }
        }
        let mut enforcement = Enforcement::new(plan, combined, shadows);
        enforcement.holds = (!holds.is_empty()).then(|| Holds(holds.into()));
        enforcement
    })
}

/// Decides a plan without waiting. Returns [`TryEnforce::Pending`] if the store has to be asked or a
/// limit may delay the request.
#[inline]
pub fn try_enforce<S: Store>(engine: &Engine<S>, mut plan: Plan) -> TryEnforce {
    if plan.delay_mode() == DelayMode::Wait {
        if plan.enforced().any(Charge::shapes) || plan.lacks_owner() {
            return TryEnforce::Pending(plan);
        }
        plan.begin();
    }
    let decided = plan.request().map(|request| engine.try_decide(&request));
    let combined = match decided {
        None => Combined::Skipped,
        Some(Some(decision)) => Combined::Decided(decision),
        Some(None) => return TryEnforce::Pending(plan),
    };
    let shadows = if combined.admits() && plan.stopped().is_none() {
        let decide = |(i, charge)| Some((i, engine.try_decide(&plan.single_request(charge))?));
        plan.shadows().map(decide).collect()
    } else {
        Some(Vec::new())
    };
    let Some(shadows) = shadows else {
        // Nothing was charged: a store that has to be asked decides only refusals without waiting.
        return TryEnforce::Pending(plan);
    };
    TryEnforce::Done(Enforcement::new(plan, combined, shadows))
}

impl Enforcement {
    #[inline]
    fn new(plan: Plan, combined: Combined, shadows: Vec<(usize, Decision)>) -> Self {
        let verdicts = match &combined {
            Combined::Decided(decision) => plan.positions().and_then(|positions| {
                let verdicts = decision.verdicts();
                let verdict = |&position: &usize| verdicts.get(position).copied();
                positions.iter().map(verdict).collect()
            }),
            Combined::Skipped | Combined::QueueFull => None,
        };
        Enforcement {
            plan,
            combined,
            verdicts,
            shadows,
            holds: None,
        }
    }

    /// What the request holds of concurrency limits. It has to be kept until the response has ended.
    #[inline]
    pub fn holds(&self) -> Option<&Holds> {
        self.holds.as_ref()
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The decision over all rules that can refuse. `None` if there are none, a rule stops the
    /// request, or the shaping queue is full.
    pub fn decision(&self) -> Option<&Decision> {
        match &self.combined {
            Combined::Decided(decision) => Some(decision),
            Combined::Skipped | Combined::QueueFull => None,
        }
    }

    /// The decisions of rules in shadow mode, with their charges.
    pub fn shadow_decisions(&self) -> impl Iterator<Item = (&Charge, &Decision)> {
        let charges = self.plan.charges();
        let each = self.shadows.iter();
        each.map(move |(i, decision)| (&charges[*i], decision))
    }

    /// The estimate that the id of a [reserve](Verb::Reserve) is known with, if that is another one than
    /// the plan's cost: nothing was charged for this one.
    pub fn conflicting_estimate(&self) -> Option<u32> {
        let decision = self.decision()?;
        if self.plan.verb() != Verb::Reserve || !decision.allowed() {
            return None;
        }
        let reserved = self.plan.enforced().flat_map(|charge| {
            let limits = charge.limits.iter();
            limits.map(move |limit| (limit.quota().algorithm().is_concurrent(), charge.cost))
        });
        let mut others =
            reserved
                .zip(self.verdicts())
                .filter(|((is_concurrent, cost), verdict)| {
                    !is_concurrent && *cost > 0 && verdict.granted() != *cost
                });
        others.next().map(|(_, verdict)| verdict.granted())
    }

    /// The shaping delay that was waited for.
    pub fn waited(&self) -> Duration {
        match self.plan.delay_mode() {
            DelayMode::Wait => self.decision().map(Decision::delay).unwrap_or_default(),
            DelayMode::Report => Duration::ZERO,
        }
    }

    /// Why the request is refused. `None` if it is admitted.
    pub fn refusal(&self) -> Option<Refusal<'_>> {
        if let Some(stop) = self.plan.stopped() {
            let rule = &*stop.settings.name;
            return Some(match stop.reason {
                StopReason::Denied => Refusal::Denied { rule },
                StopReason::NoKey => Refusal::NoKey { rule },
                StopReason::NoAddress => Refusal::NoAddress { rule },
                StopReason::TooManyLimits => Refusal::TooManyLimits { rule },
                StopReason::TooManySegments => Refusal::TooManySegments,
                StopReason::Closed => Refusal::Closed,
            });
        }
        match &self.combined {
            Combined::Skipped => None,
            Combined::Decided(decision) if decision.allowed() => None,
            Combined::Decided(decision) => Some(match RetryHint::new(decision, self.verdicts()) {
                None if decision.shed() => Refusal::Overloaded,
                None => Refusal::Unavailable,
                Some(RetryHint::Never) => {
                    let (limit, reported) = self.refusing_limit(|retry| retry == Retry::Never);
                    Refusal::NeverFits { limit, reported }
                }
                Some(RetryHint::Soon) => {
                    let (limit, reported) = self.refusing_limit(|_| true);
                    Refusal::InFlight { limit, reported }
                }
                Some(RetryHint::After(retry_after)) => {
                    let (limit, reported) = self.refusing_limit(Retry::is_exact);
                    Refusal::Quota {
                        limit,
                        reported,
                        retry_after,
                    }
                }
            }),
            Combined::QueueFull => Some(Refusal::TooManyWaiting),
        }
    }

    /// Whether [`on_response`](Enforcement::on_response) or
    /// [`merge_headers`](Enforcement::merge_headers) has anything to do.
    #[inline]
    pub fn uses_response(&self) -> bool {
        let mut charges = self.plan.charges().iter();
        charges.any(|charge| charge.settings.uses_response())
    }

    /// Writes the headers of a response that the rate limiter itself sends.
    ///
    /// `Retry-After` is sent if any rule sends it. The settings of the rule of the shown limit, see
    /// [`Headers`](super::Headers), choose the headers with counts.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        let Some(decision) = self.decision() else {
            return;
        };
        let retry_after = match RetryHint::new(decision, self.verdicts()) {
            Some(hint) => hint.wait(),
            None if decision.shed() => Some(OVERLOAD_RETRY),
            None => None,
        };
        if let Some(wait) = retry_after {
            let mut rules = self.plan.enforced().map(|charge| &charge.settings.headers);
            let _ = rules.any(|rule| rule.write_retry_after(headers, wait));
        }
        if let Some(shown) = self.shown() {
            self.write_counts(shown, headers);
        }
        headers::expose(headers);
    }

    /// Adds headers to the response of the service. Headers that an inner rate limiter has set
    /// stay if it refused the request or has no larger part of its capacity remaining. If the
    /// response is for scripts of other origins, `Access-Control-Expose-Headers` lists the headers.
    pub fn merge_headers(&self, status: StatusCode, headers: &mut HeaderMap) {
        let Some(shown) = self.shown() else {
            return;
        };
        if !headers::keeps_inner(headers, status, shown.verdict) {
            self.write_counts(shown, headers);
        }
        headers::expose(headers);
    }

    fn write_counts(&self, shown: Decided<'_>, headers: &mut HeaderMap) {
        let Decided {
            charge,
            limit,
            verdict,
        } = shown;
        let rule = &charge.settings.headers;
        let listed = self
            .plan
            .enforced()
            .filter(|charge| charge.settings.reported && charge.settings.headers.same_draft(rule));
        let limits = self.plan.distinct(listed).map(|charge| &*charge.limits);
        rule.write_counts(headers, verdict, charge.limits.quoted(limit), limits);
    }

    /// The limit that the headers show. `None` if no limit is reported or only others refuse, or if
    /// the decision is without counters.
    fn shown(&self) -> Option<Decided<'_>> {
        let decision = self.decision()?;
        let mut verdicts = self.verdicts();
        let limits = self.plan.enforced().filter_map(|charge| {
            let (own, rest) = verdicts.split_at_checked(charge.limits.len())?;
            verdicts = rest;
            let own = own.iter().enumerate();
            let own = own.map(move |(limit, verdict)| ((charge, limit), verdict));
            charge.settings.reported.then_some(own)
        });
        let ((charge, limit), verdict) = headers::shown(limits.flatten())?;
        let shown = Decided {
            charge,
            limit,
            verdict,
        };
        (decision.allowed() || !verdict.allowed()).then_some(shown)
    }

    /// The verdict of each limit of the charges that can refuse, in the order of the plan. Empty if
    /// the decision is not based on counters for all of them.
    pub fn verdicts(&self) -> &[Verdict] {
        match &self.verdicts {
            Some(verdicts) => verdicts,
            None => self.decision().map(Decision::verdicts).unwrap_or_default(),
        }
    }

    /// Undoes the charges of rules whose [`CountFilter`](super::CountFilter) rejects the response.
    pub fn on_response<S: Store>(
        &self,
        engine: &Engine<S>,
        status: StatusCode,
        headers: &HeaderMap,
    ) {
        let not_counted = |charge: &&Charge| {
            let filter = charge.settings.count_filter.as_ref();
            filter.is_some_and(|counts| !counts(status, headers))
        };
        if let Combined::Decided(decision) = &self.combined
            && let Some(request) = self.plan.undo_request(
                self.plan
                    .enforced()
                    .filter(not_counted)
                    .map(|charge| (charge, charge.cost)),
            )
        {
            engine.undo(&request, decision);
        }
        for (charge, decision) in self.shadow_decisions() {
            let own = std::iter::once((charge, charge.cost));
            if not_counted(&charge)
                && let Some(request) = self.plan.undo_request(own)
            {
                engine.undo(&request, decision);
            }
        }
    }

    /// Whether the response is needed to its end, to find the [actual cost](super::ActualCost) of the
    /// request: then it is passed to [`settlement`](Enforcement::settlement).
    #[inline]
    pub fn settles(&self) -> bool {
        let mut charges = self.plan.charges().iter();
        charges.any(|charge| charge.settings.actual.is_some())
    }

    /// Whether the service has to be asked for a response that is not compressed.
    #[inline]
    pub fn needs_identity(&self) -> bool {
        let mut charges = self.plan.charges().iter();
        charges.any(|charge| {
            let actual = charge.settings.actual.as_ref();
            actual.is_some_and(ActualCost::reads_body)
        })
    }

    /// Reads the head of a response for the actual costs. Costs that were undone because the response
    /// does not count are not settled.
    pub fn settlement(&self, status: StatusCode, headers: &HeaderMap) -> Settlement {
        let costs = self.plan.charges().iter().map(|charge| {
            let filter = charge.settings.count_filter.as_ref();
            let counts = filter.is_none_or(|counts| counts(status, headers));
            charge.settings.actual.as_ref().filter(|_| counts)
        });
        Settlement(ActualReader::new(costs, headers))
    }

    /// Corrects what was charged by the actual costs, once the response has ended. Without a settlement,
    /// as for a response that broke off, the estimates stay.
    pub fn settle<S: Store>(&self, engine: &Engine<S>, settlement: Option<Settlement>) {
        if self.plan.verb() != Verb::Reserve {
            return;
        }
        let actual = settlement.map(|settlement| settlement.0.finish());
        let charges = self.plan.charges().iter().enumerate();
        let costs: Vec<u32> = charges
            .map(|(at, charge)| {
                let actual = actual.as_ref().and_then(|costs| *costs.get(at)?);
                actual.unwrap_or(charge.cost)
            })
            .collect();
        let requests = self.plan.settle_requests(&costs);
        let undecided = requests.filter(|request| engine.try_decide(request).is_none());
        if undecided.count() == 0 {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            let requests = self.plan.settle_requests(&costs);
            return requests.for_each(|request| engine.store().submit(&request));
        };
        let (engine, plan) = (engine.clone(), self.plan.clone());
        runtime.spawn(async move {
            // One that was decided already finds nothing more to settle.
            for request in plan.settle_requests(&costs) {
                engine.decide(&request).await;
            }
        });
    }

    /// The outcome of each rule, for metrics. Rules that admit what another rule refuses have
    /// none, and nor do verbs that take nothing.
    pub fn outcomes(&self) -> impl Iterator<Item = (&str, Outcome)> {
        let stop = self.plan.stopped().filter(|_| self.takes());
        let stop = stop.map(|stop| (&*stop.settings.name, Outcome::Refused));
        let enforced = self.enforced_rules();
        let enforced = enforced.map(|(charges, _, outcome)| (&*charges[0].settings.name, outcome));
        let shadows = self.shadow_outcomes();
        let shadows = shadows.map(|(charge, outcome)| (&*charge.settings.name, outcome));
        stop.into_iter().chain(enforced).chain(shadows)
    }

    /// The rules that admitted the request and have less than a fifth of a limit left, for warnings
    /// before clients are refused.
    pub fn near_limit(&self) -> impl Iterator<Item = &str> {
        let is_near = |verdict: &Verdict| {
            verdict.allowed() && u64::from(verdict.remaining) * 5 < u64::from(verdict.limit)
        };
        let near = self.enforced_rules().filter(move |(_, verdicts, outcome)| {
            *outcome != Outcome::Refused && verdicts.iter().any(is_near)
        });
        near.map(|(charges, ..)| &*charges[0].settings.name)
    }

    /// The outcome of each key, for statistics by key: one for each rule and key.
    pub fn charges(&self) -> impl Iterator<Item = (&Charge, Outcome)> {
        let enforced = self
            .enforced_rules()
            .flat_map(|(charges, verdicts, outcome)| {
                charges.iter().enumerate().filter_map(move |(i, charge)| {
                    let seen = charges[..i].iter().any(|other| other.key == charge.key);
                    let outcome = match outcome {
                        // Another key of the same rule was refused.
                        Outcome::Refused if !refuses(charges, verdicts, &charge.key) => {
                            Outcome::Admitted
                        }
                        outcome => outcome,
                    };
                    (!seen).then_some((charge, outcome))
                })
            });
        enforced.chain(self.shadow_outcomes())
    }

    /// The charges, the verdicts and the outcome of each rule that can refuse.
    fn enforced_rules(&self) -> impl Iterator<Item = (&[Charge], &[Verdict], Outcome)> {
        let mut verdicts = self.verdicts();
        let rules = self.plan.charges().chunk_by(Charge::same_rule);
        rules.filter_map(move |charges| {
            if charges[0].settings.shadow || !self.takes() {
                return None;
            }
            let limits = charges.iter().map(|charge| charge.limits.len()).sum();
            let (own, rest) = verdicts.split_at_checked(limits).unwrap_or_default();
            verdicts = rest;
            let outcome = match &self.combined {
                Combined::Skipped => return None,
                Combined::QueueFull => Outcome::Refused,
                Combined::Decided(decision) => Outcome::from_decision(decision, own)?,
            };
            Some((charges, own, outcome))
        })
    }

    fn shadow_outcomes(&self) -> impl Iterator<Item = (&Charge, Outcome)> {
        let each = self.shadow_decisions().filter(|_| self.takes());
        each.map(|(charge, decision)| {
            let outcome = Outcome::from_shadow(decision, self.plan.delay_mode());
            (charge, outcome)
        })
    }

    /// Whether the verb takes units.
    fn takes(&self) -> bool {
        match self.plan.verb() {
            Verb::Check | Verb::Take | Verb::Charge | Verb::Reserve => true,
            Verb::Peek
            | Verb::Refund
            | Verb::Reset
            | Verb::Settle
            | Verb::Renew
            | Verb::Release => false,
        }
    }

    /// The name of the refusing limit that is shown if its retry fits, otherwise of the binding one,
    /// and whether it is reported.
    fn refusing_limit(&self, fits: impl Fn(Retry) -> bool) -> (&str, bool) {
        if let Some(shown) = self.shown()
            && shown.verdict.retry().is_some_and(fits)
        {
            return (shown.charge.limits.shown_name(shown.limit), true);
        }
        let Some((i, charge)) = self.binding() else {
            return ("", false);
        };
        // Without verdicts no limit is shown, but the binding one is known.
        let reported = charge.settings.reported && self.verdicts().is_empty();
        (charge.limits.shown_name(i), reported)
    }

    /// The binding charge, and the position of the binding limit in it.
    fn binding(&self) -> Option<(usize, &Charge)> {
        let mut at = self.decision().map_or(0, Decision::binding);
        if let Some(positions) = self.plan.positions() {
            at = positions.iter().position(|position| *position == at)?;
        }
        self.plan.enforced().find_map(|charge| {
            let len = charge.limits.len();
            if at < len {
                return Some((at, charge));
            }
            at -= len;
            None
        })
    }
}

impl Combined {
    fn admits(&self) -> bool {
        match self {
            Combined::Skipped => true,
            Combined::Decided(decision) => decision.allowed(),
            Combined::QueueFull => false,
        }
    }
}

impl Charge {
    /// Whether a limit may delay the request.
    fn shapes(&self) -> bool {
        let mut limits = self.limits.iter();
        limits.any(|limit| limit.quota().algorithm().is_shaping())
    }

    fn same_rule(&self, other: &Charge) -> bool {
        Arc::ptr_eq(&self.settings, &other.settings)
    }
}

/// Whether a limit of that key refuses. A rule with one charge has one key.
fn refuses(charges: &[Charge], verdicts: &[Verdict], key: &Key<'_>) -> bool {
    let mut own = charges
        .iter()
        .flat_map(|charge| charge.limits.iter().map(|_| &charge.key))
        .zip(verdicts);
    charges.len() == 1 || own.any(|(other, verdict)| other == key && !verdict.allowed())
}
