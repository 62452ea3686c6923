//! A quota: an algorithm with its limit, period and capacity.

mod error;
mod text;

use alloc::format;
use alloc::string::ToString as _;
use core::time::Duration;

pub use error::QuotaError;
use text::Period;

use crate::MAX_TIME_US;
use crate::algorithm::Algorithm;
use crate::math::{div_by, mul_div, narrow, reciprocal};

/// The largest limit, burst or queue.
pub const MAX_CAPACITY: u32 = 1_000_000_000;
/// The largest limit of a sliding window log, which stores every request.
pub const MAX_LOG_LIMIT: u32 = 100_000;
/// The shortest period: 1 ms.
pub const MIN_PERIOD_US: u64 = 1_000;
/// The longest period: 366 days.
pub const MAX_PERIOD_US: u64 = 366 * 86_400 * 1_000_000;

/// An algorithm with its limit, period and capacity.
///
/// Usually parsed from its text form, which [`Display`](core::fmt::Display) writes:
///
/// ```
/// use tallygate_core::Quota;
///
/// let quota: Quota = "gcra 10/sec".parse()?;
/// assert_eq!(quota.to_string(), "token-bucket 10/s burst 10");
/// # Ok::<(), tallygate_core::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    algorithm: Algorithm,
    limit: u32,
    capacity: u32,
    period_us: u64,
    /// How long one unit takes to drain.
    unit: Drain,
    /// How long the whole capacity takes to drain.
    full: Drain,
    /// The [`reciprocal`] of the time that one unit of a bucket takes to drain; 0 if that is not
    /// whole microseconds.
    unit_reciprocal: u64,
}

/// How long something takes to drain at a quota's rate: whole microseconds and a fraction of one,
/// in parts of 1/limit, so that no rate is rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Drain {
    pub(crate) us: u64,
    pub(crate) part: u32,
}

impl Drain {
    pub(crate) const MAX: Self = Drain {
        us: MAX_TIME_US,
        part: 0,
    };

    /// Whole microseconds, rounded up.
    #[inline]
    pub(crate) fn ceil(self) -> u64 {
        self.us.saturating_add(u64::from(self.part > 0))
    }
}

impl Quota {
    /// Builds a window or log of `limit` requests per `period`, or a bucket whose burst is the limit.
    ///
    /// # Errors
    /// When the limit, the period or a full drain is out of range, or the period is not a whole
    /// number of milliseconds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tallygate_core::{Algorithm, Quota};
    ///
    /// let quota = Quota::new(Algorithm::FixedWindow, 100, Duration::from_secs(60))?;
    /// assert_eq!(quota.to_string(), "fixed-window 100/min");
    /// # Ok::<(), tallygate_core::QuotaError>(())
    /// ```
    pub fn new(algorithm: Algorithm, limit: u32, period: Duration) -> Result<Self, QuotaError> {
        Self::with_capacity(algorithm, limit, period, limit)
    }

    /// Builds a bucket with its own burst or queue.
    ///
    /// # Errors
    /// See [`Quota::new`]; also when a window or log is given a capacity other than its limit.
    pub fn with_capacity(
        algorithm: Algorithm,
        limit: u32,
        period: Duration,
        capacity: u32,
    ) -> Result<Self, QuotaError> {
        if !period.subsec_nanos().is_multiple_of(1_000_000) {
            let problem = format!("the period {period:?} is not a whole number of milliseconds");
            return Err(QuotaError::new(problem));
        }
        let period_us = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
        Self::validated(algorithm, limit.into(), period_us, capacity.into())
    }

    pub(crate) fn validated(
        algorithm: Algorithm,
        limit: u64,
        period_us: u64,
        capacity: u64,
    ) -> Result<Self, QuotaError> {
        let word = algorithm.capacity_keyword();
        let limit = bounded("limit", limit, algorithm.max_limit())?;
        let capacity = bounded(word.unwrap_or("limit"), capacity, MAX_CAPACITY)?;
        if word.is_none() && capacity != limit {
            let problem = format!("{} takes no burst or queue", algorithm.name());
            return Err(QuotaError::new(problem));
        }
        if period_us < MIN_PERIOD_US {
            let problem = format!("the period {period_us}us is below 1ms");
            return Err(QuotaError::new(problem));
        }
        if period_us > MAX_PERIOD_US {
            let problem = match period_us {
                u64::MAX => "the period is above 366d".into(),
                long => format!("the period {} is above 366d", Period(long)),
            };
            return Err(QuotaError::new(problem));
        }
        let mut quota = Quota {
            algorithm,
            limit,
            capacity,
            period_us,
            unit: Drain::default(),
            full: Drain::default(),
            unit_reciprocal: 0,
        };
        quota.unit = quota.divide(1);
        quota.full = quota.divide(capacity);
        if word.is_some() && quota.unit.part == 0 {
            quota.unit_reciprocal = reciprocal(quota.unit.us);
        }
        if quota.full > Drain::MAX {
            let problem = format!(
                "a full drain (capacity x period / limit) of {} microseconds is above {MAX_TIME_US}",
                u128::from(capacity) * u128::from(period_us) / u128::from(limit)
            );
            return Err(QuotaError::new(problem));
        }
        Ok(quota)
    }

    /// A sliding window counter of `limit` requests per second.
    ///
    /// # Panics
    /// When the limit is 0 or above [`MAX_CAPACITY`]; parse text or use [`Quota::new`] for data.
    pub fn per_second(limit: u32) -> Self {
        Self::literal(limit, 1)
    }

