//! `/api/rate-limit/…`: the HTTP API of the demo redis-developer/redis-ratelimiting-js.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Number, Value, json};
use tallygate::http::Limits;
use tallygate::{Algorithm, Decision, Limit, Quota, Retry, Verb};

use super::sessions::SessionId;
use super::{Playground, parse_or_default, validate};
use crate::api::Object;
use crate::problem::{Code, Problem};

/// In front of the names of this API's cards. No other card can have it: it is not printable.
const CARD_PREFIX: &str = "\0rate-limit/";
const DEFAULT_BURST: u64 = 10;
const MAX_BURST: u64 = 50;

/// Numbers are read in millionths; finer digits are rounded.
const MILLION: u64 = 1_000_000;
/// Rates per second, in millionths.
const RATES: RangeInclusive<u64> = MILLION / 1_000..=1_000 * MILLION;
/// Windows in seconds, in millionths.
const WINDOWS: RangeInclusive<u64> = MILLION / 1_000..=3_600 * MILLION;

/// All fields are optional and unknown ones are ignored, as in the demo.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Body {
    config: Option<Object<Config>>,
    count: Option<u64>,
}

/// The settings of every algorithm; each uses its own.
#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    max_requests: Number,
    window_seconds: Number,
    max_tokens: Number,
    refill_rate: Number,
    capacity: Number,
    leak_rate: Number,
    mode: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_requests: 10.into(),
            window_seconds: 10.into(),
            max_tokens: 10.into(),
            refill_rate: 1.into(),
            capacity: 10.into(),
            leak_rate: 1.into(),
            mode: "policing".to_owned(),
        }
    }
}

impl Playground {
    pub(super) async fn demo_request(
        &self,
        id: SessionId,
        algorithm: &str,
        json: &[u8],
    ) -> Result<Value, Problem> {
        let mut decisions = self.decide_demo(id, algorithm, json, |_| 1).await?;
        Ok(decisions.remove(0))
    }

    pub(super) async fn demo_burst(
        &self,
        id: SessionId,
        algorithm: &str,
        json: &[u8],
    ) -> Result<Value, Problem> {
        // As in the demo: 0 means the default, and a count too large the maximum.
        let count = |count| match count {
            None | Some(0) => DEFAULT_BURST,
            Some(count) => MAX_BURST.min(count),
        };
        let decisions = self.decide_demo(id, algorithm, json, count).await?;
        Ok(Value::Array(decisions))
    }

    pub(super) async fn demo_reset(&self, id: SessionId) -> Result<Value, Problem> {
        for evicted in self.session(id).evict(CARD_PREFIX) {
            let reset = self
                .store
                .decide(&evicted.key, &evicted.limits, Verb::Reset, 0);
            if reset.await.degraded() {
                return Err(unavailable());
            }
        }
        Ok(json!({"ok": true}))
    }

    /// Decides as many requests as `count` makes of the body's `count`.
    async fn decide_demo(
        &self,
        id: SessionId,
        algorithm: &str,
        json: &[u8],
        count: impl Fn(Option<u64>) -> u64,
    ) -> Result<Vec<Value>, Problem> {
        let body: Body = parse_or_default(json)?;
        let config = body.config.map(|config| config.0).unwrap_or_default();
        let limits = Limits::new([Limit::from(config.quota(algorithm)?)]);
        let limits = Arc::new(limits.expect("a single limit has a distinct name"));
        let session = self.session(id);
        let card = format!("{CARD_PREFIX}{algorithm}");
        let key = session.id.key(&card);
        let mut decisions = Vec::new();
        for _ in 0..count(body.count) {
            self.store.evict(session.touch(&card, &limits));
            let decision = self.store.decide(&key, &limits, Verb::Check, 1).await;
            // The demo has no field for a refusal because of the store.
            if decision.unavailable() {
                return Err(unavailable());
            }
            decisions.push(to_json(&decision));
        }
        Ok(decisions)
    }
}

impl Config {
    fn quota(&self, algorithm: &str) -> Result<Quota, Problem> {
        let algorithm = match (algorithm, &*self.mode) {
            ("fixed-window", _) => Algorithm::FixedWindow,
            ("sliding-window-log", _) => Algorithm::SlidingWindowLog,
            ("sliding-window-counter", _) => Algorithm::SlidingWindowCounter,
            ("token-bucket", _) => Algorithm::TokenBucket,
            ("leaky-bucket", "policing") => Algorithm::LeakyPolicing,
            ("leaky-bucket", "shaping") => Algorithm::LeakyShaping,
            ("leaky-bucket", _) => {
                let detail = "`mode` is not policing or shaping";
                return Err(Problem::new(Code::BadField, detail));
            }
            _ => {
                let detail = "the algorithms are fixed-window, sliding-window-log, \
                              sliding-window-counter, token-bucket and leaky-bucket";
                return Err(Problem::new(Code::UnknownAlgorithm, detail));
            }
        };
        if algorithm.capacity_keyword().is_none() {
            let limit = whole("maxRequests", &self.max_requests)?;
            let window = in_range("windowSeconds", &self.window_seconds, WINDOWS)?;
            // Periods are whole milliseconds.
            let period = Duration::from_millis((window + 500) / 1_000);
            return Ok(Quota::new(algorithm, limit, period)?);
        }
        let (capacity, rate) = match algorithm == Algorithm::TokenBucket {
            true => (
                whole("maxTokens", &self.max_tokens)?,
                in_range("refillRate", &self.refill_rate, RATES)?,
            ),
            false => (
                whole("capacity", &self.capacity)?,
                in_range("leakRate", &self.leak_rate, RATES)?,
            ),
        };
        let (limit, period) = fraction(rate);
        let quota = Quota::with_capacity(algorithm, limit, period, capacity)?;
        validate::check_drain(&quota)?;
        Ok(quota)
    }
}

