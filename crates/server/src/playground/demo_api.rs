//! `/api/rate-limit/…`: what the public demo redis-developer/redis-ratelimiting-js answers, on our
//! counters. Knows its fields and its ways; knows nothing of the rest of the playground.

mod config;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value, json};
use tallygate::http::Limits;
use tallygate::{Decision, Limit, RetryAfter, Verb};

use super::Playground;
use super::sessions::{Id, Visitor};
use crate::api::Object;
use crate::problem::{Code, Problem};
use crate::response;
use config::Config;

/// What this API's cards are called before their algorithm: no visitor's own can be.
const CARDS: &str = "\0rate-limit/";
/// The requests of a burst unless told otherwise, and the most.
const BURST: u64 = 10;
const MOST_BURST: u64 = 50;

/// What is asked; all of it may be left out, and what else is there plays no part, as in the demo.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    config: Option<Object<Config>>,
    count: Option<u64>,
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
        Ok(response::value(StatusCode::OK, &answer))
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
        Ok(response::value(StatusCode::OK, &Value::Array(answers)))
    }

    fn asked(
        &self,
        id: Id,
        algorithm: &str,
        json: &[u8],
    ) -> Result<(Attempt, Option<u64>), Problem> {
        let asked = match json.trim_ascii() {
            [] => Asked::default(),
            json => response::parse::<Object<Asked>>(json)?.0,
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
        Ok(response::value(StatusCode::OK, &json!({"ok": true})))
    }
}

fn unavailable() -> Problem {
    let detail = "the store of the counters did not answer";
    Problem::new(Code::StoreUnavailable, detail)
}

fn answer(decision: &Decision) -> Value {
    let retry = match decision.retry_after() {
        Some(RetryAfter::After(wait)) => Some(wait),
        Some(RetryAfter::Never) | None => None,
    };
    let delay = decision.delay();
    json!({
        "allowed": decision.allowed(),
        "remaining": decision.remaining(),
        "limit": decision.limit(),
        "retryAfter": retry.map(seconds),
        "delay": (!delay.is_zero()).then(|| seconds(delay)),
    })
}

/// Seconds to the microsecond, without a float in between that could round.
fn seconds(wait: Duration) -> Value {
    let text = format!("{}.{:06}", wait.as_secs(), wait.subsec_micros());
    serde_json::from_str(&text).expect("digits are a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_print_as_the_microseconds_they_are() {
        for (us, text) in [
            (1, "1e-6"),
            (100_000, "0.1"),
            (9_999_999, "9.999999"),
            (10_000_000, "10.0"),
        ] {
            assert_eq!(seconds(Duration::from_micros(us)).to_string(), text);
        }
    }
}
