//! The demo's settings, and the quotas they describe. Knows its fields and their bounds; knows nothing
//! of who asks.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Number;
use tallygate::{Algorithm, Quota};

use super::super::validate;
use super::seconds;
use crate::problem::{Code, Problem};

/// Fields are read in millionths; what is finer is rounded.
const MILLION: u64 = 1_000_000;
/// The slowest and the fastest rate, a second.
const RATES: RangeInclusive<u64> = MILLION / 1_000..=1_000 * MILLION;
/// The shortest and the longest window, in seconds.
const WINDOWS: RangeInclusive<u64> = MILLION / 1_000..=3_600 * MILLION;

/// The settings of every algorithm; those of others play no part.
#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Config {
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

impl Config {
    /// The quota that the demo's fields describe.
    pub(super) fn quota(&self, slug: &str) -> Result<Quota, Problem> {
        let algorithm = self.algorithm(slug)?;
        if algorithm.capacity_keyword().is_none() {
            let limit = whole("maxRequests", &self.max_requests)?;
            let window = within("windowSeconds", &self.window_seconds, WINDOWS)?;
            // To the millisecond, the finest that a period can be.
            let period = Duration::from_millis((window + 500) / 1_000);
            return Quota::new(algorithm, limit, period).map_err(wrong);
        }
        let (capacity, rate) = match slug {
            "token-bucket" => (
                whole("maxTokens", &self.max_tokens)?,
                within("refillRate", &self.refill_rate, RATES)?,
            ),
            _ => (
                whole("capacity", &self.capacity)?,
                within("leakRate", &self.leak_rate, RATES)?,
            ),
        };
        let (limit, period) = fraction(rate);
        let quota = Quota::with_capacity(algorithm, limit, period, capacity).map_err(wrong)?;
        validate::drains(&quota)?;
        Ok(quota)
    }

    /// The algorithm of a name; the mode tells the two leaky buckets apart.
    fn algorithm(&self, slug: &str) -> Result<Algorithm, Problem> {
        let of_mode = format!("{slug}-{}", self.mode);
        let mut named = Algorithm::ALL
            .into_iter()
            .filter(|algorithm| algorithm.name() == slug)
            .peekable();
        if named.peek().is_none() {
            let detail = "there is fixed-window, sliding-window-log, sliding-window-counter, \
                          token-bucket and leaky-bucket";
            return Err(Problem::new(Code::UnknownAlgorithm, detail));
        }
        let is = |algorithm: &Algorithm| [slug, &of_mode].contains(&algorithm.behaviour());
        named.find(is).ok_or_else(|| {
            let detail = "`mode` is not policing or shaping";
            Problem::new(Code::BadField, detail)
        })
    }
}

/// Millionths a second as a limit and a period in whole seconds: 0.1/s is 1 in 10 s.
fn fraction(rate: u64) -> (u32, Duration) {
    let (mut common, mut rest) = (rate, MILLION);
    while rest > 0 {
        (common, rest) = (rest, common % rest);
    }
    let limit = u32::try_from(rate / common).expect("the fastest rate is below 2^32 millionths");
    (limit, Duration::from_secs(MILLION / common))
}

/// A number of millionths, as it is written; none below 0 or beyond what anything here can be.
fn millionths(number: &Number) -> Option<u64> {
    let text = number.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let digit = |at: usize| match part.as_bytes().get(at) {
        None => Some(0),
        Some(digit) => char::from(*digit).to_digit(10).map(u64::from),
    };
    let millionths = (0..6).try_fold(0, |sum, at| Some(sum * 10 + digit(at)?))?;
    let rounded = u64::from(digit(6)? >= 5);
    let whole: u64 = whole.parse().ok()?;
    whole
        .checked_mul(MILLION)?
        .checked_add(millionths + rounded)
}

fn whole(name: &str, number: &Number) -> Result<u32, Problem> {
    let most = u64::from(validate::MOST);
    let value = within(name, number, MILLION..=most * MILLION)?;
    match u32::try_from(value / MILLION) {
        Ok(whole) if value.is_multiple_of(MILLION) => Ok(whole),
        _ => {
            let detail = format!("`{name}` {number} is not a whole number");
            Err(Problem::new(Code::BadField, detail))
        }
    }
}

fn within(name: &str, number: &Number, range: RangeInclusive<u64>) -> Result<u64, Problem> {
    match millionths(number) {
        Some(value) if range.contains(&value) => Ok(value),
        _ => {
            let bound = |value: &u64| seconds(Duration::from_micros(*value));
            let (least, most) = (bound(range.start()), bound(range.end()));
            let detail = format!("`{name}` {number} is not {least} to {most}");
            Err(Problem::new(Code::BadField, detail))
        }
    }
}

fn wrong(error: tallygate::QuotaError) -> Problem {
    Problem::new(Code::BadQuota, error.problem().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Object;
    use crate::response;

    fn quota(algorithm: &str, config: &str) -> Result<String, Code> {
        let Object(config) = response::parse::<Object<Config>>(config.as_bytes()).unwrap();
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
