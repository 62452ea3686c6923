//! Decides a check: which limits it is about, and what they say.

use std::sync::Arc;

use smallvec::SmallVec;
use tallygate::http::{Charge, DelayMode, Plan, StopReason, TryEnforce, enforce, try_enforce};
use tallygate::{Key, Member, RequestError, Verb, Weight};

use super::body::{Body, Object, OneLimit};
use super::check_response::CheckResponse;
use super::{Api, attributes};
use crate::problem::{Code, Problem};
use crate::response;

/// A check that was parsed and not decided yet.
pub(super) struct PlannedCheck {
    plan: Plan,
    /// What a check without limits is granted.
    cost: Option<u32>,
    /// Whether a settle above its estimate is allowed.
    may_change: bool,
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
        if verb.needs_id() != body.id.is_some() {
            let detail = "`id` goes with reserve and settle, which need one";
            return Err(Problem::new(Code::BadField, detail));
        }
        let member = member(body.member, body.weight)?;
        let Body {
            key,
            quota,
            name,
            limits,
            rule,
            attributes,
            cost,
            owner,
            id,
            ..
        } = body;
        let mut plan = match (key, quota, name, limits, rule, attributes) {
            (Some(key), Some(quota), name, None, None, None) => {
                let limit = Object(OneLimit {
                    key,
                    quota,
                    name,
                    cost,
                });
                self.plan_limits([limit], 1)
            }
            (None, None, None, Some(limits), None, None) => {
                self.plan_limits(limits, cost.unwrap_or(1))
            }
            (None, None, None, None, Some(rule), attributes) => {
                let head = attributes::head(attributes.map(|given| given.0).unwrap_or_default())?;
                let plan = self.state.active_rules.plan_rule(&rule, &(&head).into());
                let detail = "no active rule has that name";
                let mut plan = plan.ok_or_else(|| Problem::new(Code::UnknownRule, detail))?;
                if let Some(cost) = cost {
                    plan.set_cost(cost);
                }
                Ok(plan)
            }
            _ => {
                let detail = "a check has `key` and `quota`, or `limits`, or `rule` and \
                              `attributes`, each with `cost`, `verb`, `member`, `owner` and so on if need be";
                Err(Problem::new(Code::BadBody, detail))
            }
        }?;
        plan.set_verb(verb);
        plan.set_delay_mode(DelayMode::Report);
        if let Some(member) = member {
            plan.set_member(&member);
        }
        if let Some(owner) = owner {
            plan.set_owner(owner);
        }
        if let Some(id) = id {
            plan.set_id(id);
        }
        if plan.lacks_owner() && plan.stopped().is_none() {
            let detail = format!("{verb} of a concurrency limit needs an `owner`");
            return Err(Problem::new(Code::BadField, detail));
        }
        Ok(PlannedCheck {
            plan,
            cost,
            may_change,
        })
    }

    fn plan_limits(
        &self,
        limits: impl IntoIterator<Item = Object<OneLimit>>,
        cost: u32,
    ) -> Result<Plan, Problem> {
        let charge = |Object(limit): Object<OneLimit>| {
            let OneLimit {
                key,
                quota,
                name,
                cost: own,
            } = limit;
            let cost = own.unwrap_or(cost);
            Ok(Charge {
                settings: Arc::clone(&self.no_rule),
                key: Key::from(key),
                limits: self.quota_cache.limit(&quota, name.as_deref())?,
                cost,
                in_flight: cost,
                member: None,
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
            plan,
            cost,
            may_change,
        } = check;
        let verb = plan.verb();
        if plan.stopped().is_none() && plan.charges().is_empty() {
            return CheckResponse::Unlimited {
                granted: match verb {
                    Verb::Check | Verb::Take | Verb::Charge | Verb::Reserve => cost.unwrap_or(1),
                    Verb::Peek
                    | Verb::Refund
                    | Verb::Reset
                    | Verb::Settle
                    | Verb::Renew
                    | Verb::Release => 0,
                },
            };
        }
        if verb == Verb::Settle && !may_change && self.settles_above(&plan).await {
            let detail = "a settle above its estimate needs the admin token, or, if none is set, to \
                          come from this machine";
            return CheckResponse::Stopped(Problem::new(Code::TokenRequired, detail));
        }
        let enforcement = self.state.enforce(plan).await;
        let Some(stop) = enforcement.plan().stopped() else {
            if let Some(estimate) = enforcement.conflicting_estimate() {
                let detail = format!("the id is in use with an estimate of {estimate}");
                return CheckResponse::Stopped(Problem::new(Code::IdConflict, detail));
            }
            return CheckResponse::Decided(enforcement);
        };
        let (code, detail) = match stop.reason {
            StopReason::Denied => (Code::Denied, "the rule denies this client"),
            StopReason::NoKey => (Code::MissingKey, "the attributes lack the key of the rule"),
            StopReason::NoAddress => (Code::MissingKey, "the attributes lack `ip`"),
            StopReason::TooManyLimits => (
                Code::TooManyLimits,
                "the rule has more limits than fit into a request",
            ),
            StopReason::TooManySegments => {
                (Code::TargetTooLong, "the path has more than 256 segments")
            }
            StopReason::Closed => (Code::Closed, "the kill switch is closed"),
        };
        CheckResponse::Stopped(Problem::new(code, detail))
    }
}

impl Api {
    /// Whether a settle costs more than what its id reserved. An unknown id reserved nothing, and a
    /// settle of it changes nothing.
    async fn settles_above(&self, plan: &Plan) -> bool {
        // A reserve of nothing answers what is reserved, and changes nothing.
        let mut reserved = plan.clone();
        reserved.set_verb(Verb::Reserve);
        reserved.set_cost(0);
        reserved.set_in_flight(0);
        let reserved = match try_enforce(&self.state.engine, reserved) {
            TryEnforce::Done(enforcement) => enforcement,
            TryEnforce::Pending(plan) => enforce(&self.state.engine, plan).await,
        };
        let costs = plan.charges().iter().flat_map(|charge| {
            let costs = charge.limits.iter();
            costs.map(|_| charge.cost)
        });
        let mut estimates = costs.zip(reserved.verdicts());
        estimates.any(|(cost, verdict)| verdict.granted() > 0 && cost > verdict.granted())
    }
}

/// The member of shared limits, if one is given.
fn member(name: Option<String>, weight: Option<u32>) -> Result<Option<Member<'static>>, Problem> {
    let weight = match weight {
        None => Weight::ONE,
        Some(weight) => {
            Weight::new(weight).map_err(|error| Problem::new(Code::BadField, error.to_string()))?
        }
    };
    Ok(name.map(|name| Member::new(Key::from(name)).weight(weight)))
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
        let detail = "`verb` is not check, peek, take, charge, refund, reset, reserve, settle, renew or \
                      release";
        Problem::new(Code::BadField, detail)
    })?;
    if matches!(verb, Verb::Charge | Verb::Refund | Verb::Reset) && !may_change {
        let detail = "charge, refund and reset need the admin token, or, if none is set, to come \
                      from this machine";
        return Err(Problem::new(Code::TokenRequired, detail));
    }
    Ok(verb)
}
