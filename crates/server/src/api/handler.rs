//! Decides a check: which limits it is about, and what they say.

use std::sync::Arc;

use smallvec::SmallVec;
use tallygate::http::{Charge, DelayMode, Plan, StopReason};
use tallygate::{Key, RequestError, Verb};

use super::body::{Body, Object, OneLimit};
use super::check_response::CheckResponse;
use super::{Api, attributes};
use crate::problem::{Code, Problem};
use crate::response;

/// A check that was parsed and not decided yet.
pub(super) struct PlannedCheck {
    plan: Plan,
    cost: Option<u32>,
    verb: Verb,
}

impl PlannedCheck {
    pub(super) fn limits(&self) -> usize {
        let charges = self.plan.charges().iter();
        charges.map(|charge| charge.limits.len()).sum()
    }
}

impl Api {
    /// Parses a check. Only administrators may change counters in other ways.
    pub(super) fn plan_check(
        &self,
        json: &[u8],
        may_change: bool,
    ) -> Result<PlannedCheck, Problem> {
        let Object(body) = response::parse_json::<Object<Body>>(json)?;
        let verb = parse_verb(body.verb.as_deref(), may_change)?;
        let Body {
            key,
            quota,
            name,
            limits,
            rule,
            attributes,
            cost,
            ..
        } = body;
        let plan = match (key, quota, name, limits, rule, attributes) {
            (Some(key), Some(quota), name, None, None, None) => {
                let limit = Object(OneLimit { key, quota, name });
                self.plan_limits([limit], cost.unwrap_or(1))
            }
            (None, None, None, Some(limits), None, None) => {
                self.plan_limits(limits, cost.unwrap_or(1))
            }
            (None, None, None, None, Some(rule), attributes) => {
                let head = attributes::head(attributes.map(|given| given.0).unwrap_or_default())?;
                let plan = self.state.active_rules.plan_rule(&rule, &(&head).into());
                let detail = "no active rule has that name";
                plan.ok_or_else(|| Problem::new(Code::UnknownRule, detail))
            }
            _ => {
                let detail = "a check has `key` and `quota`, or `limits`, or `rule` and \
                              `attributes`, each with `cost` and `verb` if need be";
                Err(Problem::new(Code::BadBody, detail))
            }
        };
        plan.map(|plan| PlannedCheck { plan, cost, verb })
    }

    fn plan_limits(
        &self,
        limits: impl IntoIterator<Item = Object<OneLimit>>,
        cost: u32,
    ) -> Result<Plan, Problem> {
        let charge = |Object(OneLimit { key, quota, name })| {
            Ok(Charge {
                settings: Arc::clone(&self.no_rule),
                key: Key::from(key),
                limits: self.quota_cache.limit(&quota, name.as_deref())?,
                cost,
            })
        };
        let charges = limits.into_iter().map(charge);
        let charges = charges.collect::<Result<SmallVec<[Charge; 1]>, Problem>>()?;
        if let Some(plan) = self.state.active_rules.kill_switch_plan() {
            return Ok(plan);
        }
        if charges.is_empty() {
            return Err(request_problem(&RequestError::NoLimit));
        }
        let mut plan = Plan::new();
        for charge in charges {
            plan.try_charge(charge)
                .map_err(|error| request_problem(&error))?;
        }
        Ok(plan)
    }

    pub(super) async fn enforce(&self, check: PlannedCheck) -> CheckResponse {
        let PlannedCheck {
            mut plan,
            cost,
            verb,
        } = check;
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
            StopReason::Denied => (Code::Denied, "the rule denies this client"),
            StopReason::NoKey => (Code::MissingKey, "the attributes lack the key of the rule"),
            StopReason::TooManyLimits => (
                Code::TooManyLimits,
                "the rule has more limits than fit into a request",
            ),
            StopReason::Closed => (Code::Closed, "the kill switch is closed"),
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

fn parse_verb(word: Option<&str>, may_change: bool) -> Result<Verb, Problem> {
    let verb = word.map_or(Ok(Verb::Check), str::parse).map_err(|_| {
        let detail = "`verb` is not check, peek, take, charge, refund or reset";
        Problem::new(Code::BadField, detail)
    })?;
    if matches!(verb, Verb::Charge | Verb::Refund | Verb::Reset) && !may_change {
        let detail = "charge, refund and reset are for administrators: from this machine, \
                      or with the token";
        return Err(Problem::new(Code::TokenRequired, detail));
    }
    Ok(verb)
}