/// A rate in millionths as a limit and a period in whole seconds: 0.1/s is 1 per 10 s.
fn fraction(rate: u64) -> (u32, Duration) {
    let (mut divisor, mut rest) = (rate, MILLION);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    let limit = u32::try_from(rate / divisor).expect("the fastest rate is below 2^32 millionths");
    (limit, Duration::from_secs(MILLION / divisor))
}

/// A number in millionths, or `None` if it is negative or very large.
fn millionths(number: &Number) -> Option<u64> {
    // One second is a million microseconds.
    let seconds = Duration::try_from_secs_f64(number.as_f64()?).ok()?;
    u64::try_from((seconds.as_nanos() + 500) / 1_000).ok()
}

fn whole(name: &str, number: &Number) -> Result<u32, Problem> {
    let max = u64::from(validate::MAX_LIMIT);
    let value = in_range(name, number, MILLION..=max * MILLION)?;
    match u32::try_from(value / MILLION) {
        Ok(whole) if value.is_multiple_of(MILLION) => Ok(whole),
        _ => {
            let detail = format!("`{name}` {number} is not a whole number");
            Err(Problem::new(Code::BadField, detail))
        }
    }
}

fn in_range(name: &str, number: &Number, range: RangeInclusive<u64>) -> Result<u64, Problem> {
    match millionths(number) {
        Some(value) if range.contains(&value) => Ok(value),
        _ => {
            let bound = |value: &u64| seconds(Duration::from_micros(*value));
            let (min, max) = (bound(range.start()), bound(range.end()));
            let detail = format!("`{name}` {number} is not {min} to {max}");
            Err(Problem::new(Code::BadField, detail))
        }
    }
}

fn unavailable() -> Problem {
    Problem::new(Code::StoreUnavailable, "the store did not answer")
}

fn to_json(decision: &Decision) -> Value {
    let retry = decision.retry_after().and_then(Retry::duration);
    let delay = decision.delay();
    json!({
        "allowed": decision.allowed(),
        "remaining": decision.remaining(),
        "limit": decision.limit(),
        "retryAfter": retry.map(seconds),
        "delay": (!delay.is_zero()).then(|| seconds(delay)),
    })
}

/// Seconds to the microsecond, from digits: arithmetic on floats could round.
fn seconds(wait: Duration) -> Value {
    let text = format!("{}.{:06}", wait.as_secs(), wait.subsec_micros());
    serde_json::from_str(&text).expect("digits are a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact_to_the_microsecond() {
        for (us, text) in [
            (1, "1e-6"),
            (100_000, "0.1"),
            (9_999_999, "9.999999"),
            (10_000_000, "10.0"),
        ] {
            assert_eq!(seconds(Duration::from_micros(us)).to_string(), text);
        }
    }

    fn quota(algorithm: &str, config: &str) -> Result<String, Code> {
        let config: Config = parse_or_default(config.as_bytes()).unwrap();
        let quota = config.quota(algorithm).map_err(|problem| problem.code)?;
        Ok(quota.to_string())
    }

    #[test]
    fn settings_become_quotas() {
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
    fn bad_settings_are_rejected() {
        for (algorithm, config) in [
            ("fixed-window", r#"{"maxRequests":0}"#),
            ("fixed-window", r#"{"maxRequests":1.5}"#),
            ("fixed-window", r#"{"maxRequests":1001}"#),
            ("fixed-window", r#"{"windowSeconds":-1}"#),
            ("fixed-window", r#"{"windowSeconds":0}"#),
            ("fixed-window", r#"{"windowSeconds":1e9}"#),
            ("token-bucket", r#"{"refillRate":0}"#),
            ("token-bucket", r#"{"refillRate":1e300}"#),
            ("token-bucket", r#"{"refillRate":1e-7}"#),
            ("token-bucket", r#"{"refillRate":1e17}"#),
            ("token-bucket", r#"{"refillRate":-0.5}"#),
            ("leaky-bucket", r#"{"mode":"drop"}"#),
        ] {
            assert_eq!(quota(algorithm, config), Err(Code::BadField), "{config}");
        }
        let slow = r#"{"capacity":1000,"leakRate":0.001}"#;
        assert_eq!(quota("leaky-bucket", slow), Err(Code::BadQuota));
        for slug in ["unknown-algo", "", "leaky-bucket-shaping", "leaky"] {
            assert_eq!(quota(slug, "{}"), Err(Code::UnknownAlgorithm));
        }
    }
}
