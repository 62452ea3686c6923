//! `POST /api/play`: requests on the cards of a session, on the store's clock or at supplied times.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tallygate::http::{Headers, Limits};
use tallygate::{Decision, Quota, Retry, Verb};
use tallygate_core::{MAX_TIME_US, Verdict, evaluate};

use super::card_store::Caller;
use super::sessions::{Clock, MAX_OWNERS, Session, SessionId};
use super::snapshot_json;
use super::{Playground, validate};
use crate::api::Object;
use crate::problem::{Code, Problem};
use crate::response;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    clock: String,
    steps: Vec<Object<StepBody>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaBody {
    quota: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepBody {
    card: String,
    quota: String,
    cost: Option<u32>,
    verb: Option<String>,
    t_us: Option<u64>,
    owner: Option<u32>,
    id: Option<u32>,
}

struct Step {
    card: String,
    limits: Arc<Limits>,
    cost: u32,
    verb: Verb,
    /// With `Clock::Real` only.
    caller: Caller,
    /// With `Clock::Supplied` only.
    t_us: u64,
    /// Whether it is the last one of its card in this request.
    last: bool,
}

impl Playground {
    pub(super) async fn take_steps(&self, id: SessionId, json: &[u8]) -> Result<Value, Problem> {
        let Object(Body { clock, steps }) = response::parse_json::<Object<Body>>(json)?;
        let clock = match &*clock {
            "real" => Clock::Real,
            "supplied" => Clock::Supplied,
            _ => {
                let detail = "`clock` is not real or supplied";
                return Err(Problem::new(Code::BadField, detail));
            }
        };
        let steps = self.validate(clock, steps)?;
        let session = self.session(id);
        let results = match clock {
            Clock::Real => self.on_real_time(&session, &steps).await?,
            Clock::Supplied => self.on_supplied_time(&session, &steps),
        };
        Ok(json!({
            "store": self.store.kind(),
            "reachable": results.reachable,
            "now_us": results.now_us,
            "answers": results.answers,
        }))
    }

    /// Checks a quota while it is being typed. An invalid one is a 200 with the problem.
    pub(super) fn check_quota(&self, json: &[u8]) -> Result<Value, Problem> {
        let Object(QuotaBody { quota }) = response::parse_json::<Object<QuotaBody>>(json)?;
        let parsed = match quota.parse::<Quota>() {
            Ok(quota) => quota,
            Err(error) => {
                let (reason, suggestion) = (error.problem(), error.suggestion());
                let mut json = json!({"quota": null, "reason": reason, "suggestion": suggestion});
                json["problem"] = json!(Problem::from(error.clone()).detail);
                return Ok(json);
            }
        };
        Ok(match validate::check_quota(&parsed) {
            Ok(()) => json!({"quota": parsed.to_string(), "problem": null}),
            Err(problem) => {
                let detail = problem.detail;
                json!({"quota": null, "problem": detail, "reason": detail, "suggestion": null})
            }
        })
    }

    /// Validates all steps before the first is decided.
    fn validate(&self, clock: Clock, steps: Vec<Object<StepBody>>) -> Result<Vec<Step>, Problem> {
        let count = steps.len();
        if count == 0 || count > validate::MAX_STEPS {
            let detail = format!("{count} steps are not 1 to {}", validate::MAX_STEPS);
            return Err(Problem::new(Code::TooManyItems, detail));
        }
        let each = steps.into_iter().map(|Object(step)| {
            validate::check_card_name(&step.card)?;
            let limits = self.quota_cache.limit(&step.quota, None)?;
            validate::check_quota(limits[0].quota())?;
            let cost = step.cost.unwrap_or(1);
            validate::check_cost(cost)?;
            let verb = step.verb.as_deref().map_or(Ok(Verb::Check), str::parse);
            let verb = verb.map_err(|_| {
                let detail = "`verb` is not check, peek, take, charge, refund, reset, reserve, settle, \
                              renew or release";
                Problem::new(Code::BadField, detail)
            })?;
            Ok(Step {
                card: step.card,
                limits,
                cost,
                verb,
                caller: caller(clock, verb, step.owner, step.id)?,
                t_us: supplied_time(clock, step.t_us)?,
                last: false,
            })
        });
        let mut steps = each.collect::<Result<Vec<Step>, Problem>>()?;
        let mut later = HashSet::new();
        for step in steps.iter_mut().rev() {
            let counter = (step.card.clone(), step.limits[0].name().to_owned());
            step.last = later.insert(counter);
        }
        Ok(steps)
    }

    async fn on_real_time(&self, session: &Session, steps: &[Step]) -> Result<Results, Problem> {
        let mut results = Results::new(steps.len());
        let mut decided_at = Vec::with_capacity(steps.len());
        // When `results.now_us` was read from the store's clock.
        let mut clock_read_at = Instant::now();
        for step in steps {
            let Step {
                card,
                limits,
                cost,
                verb,
                caller,
                ..
            } = step;
            self.store.evict(session.touch(card, limits));
            let key = session.id.key(card);
            if matches!(verb, Verb::Charge | Verb::Settle) {
                let peek = self.store.decide(&key, limits, Verb::Peek, 0).await;
                let reset_after_us = peek.verdict().reset_after_us;
                validate::check_charge(limits[0].quota(), *cost, reset_after_us)?;
            }
            let decided = self.store.decide_by(*caller, &key, limits, *verb, *cost);
            let decision = decided.await;
            decided_at.push(Instant::now());
            match (verb, caller.id, decision.granted()) {
                (Verb::Reserve, Some(id), units @ 1..) => {
                    self.store.evict(session.reserved(card, limits, id, units));
                }
                (Verb::Settle, Some(id), _) => session.settled(card, limits, id),
                _ => {}
            }
            let snapshot = match step.last && !decision.degraded() {
                true => self.store.inspect(&key, limits).await,
                false => None,
            };
            let (mut state, mut next) = (None, None);
            if let Some(snapshot) = snapshot {
                results.now_us = snapshot.now_us;
                clock_read_at = Instant::now();
                let quota = limits[0].quota();
                let owners = self.store.owners(&key, limits);
                state = Some(snapshot_json::to_json(quota, &snapshot.state, &owners));
                let peek = self.store.decide(&key, limits, Verb::Peek, 1).await;
                next = (!peek.degraded()).then(|| next_request(quota, peek.verdict()));
            }
            results.reachable &= !decision.degraded();
            let mut answer = answer(&decision, limits, state);
            answer["next"] = json!(next);
            results.answers.push(answer);
        }
        // The time of each decision on the store's clock, from its last reading.
        for (answer, at) in results.answers.iter_mut().zip(decided_at) {
            let before = clock_read_at.saturating_duration_since(at).as_micros();
            let after = at.saturating_duration_since(clock_read_at).as_micros();
            let [before, after] = [before, after].map(|us| u64::try_from(us).unwrap_or(u64::MAX));
            let now_us = results.now_us.saturating_sub(before).saturating_add(after);
            answer["now_us"] = json!(now_us);
        }
        Ok(results)
    }

    fn on_supplied_time(&self, session: &Session, steps: &[Step]) -> Results {
        let mut results = Results::new(steps.len());
        let mut evictions = Vec::new();
        let mut cards = session.cards();
        for step in steps {
            let quota = step.limits[0].quota();
            let (state, eviction) = cards.state(session.id, &step.card, &step.limits);
            evictions.extend(eviction);
            let verdict = evaluate(quota, state, step.verb, step.cost, step.t_us);
            let peek = || evaluate(quota, &mut state.clone(), Verb::Peek, 1, step.t_us);
            let next = step.last.then(|| next_request(quota, &peek()));
            let state = step.last.then(|| state.inspect(quota, step.t_us));
            let state = state.map(|state| snapshot_json::to_json(quota, &state, &HashMap::new()));
            let decision = Decision::from(vec![verdict]);
            let mut answer = answer(&decision, &step.limits, state);
            answer["now_us"] = json!(step.t_us);
            answer["next"] = json!(next);
            results.answers.push(answer);
            results.now_us = step.t_us;
        }
        drop(cards);
        self.store.evict(evictions);
        results
    }
}

struct Results {
    reachable: bool,
    now_us: u64,
    answers: Vec<Value>,
}

impl Results {
    fn new(steps: usize) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_us = since_epoch.unwrap_or_default().as_micros();
        Results {
            reachable: true,
            // Until the store's clock is read.
            now_us: u64::try_from(now_us).unwrap_or(u64::MAX),
            answers: Vec::with_capacity(steps),
        }
    }
}

