//! The scripts of articles about rate limiting, in their usual form: the application's clock is an
//! argument, the reply has several numbers.

use redis::{Cmd, Value};

use super::{Evalsha, Script, When};
use crate::keys::Key;
use crate::quota_spec::{Algorithm, QuotaSpec};

pub(crate) struct Article {
    call: Evalsha,
    spec: QuotaSpec,
}

impl Article {
    pub(crate) fn new(spec: &QuotaSpec) -> Self {
        let text = match spec.algorithm {
            Algorithm::FixedWindow => include_str!("articles/fixed_window.lua"),
            Algorithm::SlidingWindowLog => include_str!("articles/sliding_window_log.lua"),
            Algorithm::SlidingWindowCounter => include_str!("articles/sliding_window_counter.lua"),
            Algorithm::TokenBucket => include_str!("articles/token_bucket.lua"),
            Algorithm::LeakyPolicing => include_str!("articles/leaky_policing.lua"),
            Algorithm::LeakyShaping => include_str!("articles/leaky_shaping.lua"),
            other => unreachable!("no article has {other:?}"),
        };
        Article {
            call: Evalsha::new(text),
            spec: spec.clone(),
        }
    }
}

impl Script for Article {
    fn text(&self) -> Option<&str> {
        Some(self.call.text())
    }

    fn single(&self, key: &Key, when: When) -> Cmd {
        let QuotaSpec {
            algorithm,
            limit,
            period,
            capacity,
        } = self.spec;
        match algorithm {
            Algorithm::FixedWindow => {
                let mut call = self.call.with_keys(1);
                call.arg(key).arg(limit).arg(period.as_secs());
                call
            }
            Algorithm::SlidingWindowCounter => {
                let (period_ms, now_ms) = (period.as_millis() as u64, when.us() / 1_000);
                let window = now_ms / period_ms;
                let mut call = self.call.with_keys(2);
                call.arg(format!("{key}:{window}"))
                    .arg(format!("{key}:{}", window - 1))
                    .arg(limit)
                    .arg(period_ms)
                    .arg(now_ms);
                call
            }
            Algorithm::SlidingWindowLog => {
                let now_ms = when.us() / 1_000;
                let member = format!("{now_ms}-{:016x}", fastrand::u64(..));
                let mut call = self.call.with_keys(1);
                call.arg(key)
                    .arg(limit)
                    .arg(period.as_millis() as u64)
                    .arg(now_ms)
                    .arg(member);
                call
            }
            Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                let now = when.us() as f64 / 1_000_000.0;
                let rate = f64::from(limit) / period.as_secs_f64();
                let mut call = self.call.with_keys(1);
                call.arg(key)
                    .arg(capacity)
                    .arg(rate.to_string())
                    .arg(format!("{now:.3}"));
                call
            }
            other => unreachable!("no article has {other:?}"),
        }
    }

    fn admitted(&self, reply: &Value) -> usize {
        usize::from(first(reply) == Some(1))
    }
}

/// The first number of a reply that is a list of numbers.
pub(crate) fn first(reply: &Value) -> Option<i64> {
    let Value::Array(numbers) = reply else {
        return None;
    };
    match numbers.first()? {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}
