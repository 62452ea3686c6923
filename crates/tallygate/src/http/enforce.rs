//! The executor: decides a plan and reports the outcome, the headers and the refusal.

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, StatusCode};
use tallygate_core::{Verb, Verdict};

use super::outcome::Outcome;
use super::plan::{Charge, DelayMode, Plan, StopReason, request};
use super::refusal::OVERLOAD_RETRY;
use super::{Refusal, headers};
use crate::decision::{Decision, RetryAfter};
use crate::engine::{Engine, Wait};
use crate::key::Key;
use crate::store::Store;

/// A plan that was decided.
#[derive(Debug)]
pub struct Enforcement {
    plan: Plan,
    combined: Combined,
    /// The decision of each rule in shadow mode, by its position in the plan.
    shadows: Vec<(usize, Decision)>,
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
pub async fn enforce<S: Store>(engine: &Engine<S>, plan: Plan) -> Enforcement {
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
    Enforcement {
        plan,
        combined,
        shadows,
    }
}

/// Decides a plan without waiting. Returns [`TryEnforce::Pending`] if the store has to be asked or a
/// limit may delay the request.
#[inline]
pub fn try_enforce<S: Store>(engine: &Engine<S>, plan: Plan) -> TryEnforce {
    if plan.delay_mode() == DelayMode::Wait && plan.enforced().any(Charge::shapes) {
        return TryEnforce::Pending(plan);
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
    TryEnforce::Done(Enforcement {
        plan,
        combined,
        shadows,
    })
}

impl Enforcement {
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
                StopReason::TooManyLimits => Refusal::TooManyLimits { rule },
                StopReason::Closed => Refusal::Closed,
            });
        }
        match &self.combined {
            Combined::Skipped => None,
            Combined::Decided(decision) if decision.allowed() => None,
            Combined::Decided(decision) => Some(match decision.retry_after() {
                None if decision.shed() => Refusal::Overloaded,
                None => Refusal::Unavailable,
                Some(RetryAfter::Never) => Refusal::NeverFits {
                    limit: self.binding_name(),
                },
                Some(RetryAfter::After(retry_after)) => {
                    let limit = self.binding_name();
                    Refusal::Quota { limit, retry_after }
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
    /// The settings of the binding rule choose the headers with counts. `Retry-After` is sent if
    /// any rule sends it.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        let Some(decision) = self.decision() else {
            return;
        };
        let retry_after = match decision.retry_after() {
            Some(RetryAfter::After(wait)) => Some(wait),
            None if decision.shed() => Some(OVERLOAD_RETRY),
            Some(RetryAfter::Never) | None => None,
        };
        if let Some(wait) = retry_after {
            let mut rules = self.plan.enforced().map(|charge| &charge.settings.headers);
            let _ = rules.any(|rule| rule.write_retry_after(headers, wait));
        }
        self.write_counts(decision, headers);
    }

    /// Adds headers to the response of the service. Headers that an inner rate limiter has set
    /// stay if it refused the request or has less remaining.
    pub fn merge_headers(&self, status: StatusCode, headers: &mut HeaderMap) {
        let Some(decision) = self.decision() else {
            return;
        };
        if !headers::keeps_inner(headers, status, decision) {
            self.write_counts(decision, headers);
        }
    }

    /// Writes the counts. A decision without counters has none.
    fn write_counts(&self, decision: &Decision, headers: &mut HeaderMap) {
        if decision.verdicts().is_empty() {
            return;
        }
        let Some((i, charge)) = self.binding() else {
            return;
        };
        let rule = &charge.settings.headers;
        let listed = self.plan.enforced();
        let listed = listed.filter(|charge| charge.settings.headers.same_draft(rule));
        let limits = listed.map(|charge| &*charge.limits);
        rule.write_counts(headers, decision, charge.limits.quoted(i), limits);
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
            && let Some(request) = request(self.plan.enforced().filter(not_counted))
        {
            engine.undo(&request, decision);
        }
        for (charge, decision) in self.shadow_decisions() {
            if not_counted(&charge) {
                engine.undo(&self.plan.single_request(charge), decision);
            }
        }
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
        let mut verdicts = self.decision().map(Decision::verdicts).unwrap_or_default();
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
            Verb::Check | Verb::Take | Verb::Charge => true,
            Verb::Peek | Verb::Refund | Verb::Reset => false,
        }
    }

    /// The binding charge, and the position of the binding limit in it.
    fn binding(&self) -> Option<(usize, &Charge)> {
        let mut at = self.decision().map_or(0, Decision::binding);
        self.plan.enforced().find_map(|charge| {
            let len = charge.limits.len();
            if at < len {
                return Some((at, charge));
            }
            at -= len;
            None
        })
    }

    fn binding_name(&self) -> &str {
        self.binding()
            .map_or("", |(i, charge)| charge.limits[i].name())
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