/// The time of a step: required with `Clock::Supplied`, else an error.
fn supplied_time(clock: Clock, t_us: Option<u64>) -> Result<u64, Problem> {
    let detail = match (clock, t_us) {
        (Clock::Supplied, Some(t_us)) if t_us <= MAX_TIME_US => return Ok(t_us),
        (Clock::Real, None) => return Ok(0),
        (Clock::Supplied, Some(t_us)) => format!("t_us {t_us} is above {MAX_TIME_US}"),
        (Clock::Supplied, None) => "with clock `supplied`, a step needs `t_us`".to_owned(),
        (Clock::Real, Some(_)) => "with clock `real`, a step has no `t_us`".to_owned(),
    };
    Err(Problem::new(Code::BadField, detail))
}

/// The caller of a step: an owner where a hold is taken, an id where a cost is reserved.
fn caller(
    clock: Clock,
    verb: Verb,
    owner: Option<u32>,
    id: Option<u32>,
) -> Result<Caller, Problem> {
    let detail = if clock == Clock::Supplied && (owner.is_some() || id.is_some()) {
        "with clock `supplied`, a step has no `owner` and no `id`".to_owned()
    } else if owner.is_some_and(|owner| !(1..=MAX_OWNERS).contains(&owner)) {
        format!("`owner` is not 1 to {MAX_OWNERS}")
    } else if clock == Clock::Real && verb.needs_id() != id.is_some() {
        "`id` goes with reserve and settle, which need one".to_owned()
    } else {
        return Ok(Caller { owner, id });
    };
    Err(Problem::new(Code::BadField, detail))
}

