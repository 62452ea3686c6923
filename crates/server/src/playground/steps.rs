//! `POST /api/play`: steps on a visitor's cards, on the store's clock or on the page's own. Knows
//! what is asked and how it is answered; leaves the counting to the store and to the core.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tallygate::http::{Headers, Limits};
use tallygate::{Decision, RetryAfter, Verb};
use tallygate_core::{MAX_TIME_US, evaluate};

use super::sessions::{Clock, Id, Visitor};
use super::snapshot_json::state;
use super::{Playground, validate};
use crate::api::Object;
use crate::problem::{Code, Problem};
use crate::response;

/// What a page asks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    clock: String,
    steps: Vec<Object<Step>>,
}

/// What may be a quota.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    quota: String,
}

/// One step as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    card: String,
    quota: String,
    cost: Option<u32>,
    verb: Option<String>,
    t_us: Option<u64>,
}

/// One step that can be taken.
struct Checked {
    card: String,
    limits: Arc<Limits>,
    cost: u32,
    verb: Verb,
    /// Of the page's own clock.
    t_us: u64,
    /// Whether the card is not asked again in the same question.
    last: bool,
}

impl Playground {
    /// Takes every step in order.
    pub(super) async fn play(&self, id: Id, json: &[u8]) -> Result<Response<Full<Bytes>>, Problem> {
        let Object(Body { clock, steps }) = response::parse::<Object<Body>>(json)?;
        let clock = match &*clock {
            "real" => Clock::Real,
            "supplied" => Clock::Supplied,
            _ => {
                let detail = "`clock` is not real or supplied";
                return Err(Problem::new(Code::BadField, detail));
            }
        };
        let steps = self.checked(clock, steps)?;
        let (visitor, gone) = self.visitors.visitor(id);
        self.real.forget(gone);
        let played = match clock {
            Clock::Real => self.on_real_time(&visitor, &steps).await?,
            Clock::Supplied => self.on_supplied_time(&visitor, &steps),
        };
        let body = json!({
            "store": self.real.kind(),
            "reachable": played.reachable,
            "now_us": played.now_us,
            "answers": played.answers,
        });
        Ok(response::value(StatusCode::OK, &body))
    }

    /// Tells whether a text is a quota that a card can have, for whoever is still writing it.
    pub(super) fn judge(&self, json: &[u8]) -> Result<Response<Full<Bytes>>, Problem> {
        let Object(Text { quota }) = response::parse::<Object<Text>>(json)?;
        let judged = self.known.limit(&quota, None).and_then(|limits| {
            let quota = limits[0].quota();
            validate::quota(quota).map(|()| quota.to_string())
        });
        let body = match judged {
            Ok(quota) => json!({"quota": quota, "problem": null}),
            Err(problem) => json!({"quota": null, "problem": problem.detail}),
        };
        Ok(response::value(StatusCode::OK, &body))
    }

    /// Checks every step before the first is taken.
    fn checked(&self, clock: Clock, steps: Vec<Object<Step>>) -> Result<Vec<Checked>, Problem> {
        let number = steps.len();
        if number == 0 || number > validate::MOST_STEPS {
            let detail = format!("{number} steps are not 1 to {}", validate::MOST_STEPS);
            return Err(Problem::new(Code::TooManyItems, detail));
        }
        let each = steps.into_iter().map(|Object(step)| {
            validate::name(&step.card)?;
            let limits = self.known.limit(&step.quota, None)?;
            validate::quota(limits[0].quota())?;
            let cost = step.cost.unwrap_or(1);
            validate::cost(cost)?;
            let verb = step.verb.as_deref().map_or(Ok(Verb::Check), str::parse);
            let verb = verb.map_err(|_| {
                let detail = "`verb` is not check, peek, take, charge, refund or reset";
                Problem::new(Code::BadField, detail)
            })?;
            Ok(Checked {
                card: step.card,
                limits,
                cost,
                verb,
                t_us: time(clock, step.t_us)?,
                last: false,
            })
        });
        let mut steps = each.collect::<Result<Vec<Checked>, Problem>>()?;
        let mut last: HashMap<(&str, &str), usize> = HashMap::new();
        for (at, step) in steps.iter().enumerate() {
            last.insert((&step.card, step.limits[0].name()), at);
        }
        let last: Vec<usize> = last.into_values().collect();
        for at in last {
            steps[at].last = true;
        }
        Ok(steps)
    }