    /// A sliding window counter of `limit` requests per minute.
    ///
    /// # Panics
    /// See [`Quota::per_second`].
    pub fn per_minute(limit: u32) -> Self {
        Self::literal(limit, 60)
    }

    /// A sliding window counter of `limit` requests per hour.
    ///
    /// # Panics
    /// See [`Quota::per_second`].
    pub fn per_hour(limit: u32) -> Self {
        Self::literal(limit, 3_600)
    }

    /// A sliding window counter of `limit` requests per day.
    ///
    /// # Panics
    /// See [`Quota::per_second`].
    pub fn per_day(limit: u32) -> Self {
        Self::literal(limit, 86_400)
    }

    fn literal(limit: u32, seconds: u64) -> Self {
        match Self::new(Algorithm::default(), limit, Duration::from_secs(seconds)) {
            Ok(quota) => quota,
            Err(error) => panic!("{error}"),
        }
    }

    /// The algorithm.
    #[inline]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units per period.
    #[inline]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The period.
    #[inline]
    pub fn period(&self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    /// The period in microseconds.
    #[inline]
    pub fn period_us(&self) -> u64 {
        self.period_us
    }

    /// The maximum cost of one request: the limit of a window or log, the burst or queue of a
    /// bucket.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The lifetime of this quota's state in microseconds: the period of a window or log, a full
    /// drain of a bucket, rounded up.
    #[inline]
    pub fn span_us(&self) -> u64 {
        match self.algorithm.capacity_keyword() {
            Some(_) => self.full.ceil(),
            None => self.period_us,
        }
    }

    /// The maximum number of units that check and take can admit within any span of that length,
    /// end exclusive. Rounded down.
    pub fn worst_case(&self, span_us: u64) -> u64 {
        self.algorithm.worst_case(self, span_us)
    }

    /// The share of each of `replicas` processes, so that all of them together keep the rate: the
    /// limit and the burst divided by `replicas`, rounded down. A share below one becomes one in a
    /// longer period. `None` if that period is above the maximum.
    ///
    /// ```
    /// use tallygate_core::Quota;
    ///
    /// let quota: Quota = "token-bucket 10/s burst 3".parse()?;
    /// let share = quota.share(4).expect("2/s is a rate");
    /// assert_eq!(share.to_string(), "token-bucket 2/s burst 1");
    /// let share = quota.share(100).expect("one in 10 s is a rate");
    /// assert_eq!(share.to_string(), "token-bucket 1/10s burst 1");
    /// # Ok::<(), tallygate_core::QuotaError>(())
    /// ```
    pub fn share(&self, replicas: u32) -> Option<Quota> {
        let replicas = replicas.max(1);
        let limit = (self.limit / replicas).max(1);
        let period_us = if self.limit < replicas {
            let longer = u128::from(self.period_us) * u128::from(replicas);
            let us = longer.div_ceil(u128::from(self.limit));
            u64::try_from(us).ok()?.next_multiple_of(1_000)
        } else {
            self.period_us
        };
        let capacity = match self.algorithm.capacity_keyword() {
            // A rate that was rounded down may drain too slowly for its share of the burst.
            Some(_) => (self.capacity / replicas)
                .min(narrow(mul_div(MAX_TIME_US, limit.into(), period_us).0))
                .max(1),
            None => limit,
        };
        Self::validated(self.algorithm, limit.into(), period_us, capacity.into()).ok()
    }

    /// How long `units` take at the sustained rate in microseconds, rounded up.
    pub fn drain_us(&self, units: u32) -> u64 {
        self.divide(units).ceil()
    }

    /// How long `units` take to drain.
    #[inline]
    pub(crate) fn drain(&self, units: u32) -> Drain {
        if self.unit.part == 0 {
            Drain {
                us: self.unit.us.saturating_mul(units.into()),
                part: 0,
            }
        } else if units == 1 {
            self.unit
        } else {
            self.divide(units)
        }
    }

    /// Whether the units of a bucket drain in whole microseconds, as those of nearly all do.
    #[inline]
    pub(crate) fn has_whole_units(&self) -> bool {
        self.unit_reciprocal != 0
    }

    /// How many units drain in that time, which is at most a full drain; for whole units only.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a full drain is at most the capacity"
    )]
    pub(crate) fn whole_units(&self, us: u64) -> u32 {
        div_by(us, self.unit.us, self.unit_reciprocal) as u32
    }

    /// How long the whole capacity takes to drain.
    #[inline]
    pub(crate) fn full(&self) -> Drain {
        self.full
    }

    fn divide(&self, units: u32) -> Drain {
        let (us, part) = mul_div(units.into(), self.period_us, self.limit.into());
        Drain {
            us,
            part: narrow(part),
        }
    }
}

fn bounded(what: &'static str, value: u64, max: u32) -> Result<u32, QuotaError> {
    match u32::try_from(value) {
        Ok(0) => Err(QuotaError::new(format!("{what} 0 is below 1"))),
        Ok(fits) if fits <= max => Ok(fits),
        Ok(_) | Err(_) => {
            let value = match value {
                u64::MAX => "2^64 or more".into(),
                value => value.to_string(),
            };
            Err(QuotaError::new(format!("{what} {value} is above {max}")))
        }
    }
}
