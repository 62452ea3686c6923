//! `/api/rate-limit/…`: what the public demo redis-developer/redis-ratelimiting-js answers, on our
//! counters. Knows its fields and its ways; knows nothing of the rest of the playground.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::http::Limits;
use tollgate::{Algorithm, Decision, Limit, Quota, RetryAfter, Verb};

use super::super::http::Object;
use super::super::problem::{Code, Problem};
use super::super::reply;
use super::visitors::{Id, Visitor};
use super::{Playground, bounds};

/// What this API's cards are called before their algorithm: no visitor's own can be.
const CARDS: &str = "\0rate-limit/";
/// The requests of a burst unless told otherwise, and the most.
const BURST: u64 = 10;
const MOST_BURST: u64 = 50;
/// The slowest and the fastest rate, a second; finer than a millionth it is rounded.
const SLOWEST: f64 = 0.001;
const FASTEST: f64 = 1_000.0;
const MILLION: u32 = 1_000_000;
/// The longest window in seconds.
const LONGEST: f64 = 3_600.0;

/// What is asked; all of it may be left out.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Asked {
    config: Option<Object<Config>>,
    count: Option<u64>,
}

/// The settings of every algorithm; those of others play no part.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    max_requests: f64,
    window_seconds: f64,
    max_tokens: f64,
    refill_rate: f64,
    capacity: f64,
    leak_rate: f64,
    mode: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_requests: 10.0,
            window_seconds: 10.0,
            max_tokens: 10.0,
            refill_rate: 1.0,
            capacity: 10.0,
            leak_rate: 1.0,
            mode: "policing".to_owned(),
        }
    }
}

/// One who asks, and what of.
struct Attempt {
    visitor: Arc<Visitor>,
    card: String,
    limits: Arc<Limits>,
}

impl Playground {
    /// One request.
    pub(super) async fn attempt(
        &self,
        id: Id,
        algorithm: &str,
        json: &[u8],
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let (attempt, _) = self.asked(id, algorithm, json)?;
        let answer = self.once(&attempt).await?;
        Ok(reply::value(StatusCode::OK, &answer))
    }

    /// Several requests, one after the other.
    pub(super) async fn burst(
        &self,
        id: Id,
        algorithm: &str,
        json: &[u8],
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let (attempt, count) = self.asked(id, algorithm, json)?;
        // As the demo does it: none is as many as usual, too many are as many as may be.
        let count = match count {
            None | Some(0) => BURST,
            Some(count) => count.min(MOST_BURST),
        };
        let mut answers = Vec::new();
        for _ in 0..count {
            answers.push(self.once(&attempt).await?);
        }
        Ok(reply::value(StatusCode::OK, &Value::Array(answers)))
    }

    fn asked(
        &self,
        id: Id,
        algorithm: &str,
        json: &[u8],
    ) -> Result<(Attempt, Option<u64>), Problem> {
        let asked = match json.trim_ascii() {
            [] => Asked::default(),
            json => reply::parse::<Object<Asked>>(json)?.0,
        };
        let config = asked.config.map(|given| given.0).unwrap_or_default();
        let limits = Limits::new([Limit::from(config.quota(algorithm)?)]);
        let limits = Arc::new(limits.expect("one limit goes together with itself"));
        let (visitor, gone) = self.visitors.visitor(id);
        self.real.forget(gone);
        let card = format!("{CARDS}{algorithm}");
        let attempt = Attempt {
            visitor,
            card,
            limits,
        };
        Ok((attempt, asked.count))
    }

    async fn once(&self, attempt: &Attempt) -> Result<Value, Problem> {
        let Attempt {
            visitor,
            card,
            limits,
        } = attempt;
        self.real.forget(visitor.uses(card, limits));
        let key = visitor.id.key(card);
        let decision = self.real.decide(&key, limits, Verb::Check, 1).await;
        // A refusal for want of the store is no answer of a limit.
        match decision.unavailable() {
            true => Err(unavailable()),
            false => Ok(answer(&decision)),
        }
    }

    /// Forgets what this API has counted for a visitor.
    pub(super) async fn start_over(&self, id: Id) -> Result<Response<Full<Bytes>>, Problem> {
        let (visitor, gone) = self.visitors.visitor(id);
        self.real.forget(gone);
        for gone in visitor.forget_named(CARDS) {
            let reset = self.real.decide(&gone.key, &gone.limits, Verb::Reset, 0);
            let decision = reset.await;
            if decision.degraded() {
                return Err(unavailable());
            }
        }
        Ok(reply::value(StatusCode::OK, &json!({"ok": true})))
    }
}

fn unavailable() -> Problem {
    let detail = "the store of the counters did not answer";
    Problem::new(Code::StoreUnavailable, detail)
}

fn answer(decision: &Decision) -> Value {
    // The nearest number to a count of millionths prints as just that.
    let seconds = |us: u64| us as f64 / 1e6;
    let retry = match decision.retry_after() {
        Some(RetryAfter::After(wait)) => {
            let us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
            Some(seconds(us))
        }
        Some(RetryAfter::Never) | None => None,
    };
    let delay = decision.verdict().delay_us();
    json!({
        "allowed": decision.allowed(),
        "remaining": decision.remaining(),
        "limit": decision.limit(),
        "retryAfter": retry,
        "delay": (delay > 0).then(|| seconds(delay)),
    })
}