    async fn on_real_time(&self, visitor: &Visitor, steps: &[Checked]) -> Result<Played, Problem> {
        let mut played = Played::new(steps.len());
        let mut decided = Vec::with_capacity(steps.len());
        let mut seen = Instant::now();
        for step in steps {
            let Checked {
                card, limits, cost, ..
            } = step;
            self.real.forget(visitor.uses(card, limits));
            let key = visitor.id.key(card);
            if step.verb == Verb::Charge {
                let seen = self.real.decide(&key, limits, Verb::Peek, 0).await;
                let owed = seen.verdict().reset_after_us;
                validate::charge(limits[0].quota(), *cost, owed)?;
            }
            let decision = self.real.decide(&key, limits, step.verb, *cost).await;
            decided.push(Instant::now());
            let look = match step.last && !decision.degraded() {
                true => self.real.look(&key, limits).await,
                false => None,
            };
            if let Some(look) = &look {
                played.now_us = look.now_us;
                seen = Instant::now();
            }
            played.reachable &= !decision.degraded();
            let shown = look.map(|look| state(limits[0].quota(), &look.view));
            played.answers.push(answer(&decision, limits, shown));
        }
        // By the store's clock as it was last seen.
        for (answer, at) in played.answers.iter_mut().zip(decided) {
            let before = seen.saturating_duration_since(at).as_micros();
            let after = at.saturating_duration_since(seen).as_micros();
            let [before, after] = [before, after].map(|us| u64::try_from(us).unwrap_or(u64::MAX));
            let now_us = played.now_us.saturating_sub(before).saturating_add(after);
            answer["now_us"] = json!(now_us);
        }
        Ok(played)
    }

    fn on_supplied_time(&self, visitor: &Visitor, steps: &[Checked]) -> Played {
        let mut played = Played::new(steps.len());
        let mut gone = Vec::new();
        let mut cards = visitor.cards();
        for step in steps {
            let quota = step.limits[0].quota();
            let (kept, left) = cards.state(visitor.id, &step.card, &step.limits);
            gone.extend(left);
            let verdict = evaluate(quota, kept, step.verb, step.cost, step.t_us);
            let view = step.last.then(|| kept.inspect(quota, step.t_us));
            let shown = view.map(|view| state(quota, &view));
            let decision = Decision::from(vec![verdict]);
            let mut answer = answer(&decision, &step.limits, shown);
            answer["now_us"] = json!(step.t_us);
            played.answers.push(answer);
            played.now_us = step.t_us;
        }
        drop(cards);
        self.real.forget(gone);
        played
    }
}

/// What came of some steps.
struct Played {
    /// Whether the store answered every time.
    reachable: bool,
    now_us: u64,
    answers: Vec<Value>,
}

impl Played {
    fn new(steps: usize) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_us = since_epoch.unwrap_or_default().as_micros();
        Played {
            reachable: true,
            // Until a store shows its own.
            now_us: u64::try_from(now_us).unwrap_or(u64::MAX),
            answers: Vec::with_capacity(steps),
        }
    }
}

/// The page's own time of a step, where there is to be one.
fn time(clock: Clock, t_us: Option<u64>) -> Result<u64, Problem> {
    let detail = match (clock, t_us) {
        (Clock::Supplied, Some(t_us)) if t_us <= MAX_TIME_US => return Ok(t_us),
        (Clock::Real, None) => return Ok(0),
        (Clock::Supplied, Some(t_us)) => format!("t_us {t_us} is above {MAX_TIME_US}"),
        (Clock::Supplied, None) => "a step on supplied time has no `t_us`".to_owned(),
        (Clock::Real, Some(_)) => "a step on the real clock has a `t_us`".to_owned(),
    };
    Err(Problem::new(Code::BadField, detail))
}

/// One step's answer.
fn answer(decision: &Decision, limits: &Limits, state: Option<Value>) -> Value {
    let verdict = decision.verdict();
    let retry_after = match decision.retry_after() {
        None => Value::Null,
        Some(RetryAfter::After(_)) => json!(verdict.retry_after_us()),
        Some(RetryAfter::Never) => json!("never"),
    };
    json!({
        "allowed": decision.allowed(),
        "remaining": decision.remaining(),
        "limit": decision.limit(),
        "granted": decision.granted(),
        "retry_after_us": retry_after,
        "reset_after_us": verdict.reset_after_us,
        "delay_us": verdict.delay_us(),
        "degraded": decision.degraded(),
        "headers": headers(decision, limits),
        "status": status(decision).as_u16(),
        "state": state,
    })
}

fn status(decision: &Decision) -> StatusCode {
    if decision.allowed() {
        StatusCode::OK
    } else if decision.unavailable() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::TOO_MANY_REQUESTS
    }
}

/// The headers that a client would be told, in the spelling of their specifications.
fn headers(decision: &Decision, limits: &Limits) -> Map<String, Value> {
    let mut told = HeaderMap::new();
    Headers::default().write_decision(&mut told, decision, [limits].into_iter());
    let word = |word: &str| match word {
        "ratelimit" => "RateLimit".to_owned(),
        _ => {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_ascii_uppercase() + rest
        }
    };
    let spelled = |name: &str| name.split('-').map(word).collect::<Vec<String>>().join("-");
    let pairs = told.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (spelled(name.as_str()), Value::String(value))
    });
    pairs.collect()
}
