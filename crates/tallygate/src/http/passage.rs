//! A plan carried out: the store is asked, shaping is sat out, and what should not count is given
//! back afterwards. Knows limiters and plans; knows no service and no body.

use std::time::Duration;

use ::http::{HeaderMap, StatusCode};
use tallygate_core::Verdict;

use super::outcome::Outcome;
use super::plan::{Charge, Plan, Why, join};
use super::{Limits, Refusal, headers};
use crate::decision::{Decision, RetryAfter};
use crate::limiter::{Limiter, Wait};
use crate::request::Request;
use crate::store::Store;

/// What became of a request before the rules of its plan.
#[derive(Debug)]
pub struct Passage {
    plan: Plan,
    enforced: Enforced,
    /// What each rule that only watches came to, by its place in the plan.
    watched: Vec<(usize, Decision)>,
}

/// What became of it before the rules that are not in shadow.
#[derive(Debug)]
enum Enforced {
    /// There is none, or one stopped it.
    Nobody,
    /// All of them together.
    Decided(Decision),
    /// Too many are held back already.
    Crowded,
}

impl Passage {
    /// Asks a store that is in this process, where nothing has to be waited for.
    ///
    /// # Errors
    /// The plan, where that is not so: it has to be [waited](Passage::of) for.
    pub fn at_once<S: Store>(limiter: &Limiter<S>, plan: Plan) -> Result<Self, Plan> {
        if plan.charges().iter().any(shapes) {
            return Err(plan);
        }
        let asked = plan.request();
        let decided = asked.map(|request| limiter.decide_at_once(&request));
        let enforced = match decided {
            None => Enforced::Nobody,
            Some(Some(decision)) => Enforced::Decided(decision),
            Some(None) => return Err(plan),
        };
        let mut watched = Vec::new();
        if enforced.passes() && plan.stopped().is_none() {
            for (i, charge) in plan.shadows() {
                let decided = limiter.decide_at_once(&charge.request());
                watched.extend(decided.map(|decision| (i, decision)));
            }
            // Nothing is counted yet: it can be waited for instead.
            let nothing = matches!(enforced, Enforced::Nobody) && watched.is_empty();
            if nothing && plan.shadows().next().is_some() {
                return Err(plan);
            }
        }
        Ok(Passage {
            plan,
            enforced,
            watched,
        })
    }

    /// Asks the store, and sits out the delay of a request that is let through but held back.
    /// Dropped meanwhile, its place in the queue passes to the next.
    pub async fn of<S: Store>(limiter: &Limiter<S>, plan: Plan) -> Self {
        let enforced = match plan.request() {
            None => Enforced::Nobody,
            Some(request) => Enforced::of(limiter, &request, plan.longest_delay()).await,
        };
        let mut watched = Vec::new();
        if enforced.passes() && plan.stopped().is_none() {
            for (i, charge) in plan.shadows() {
                watched.push((i, limiter.decide(&charge.request()).await));
            }
        }
        Passage {
            plan,
            enforced,
            watched,
        }
    }

    /// A plan whose rules have decided, in whichever way; rules that only watch have no say.
    pub fn decided(plan: Plan, decision: Decision) -> Self {
        Passage {
            plan,
            enforced: Enforced::Decided(decision),
            watched: Vec::new(),
        }
    }

    /// The plan that was carried out.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The decision over all rules that enforce; none if there are none, or nothing was asked.
    pub fn decision(&self) -> Option<&Decision> {
        match &self.enforced {
            Enforced::Decided(decision) => Some(decision),
            Enforced::Nobody | Enforced::Crowded => None,
        }
    }

