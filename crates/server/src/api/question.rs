//! From a question to its answer: which limits it is about, and what they say. Knows bodies and
//! decisions; knows nothing of how an answer is written.

use std::sync::Arc;

use smallvec::SmallVec;
use tallygate::http::{Headers, Limits, Plan, Why};
use tallygate::{Key, Request, RequestError, Verb};

use super::answer::Answer;
use super::attributes;
use super::body::{Body, Object, OneLimit};
use super::known::Known;
use crate::metrics::NO_RULE;
use crate::problem::{Code, Problem};
use crate::state::Serving;

/// Somebody who asks.
pub(super) struct Asking<'s> {
    pub(super) serving: &'s Serving,
    pub(super) known: &'s Known,
    /// Whether they may charge, refund and reset.
    pub(super) may_change: bool,
}

/// The limits of a question that names them itself.
type Named = SmallVec<[(Key<'static>, Arc<Limits>); 1]>;

impl Asking<'_> {
    /// Answers a question.
    pub(super) async fn ask(&self, body: Body) -> Result<Answer, Problem> {
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
                let limit = self.known.limit(&quota, name.as_deref())?;
                let named: Named = SmallVec::from_iter([(Key::from(key), limit)]);
                self.named(named, cost.unwrap_or(1), verb).await
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
                        let limit = self.known.limit(&quota, name.as_deref())?;
                        Ok((Key::from(key), limit))
                    });
                let named = each.collect::<Result<Named, Problem>>()?;
                self.named(named, cost.unwrap_or(1), verb).await
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
                let plan = self.serving.force.plan_of(&rule, &(&head).into());
                let Some(plan) = plan else {
                    let detail = "there is no rule of that name in force";
                    return Err(Problem::new(Code::UnknownRule, detail));
                };
                self.by_rule(&plan, cost, verb).await
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

    async fn named(&self, named: Named, cost: u32, verb: Verb) -> Result<Answer, Problem> {
        if let Some(plan) = self.serving.force.overruled() {
            return self.by_rule(&plan, Some(cost), verb).await;
        }
        let mut each = named.iter().map(|(key, limits)| (key, &limits[0]));
        let (key, limit) = each.next().ok_or_else(|| wrong(&RequestError::NoLimit))?;
        let request = each
            .try_fold(Request::new(key, limit), |request, (key, limit)| {
                request.and(key, limit)
            })
            .map_err(|error| wrong(&error))?
            .cost(cost)
            .verb(verb);
        let decision = self.serving.decide(&request, NO_RULE, false).await;
        drop(request);
        Ok(Answer::Decided {
            decision,
            limits: named.into_iter().map(|(_, limits)| limits).collect(),
            headers: Headers::default(),
            shadow: None,
        })
    }

    async fn by_rule(&self, plan: &Plan, cost: Option<u32>, verb: Verb) -> Result<Answer, Problem> {
        if let Some(stop) = plan.stopped() {
            self.serving.stopped(stop, verb);
            let (code, detail) = match stop.why {
                Why::Denied => (Code::Denied, "the rule turns this client away"),
                Why::NoKey => (
                    Code::MissingKey,
                    "the attributes lack what the rule tells clients apart by",
                ),
                Why::TooManyLimits => (
                    Code::TooManyLimits,
                    "the rule has more limits than fit into a request",
                ),
                Why::Closed => (Code::Closed, "the kill switch lets nobody through for now"),
            };
            return Ok(Answer::Stopped(Problem::new(code, detail)));
        }
        let Some(charge) = plan.charges().first() else {
            return Ok(Answer::Unlimited {
                granted: match verb {
                    Verb::Check | Verb::Take | Verb::Charge => cost.unwrap_or(1),
                    Verb::Peek | Verb::Refund | Verb::Reset => 0,
                },
            });
        };
        let cost = cost.unwrap_or(charge.cost);
        let request = Request::of(&charge.key, charge.limits.iter())
            .expect("a rule's limits were checked when it was made")
            .cost(cost)
            .verb(verb);
        let terms = &charge.terms;
        let decision = self
            .serving
            .decide(&request, &terms.name, terms.shadow)
            .await;
        Ok(Answer::Decided {
            decision,
            limits: vec![Arc::clone(&charge.limits)],
            headers: terms.headers,
            shadow: terms.shadow.then_some(cost),
        })
    }
}

fn wrong(error: &RequestError) -> Problem {
    let code = match error {
        RequestError::SameCounterTwice { .. } => Code::SameCounterTwice,
        RequestError::TooManyLimits => Code::TooManyLimits,
        _ => Code::BadBody,
    };
    Problem::new(code, error.to_string())
}
