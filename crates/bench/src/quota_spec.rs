//! The quotas that contenders enforce, independent of their APIs.

use std::fmt;
use std::time::Duration;

pub use tallygate::Algorithm;

/// The name of an algorithm in the table, one word.
pub fn algorithm_name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::LeakyPolicing => "leaky-policing",
        Algorithm::LeakyShaping => "leaky-shaping",
        Algorithm::FixedWindow
        | Algorithm::SlidingWindowLog
        | Algorithm::SlidingWindowCounter
        | Algorithm::TokenBucket
        | Algorithm::SharedTokenBucket
        | Algorithm::SharedLeakyPolicing
        | Algorithm::Concurrent => algorithm.behaviour(),
    }
}

fn is_bucket(algorithm: Algorithm) -> bool {
    algorithm.capacity_keyword().is_some()
}

/// The expected decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every request is admitted.
    Admitted,
    /// Every request is refused: its key is exhausted.
    Refused,
}

/// A quota: `limit` units per `period`, with bursts up to `capacity`.
///
/// [`Display`](fmt::Display) formats it as a Tallygate quota.
#[derive(Clone, Debug)]
pub struct QuotaSpec {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Units per period.
    pub limit: u32,
    /// The period, in whole milliseconds.
    pub period: Duration,
    /// The burst or queue of a bucket; the limit of a window or log.
    pub capacity: u32,
}

const DAY: u64 = 86_400;

impl QuotaSpec {
    /// A token bucket that refills one unit per `interval`.
    pub fn bucket(interval: Duration, capacity: u32) -> QuotaSpec {
        QuotaSpec {
            algorithm: Algorithm::TokenBucket,
            limit: 1,
            period: interval,
            capacity,
        }
    }

    /// A limit that no scenario over so many keys reaches.
    ///
    /// A unit takes minutes to refill, so that all keys stay live and no counter is dropped.
    pub fn unreached(algorithm: Algorithm, keys: usize) -> QuotaSpec {
        // With few keys, each gets many requests; with many, filling all contenders takes minutes.
        let (interval, capacity) = if keys <= 1_000 {
            (60, 50_000_000)
        } else {
            (1_500, 2_000_000)
        };
        if is_bucket(algorithm) {
            let bucket = QuotaSpec::bucket(Duration::from_secs(interval), capacity);
            return QuotaSpec {
                algorithm,
                ..bucket
            };
        }
        // The maximum of a log.
        let limit = if algorithm == Algorithm::SlidingWindowLog {
            100_000
        } else {
            capacity
        };
        QuotaSpec::window(algorithm, limit)
    }

    /// A limit of 2 that is not refilled during a run.
    pub fn small(algorithm: Algorithm) -> QuotaSpec {
        if is_bucket(algorithm) {
            let bucket = QuotaSpec::bucket(Duration::from_secs(DAY), 2);
            return QuotaSpec {
                algorithm,
                ..bucket
            };
        }
        QuotaSpec::window(algorithm, 2)
    }

    /// A window or a log of 30 days.
    pub fn window(algorithm: Algorithm, limit: u32) -> QuotaSpec {
        QuotaSpec {
            algorithm,
            limit,
            period: Duration::from_secs(30 * DAY),
            capacity: limit,
        }
    }

    /// The time to refill one unit.
    pub fn interval(&self) -> Duration {
        self.period / self.limit
    }
}

impl fmt::Display for QuotaSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QuotaSpec {
            algorithm,
            limit,
            period,
            capacity,
        } = self;
        let period = match (period.as_secs(), period.subsec_millis()) {
            (seconds, 0) => format!("{seconds}s"),
            (seconds, ms) => format!("{}ms", seconds * 1_000 + u64::from(ms)),
        };
        write!(f, "{} {limit}/{period}", algorithm.name())?;
        match algorithm.capacity_keyword() {
            Some(keyword) => write!(f, " {keyword} {capacity}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spec_is_a_valid_tallygate_quota() {
        for algorithm in Algorithm::BASIC {
            for spec in [
                QuotaSpec::unreached(algorithm, 1),
                QuotaSpec::unreached(algorithm, 1_000_000),
                QuotaSpec::small(algorithm),
            ] {
                let text = spec.to_string();
                let parsed = text.parse::<tallygate::Quota>();
                assert!(parsed.is_ok(), "{text}");
            }
        }
    }
}