/// When the next request fits, by a peek, and how long it will be delayed.
fn next_request(quota: &Quota, peek: &Verdict) -> Value {
    // Not the delay of the peek: a full queue refuses it. What is queued leaves first.
    let delay_us = match quota.algorithm().is_shaping() {
        true => peek.reset_after_us,
        false => 0,
    };
    json!({"fits_us": peek.retry_after_us().unwrap_or(0), "delay_us": delay_us})
}

fn answer(decision: &Decision, limits: &Limits, state: Option<Value>) -> Value {
    let verdict = decision.verdict();
    let retry_after = match decision.retry_after() {
        None => Value::Null,
        Some(Retry::After(_) | Retry::AtMost(_)) => json!(verdict.retry_after_us()),
        Some(Retry::Never) => json!("never"),
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

/// The headers of a response with this decision, capitalized as in their specifications.
fn headers(decision: &Decision, limits: &Limits) -> Map<String, Value> {
    let mut headers = HeaderMap::new();
    Headers::default().write_decision(&mut headers, decision, [limits].into_iter());
    let word = |word: &str| match word {
        "ratelimit" => "RateLimit".to_owned(),
        _ => {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_ascii_uppercase() + rest
        }
    };
    let capitalized = |name: &str| name.split('-').map(word).collect::<Vec<String>>().join("-");
    let pairs = headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (capitalized(name.as_str()), Value::String(value))
    });
    pairs.collect()
}