    /// Why the request is turned away; none if it goes ahead.
    pub fn refusal(&self) -> Option<Refusal<'_>> {
        if let Some(stop) = self.plan.stopped() {
            let rule = &*stop.terms.name;
            return Some(match stop.why {
                Why::Denied => Refusal::Denied { rule },
                Why::NoKey => Refusal::NoKey { rule },
                Why::TooManyLimits => Refusal::TooManyLimits { rule },
                Why::Closed => Refusal::Closed,
            });
        }
        match &self.enforced {
            Enforced::Nobody => None,
            Enforced::Decided(decision) if decision.allowed() => None,
            Enforced::Decided(decision) => Some(match decision.retry_after() {
                None => Refusal::Unavailable,
                Some(RetryAfter::Never) => Refusal::NeverFits {
                    limit: self.binding_name(),
                },
                Some(RetryAfter::After(retry_after)) => {
                    let limit = self.binding_name();
                    Refusal::Quota { limit, retry_after }
                }
            }),
            Enforced::Crowded => Some(Refusal::Crowded),
        }
    }

    /// Whether there is anything to do when the request is answered.
    pub fn concerns_answer(&self) -> bool {
        let mut each = self.plan.charges().iter();
        each.any(|charge| charge.terms.concern_answer())
    }

    /// Tells the client, in the headers of an answer of our own.
    ///
    /// The rule of the binding limit says which headers tell of counts. When to come back is told
    /// if any rule tells it.
    pub fn tell(&self, headers: &mut HeaderMap) {
        let Some(decision) = self.decision() else {
            return;
        };
        if let Some(RetryAfter::After(wait)) = decision.retry_after() {
            let mut rules = self.plan.enforced().map(|charge| &charge.terms.headers);
            let _ = rules.any(|rule| rule.write_retry_after(headers, wait));
        }
        self.tell_counts(decision, headers);
    }

    /// Tells the client, in the headers of the service's answer. Where a gate within has told of
    /// less already, or has refused, that stands.
    pub fn tell_through(&self, status: StatusCode, headers: &mut HeaderMap) {
        let Some(decision) = self.decision() else {
            return;
        };
        if !headers::stands(headers, status, decision) {
            self.tell_counts(decision, headers);
        }
    }

    /// Tells what was counted; what was decided without counting says nothing.
    fn tell_counts(&self, decision: &Decision, headers: &mut HeaderMap) {
        if decision.verdicts().is_empty() {
            return;
        }
        let Some((i, charge)) = self.binding() else {
            return;
        };
        let rule = &charge.terms.headers;
        let known = self.plan.enforced();
        let known = known.filter(|charge| charge.terms.headers.lists_like(rule));
        let limits = known.map(|charge| &*charge.limits);
        rule.write(headers, decision, charge.limits.quoted(i), limits);
    }

    /// Gives back what was taken under rules by which an answer of this kind does not count.
    pub fn answered<S: Store>(
        &self,
        limiter: &Limiter<S>,
        status: StatusCode,
        headers: &HeaderMap,
    ) {
        let given_back = |charge: &&Charge| {
            let counts = charge.terms.counts.as_ref();
            counts.is_some_and(|counts| !counts(status, headers))
        };
        if let Enforced::Decided(decision) = &self.enforced
            && let Some(request) = join(self.plan.enforced().filter(given_back))
        {
            limiter.undo(&request, decision);
        }
        for (i, decision) in &self.watched {
            let charge = self.plan.charges().get(*i).filter(given_back);
            if let Some(charge) = charge {
                limiter.undo(&charge.request(), decision);
            }
        }
    }

    /// What each rule that had a say came to, for whoever counts: a rule that would have let a
    /// request through that another one refused had none.
    pub fn outcomes(&self) -> impl Iterator<Item = (&str, Outcome)> {
        let stopped = self
            .plan
            .stopped()
            .map(|stop| (&*stop.terms.name, Outcome::Refused));
        let charged = self.charged();
        let charged = charged.map(|(charge, outcome)| (&*charge.terms.name, outcome));
        stopped.into_iter().chain(charged)
    }

    /// What each rule came to that asked the store, with whom it was asked for; whoever was stopped
    /// was asked for with nobody.
    pub fn charged(&self) -> impl Iterator<Item = (&Charge, Outcome)> {
        let mut verdicts = self.decision().map(Decision::verdicts).unwrap_or_default();
        let enforced = self.plan.enforced().filter_map(move |charge| {
            let (own, rest) = verdicts
                .split_at_checked(charge.limits.len())
                .unwrap_or_default();
            verdicts = rest;
            Some((charge, self.outcome(own)?))
        });
        let watched = self.watched.iter().filter_map(|(i, decision)| {
            let charge = self.plan.charges().get(*i)?;
            Some((charge, Outcome::watched(decision)))
        });
        enforced.chain(watched)
    }

    /// What a rule with these verdicts came to.
    fn outcome(&self, own: &[Verdict]) -> Option<Outcome> {
        match &self.enforced {
            Enforced::Nobody => None,
            Enforced::Crowded => Some(Outcome::Refused),
            Enforced::Decided(decision) => Outcome::of(decision, own),
        }
    }

    /// The rule and the limit that decided.
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

impl Enforced {
    async fn of<S: Store>(
        limiter: &Limiter<S>,
        request: &Request<'_>,
        longest: Option<Duration>,
    ) -> Self {
        let wait = longest.map_or(Wait::forever(), Wait::at_most);
        match limiter.admit(request, wait).await {
            Ok(decision) => Enforced::Decided(decision),
            Err(_) => Enforced::Crowded,
        }
    }

    fn passes(&self) -> bool {
        match self {
            Enforced::Nobody => true,
            Enforced::Decided(decision) => decision.allowed(),
            Enforced::Crowded => false,
        }
    }
}

fn shapes(charge: &Charge) -> bool {
    let shapes = |limits: &Limits| {
        limits
            .iter()
            .any(|limit| limit.quota().algorithm().is_shaping())
    };
    !charge.terms.shadow && shapes(&charge.limits)
}
