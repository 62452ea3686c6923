//! The quotas that contenders enforce, independent of their APIs.

use std::fmt;
use std::time::Duration;

/// An algorithm; each peer has one, Tallygate all six.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Windows aligned to the epoch.
    FixedWindow,
    /// Every admitted request stored.
    SlidingWindowLog,
    /// Two windows, the older one weighted.
    SlidingWindowCounter,
    /// Tokens that refill; GCRA is the same.
    TokenBucket,
    /// A level that drains; excess is refused.
    LeakyPolicing,
    /// A queue that drains; admitted requests are delayed.
    LeakyShaping,
}

impl Behaviour {
    /// All of them.
    pub const ALL: [Behaviour; 6] = [
        Behaviour::FixedWindow,
        Behaviour::SlidingWindowLog,
        Behaviour::SlidingWindowCounter,
        Behaviour::TokenBucket,
        Behaviour::LeakyPolicing,
        Behaviour::LeakyShaping,
    ];

    /// Its name in the table, one word.
    pub fn name(self) -> &'static str {
        match self {
            Behaviour::FixedWindow => "fixed-window",
            Behaviour::SlidingWindowLog => "sliding-window-log",
            Behaviour::SlidingWindowCounter => "sliding-window-counter",
            Behaviour::TokenBucket => "token-bucket",
            Behaviour::LeakyPolicing => "leaky-policing",
            Behaviour::LeakyShaping => "leaky-shaping",
        }
    }

    fn is_bucket(self) -> bool {
        match self {
            Behaviour::TokenBucket | Behaviour::LeakyPolicing | Behaviour::LeakyShaping => true,
            Behaviour::FixedWindow
            | Behaviour::SlidingWindowLog
            | Behaviour::SlidingWindowCounter => false,
        }
    }
}

/// What the contenders are to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every request fits.
    Admitted,
    /// Every key has used up its limit.
    Refused,
}

/// One limit: `limit` units a `period`, at most `capacity` at once.
///
/// [`Display`](fmt::Display) writes it as a Tallygate quota.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How it limits.
    pub behaviour: Behaviour,
    /// Units a period.
    pub limit: u32,
    /// The period, whole milliseconds.
    pub period: Duration,
    /// A bucket's burst or queue; the limit for windows and the log.
    pub capacity: u32,
}

const DAY: u64 = 86_400;

impl Setting {
    /// A bucket: one unit every `interval`, at most `capacity` at once.
    pub fn bucket(interval: Duration, capacity: u32) -> Setting {
        Setting {
            behaviour: Behaviour::TokenBucket,
            limit: 1,
            period: interval,
            capacity,
        }
    }

    /// A limit that no scenario over that many keys reaches.
    ///
    /// Every unit taken takes minutes to come back, so that all keys stay live: an emptied
    /// counter that may be forgotten would be a different, easier question.
    pub fn roomy(behaviour: Behaviour, keys: usize) -> Setting {
        // Few keys are hit often each, many keys must outlive the filling of all contenders.
        let (interval, capacity) = if keys <= 1_000 {
            (60, 50_000_000)
        } else {
            (1_500, 2_000_000)
        };
        if behaviour.is_bucket() {
            let bucket = Setting::bucket(Duration::from_secs(interval), capacity);
            return Setting {
                behaviour,
                ..bucket
            };
        }
        // A log remembers 100,000 entries at most.
        let limit = if behaviour == Behaviour::SlidingWindowLog {
            100_000
        } else {
            capacity
        };
        Setting::window(behaviour, limit)
    }

    /// A limit of a few units that stays used up once it is.
    pub fn scarce(behaviour: Behaviour) -> Setting {
        if behaviour.is_bucket() {
            let bucket = Setting::bucket(Duration::from_secs(DAY), 2);
            return Setting {
                behaviour,
                ..bucket
            };
        }
        Setting::window(behaviour, 2)
    }

    /// A window or a log of 30 days.
    pub fn window(behaviour: Behaviour, limit: u32) -> Setting {
        Setting {
            behaviour,
            limit,
            period: Duration::from_secs(30 * DAY),
            capacity: limit,
        }
    }

    /// How long one unit takes to come back.
    pub fn interval(&self) -> Duration {
        self.period / self.limit
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting {
            behaviour,
            limit,
            period,
            capacity,
        } = self;
        let period = match (period.as_secs(), period.subsec_millis()) {
            (seconds, 0) => format!("{seconds}s"),
            (seconds, ms) => format!("{}ms", seconds * 1_000 + u64::from(ms)),
        };
        match behaviour {
            Behaviour::TokenBucket => {
                write!(f, "token-bucket {limit}/{period} burst {capacity}")
            }
            Behaviour::LeakyPolicing => {
                write!(f, "leaky-bucket {limit}/{period} burst {capacity}")
            }
            Behaviour::LeakyShaping => {
                write!(f, "leaky-bucket {limit}/{period} queue {capacity}")
            }
            Behaviour::FixedWindow
            | Behaviour::SlidingWindowLog
            | Behaviour::SlidingWindowCounter => {
                write!(f, "{} {limit}/{period}", behaviour.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_a_quota_tallygate_accepts() {
        for behaviour in Behaviour::ALL {
            for setting in [
                Setting::roomy(behaviour, 1),
                Setting::roomy(behaviour, 1_000_000),
                Setting::scarce(behaviour),
            ] {
                let text = setting.to_string();
                let parsed = text.parse::<tallygate::Quota>();
                assert!(parsed.is_ok(), "{text}");
            }
        }
    }
}
