//! From a question to its answer: which limits it is about, and what they say. Knows bodies and
//! decisions; knows nothing of how an answer is written.

use std::sync::Arc;

use smallvec::SmallVec;
use tallygate::http::{Charge, DelayMode, Limits, Plan, RuleSettings, StopReason};
use tallygate::{Key, RequestError, Verb};

use super::attributes;
use super::body::{Body, Object, OneLimit};
use super::check_response::CheckResponse;
use super::quota_cache::QuotaCache;
use crate::problem::{Code, Problem};
use crate::state::ServerState;

/// Somebody who asks.
pub(super) struct CheckHandler<'s> {
    pub(super) state: &'s ServerState,
    pub(super) quota_cache: &'s QuotaCache,
    /// The settings of limits that the request names itself.
    pub(super) no_rule: &'s Arc<RuleSettings>,
    /// Whether they may charge, refund and reset.
    pub(super) may_change: bool,
}

impl CheckHandler<'_> {
    /// Answers a question.
    pub(super) async fn check(&self, body: Body) -> Result<CheckResponse, Problem> {
        let verb = self.verb(body.verb.as_deref())?;
        let cost = body.cost;
        match body {
            Body {
                key: Some(key),
                quota: Some(quota),
                name,
                limits: None,
                rule: None,
                attributes: None,
                ..
            } => {
                let limit = self.quota_cache.limit(&quota, name.as_deref())?;
                let limits = SmallVec::from_iter([(Key::from(key), limit)]);
                self.check_limits(limits, cost.unwrap_or(1), verb).await
            }
            Body {
                key: None,
                quota: None,
                name: None,
                limits: Some(limits),
                rule: None,
                attributes: None,
                ..
            } => {
                let each = limits
                    .into_iter()
                    .map(|Object(OneLimit { key, quota, name })| {
                        let limit = self.quota_cache.limit(&quota, name.as_deref())?;
                        Ok((Key::from(key), limit))
                    });
                let limits = each.collect::<Result<_, Problem>>()?;
                self.check_limits(limits, cost.unwrap_or(1), verb).await
            }
            Body {
                key: None,
                quota: None,
                name: None,
                limits: None,
                rule: Some(rule),
                attributes,
                ..
            } => {
                let head = attributes::head(attributes.map(|given| given.0).unwrap_or_default())?;
                let plan = self.state.active_rules.plan_rule(&rule, &(&head).into());
                let Some(plan) = plan else {
                    let detail = "there is no rule of that name in force";
                    return Err(Problem::new(Code::UnknownRule, detail));
                };
                Ok(self.enforce(plan, cost, verb).await)
            }
            _ => {
                let detail = "a question is `key` and `quota`, or `limits`, or `rule` and \
                              `attributes`, each with `cost` and `verb` if need be";
                Err(Problem::new(Code::BadBody, detail))
            }
        }
    }

    fn verb(&self, word: Option<&str>) -> Result<Verb, Problem> {
        let verb = word.map_or(Ok(Verb::Check), str::parse).map_err(|_| {
            let detail = "`verb` is not check, peek, take, charge, refund or reset";
            Problem::new(Code::BadField, detail)
        })?;
        match verb {
            Verb::Check | Verb::Peek | Verb::Take => Ok(verb),
            Verb::Charge | Verb::Refund | Verb::Reset if self.may_change => Ok(verb),
            Verb::Charge | Verb::Refund | Verb::Reset => {
                let detail = "charge, refund and reset are for administrators: from this machine, \
                              or with the token";
                Err(Problem::new(Code::TokenRequired, detail))
            }
        }
    }

    async fn check_limits(
        &self,
        limits: SmallVec<[(Key<'static>, Arc<Limits>); 1]>,
        cost: u32,
        verb: Verb,
    ) -> Result<CheckResponse, Problem> {
        if let Some(plan) = self.state.active_rules.kill_switch_plan() {
            return Ok(self.enforce(plan, Some(cost), verb).await);
        }
        if limits.is_empty() {
            return Err(request_problem(&RequestError::NoLimit));
        }
        let mut plan = Plan::new();
        for (key, limits) in limits {
            let settings = Arc::clone(self.no_rule);
            let charge = Charge {
                settings,
                key,
                limits,
                cost,
            };
            plan.try_charge(charge)
                .map_err(|error| request_problem(&error))?;
        }
        Ok(self.enforce(plan, Some(cost), verb).await)
    }

    async fn enforce(&self, mut plan: Plan, cost: Option<u32>, verb: Verb) -> CheckResponse {
        if plan.stopped().is_none() && plan.charges().is_empty() {
            return CheckResponse::Unlimited {
                granted: match verb {
                    Verb::Check | Verb::Take | Verb::Charge => cost.unwrap_or(1),
                    Verb::Peek | Verb::Refund | Verb::Reset => 0,
                },
            };
        }
        plan.set_verb(verb);
        plan.set_delay_mode(DelayMode::Report);
        if let Some(cost) = cost {
            plan.set_cost(cost);
        }
        let enforcement = self.state.enforce(plan).await;
        let Some(stop) = enforcement.plan().stopped() else {
            return CheckResponse::Decided(enforcement);
        };
        let (code, detail) = match stop.reason {
            StopReason::Denied => (Code::Denied, "the rule turns this client away"),
            StopReason::NoKey => (
                Code::MissingKey,
                "the attributes lack what the rule tells clients apart by",
            ),
            StopReason::TooManyLimits => (
                Code::TooManyLimits,
                "the rule has more limits than fit into a request",
            ),
            StopReason::Closed => (Code::Closed, "the kill switch lets nobody through for now"),
        };
        CheckResponse::Stopped(Problem::new(code, detail))
    }
}

fn request_problem(error: &RequestError) -> Problem {
    let code = match error {
        RequestError::SameCounterTwice { .. } => Code::SameCounterTwice,
        RequestError::TooManyLimits => Code::TooManyLimits,
        _ => Code::BadBody,
    };
    Problem::new(code, error.to_string())
}