impl Config {
    /// The quota that the demo's fields describe.
    fn quota(&self, algorithm: &str) -> Result<Quota, Problem> {
        let window = |algorithm| {
            let limit = whole("maxRequests", self.max_requests)?;
            let seconds = within("windowSeconds", self.window_seconds, 0.001, LONGEST)?;
            // To the millisecond, the finest that a period can be.
            let period = Duration::from_millis((seconds * 1e3).round() as u64);
            Quota::new(algorithm, limit, period).map_err(wrong)
        };
        let bucket = |algorithm, (name, capacity), (rate_name, rate)| {
            let capacity = whole(name, capacity)?;
            let rate = within(rate_name, rate, SLOWEST, FASTEST)?;
            let (limit, period) = fraction(rate);
            let quota = Quota::with_capacity(algorithm, limit, period, capacity).map_err(wrong)?;
            bounds::drains(&quota)?;
            Ok(quota)
        };
        match algorithm {
            "fixed-window" => window(Algorithm::FixedWindow),
            "sliding-window-log" => window(Algorithm::SlidingWindowLog),
            "sliding-window-counter" => window(Algorithm::SlidingWindowCounter),
            "token-bucket" => bucket(
                Algorithm::TokenBucket,
                ("maxTokens", self.max_tokens),
                ("refillRate", self.refill_rate),
            ),
            "leaky-bucket" => {
                let algorithm = match &*self.mode {
                    "policing" => Algorithm::LeakyPolicing,
                    "shaping" => Algorithm::LeakyShaping,
                    _ => {
                        let detail = "`mode` is not policing or shaping";
                        return Err(Problem::new(Code::BadField, detail));
                    }
                };
                bucket(
                    algorithm,
                    ("capacity", self.capacity),
                    ("leakRate", self.leak_rate),
                )
            }
            _ => {
                let detail = "there is fixed-window, sliding-window-log, sliding-window-counter, \
                              token-bucket and leaky-bucket";
                Err(Problem::new(Code::UnknownAlgorithm, detail))
            }
        }
    }
}

/// A rate a second as a limit and a period in whole seconds: 0.1 is 1 in 10 s.
fn fraction(rate: f64) -> (u32, Duration) {
    let limit = (rate * f64::from(MILLION)).round() as u32;
    let (mut a, mut b) = (limit, MILLION);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    (limit / a, Duration::from_secs((MILLION / a).into()))
}

fn whole(name: &str, value: f64) -> Result<u32, Problem> {
    let value = within(name, value, 1.0, bounds::MOST.into())?;
    match value.fract() == 0.0 {
        true => Ok(value as u32),
        false => {
            let detail = format!("`{name}` {value} is not a whole number");
            Err(Problem::new(Code::BadField, detail))
        }
    }
}

fn within(name: &str, value: f64, least: f64, most: f64) -> Result<f64, Problem> {
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => {
            let detail = format!("`{name}` {value} is not {least} to {most}");
            Err(Problem::new(Code::BadField, detail))
        }
    }
}

fn wrong(error: tollgate::QuotaError) -> Problem {
    Problem::new(Code::BadQuota, error.problem().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(algorithm: &str, config: &str) -> Result<String, Code> {
        let Object(config) = reply::parse::<Object<Config>>(config.as_bytes()).unwrap();
        let quota = config.quota(algorithm).map_err(|problem| problem.code)?;
        Ok(quota.to_string())
    }

    #[test]
    fn the_demos_fields_become_quotas() {
        for (algorithm, config, text) in [
            ("fixed-window", "{}", "fixed-window 10/10s"),
            (
                "sliding-window-log",
                r#"{"maxRequests":3,"windowSeconds":0.5}"#,
                "sliding-window-log 3/500ms",
            ),
            (
                "sliding-window-counter",
                r#"{"maxRequests":50,"windowSeconds":60,"mode":"unused"}"#,
                "sliding-window-counter 50/min",
            ),
            ("token-bucket", "{}", "token-bucket 1/s burst 10"),
            (
                "token-bucket",
                r#"{"maxTokens":5,"refillRate":0.1}"#,
                "token-bucket 1/10s burst 5",
            ),
            (
                "token-bucket",
                r#"{"refillRate":2.5}"#,
                "token-bucket 5/2s burst 10",
            ),
            (
                "leaky-bucket",
                r#"{"capacity":3,"leakRate":0.3}"#,
                "leaky-bucket 3/10s burst 3",
            ),
            (
                "leaky-bucket",
                r#"{"leakRate":0.3333333333333333,"mode":"shaping"}"#,
                "leaky-bucket 333333/11d13h46min40s queue 10",
            ),
        ] {
            assert_eq!(quota(algorithm, config).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_cannot_be_is_said_to_be_wrong() {
        for (algorithm, config) in [
            ("fixed-window", r#"{"maxRequests":0}"#),
            ("fixed-window", r#"{"maxRequests":1.5}"#),
            ("fixed-window", r#"{"maxRequests":1001}"#),
            ("fixed-window", r#"{"windowSeconds":-1}"#),
            ("fixed-window", r#"{"windowSeconds":0}"#),
            ("fixed-window", r#"{"windowSeconds":1e9}"#),
            ("token-bucket", r#"{"refillRate":0}"#),
            ("token-bucket", r#"{"refillRate":1e300}"#),
            ("leaky-bucket", r#"{"mode":"drop"}"#),
        ] {
            assert_eq!(quota(algorithm, config), Err(Code::BadField), "{config}");
        }
        let slow = r#"{"capacity":1000,"leakRate":0.001}"#;
        assert_eq!(quota("leaky-bucket", slow), Err(Code::BadQuota));
        assert_eq!(quota("unknown-algo", "{}"), Err(Code::UnknownAlgorithm));
    }
}
