//! A quota: an algorithm with its limit, period and capacity.

mod builder;
mod error;
mod fault;
mod hint;
mod text;

use core::time::Duration;

pub use builder::QuotaBuilder;
pub use error::QuotaError;
use fault::OutOfRange;

use crate::MAX_TIME_US;
use crate::algorithm::Algorithm;
use crate::math::{div_by, mul_div, narrow, reciprocal};

/// The largest limit, burst or queue.
pub const MAX_CAPACITY: u32 = 1_000_000_000;
/// The largest limit of a sliding window log, which stores every request.
pub const MAX_LOG_LIMIT: u32 = 100_000;
/// The largest concurrency limit.
pub const MAX_IN_FLIGHT: u32 = 10_000;
/// The shortest hold time of a concurrency limit: 1 s.
pub const MIN_HOLD_US: u64 = 1_000_000;
/// The longest hold time of a concurrency limit: 24 h.
pub const MAX_HOLD_US: u64 = 86_400 * 1_000_000;
/// The units that a member of a shared bucket has at least, if the text gives none.
pub(crate) const DEFAULT_SHARED_UNITS: u32 = 4;
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
    /// The units that a member has at least; 0 if the quota is not shared.
    member_units: u32,
    /// The hold time of a concurrency limit.
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
    pub(crate) const fn ceil(self) -> u64 {
        self.us.saturating_add((self.part > 0) as u64)
    }
}

impl Quota {
    /// Builds a window or log of `limit` requests per `period`, or a bucket whose burst is the limit.
    /// For numbers that are only known at run time; for others, see
    /// [`token_bucket`](Quota::token_bucket) and [`quota!`](crate::quota).
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
        let period_us = period_us(period)?;
        Ok(Self::validated(
            algorithm,
            limit.into(),
            period_us,
            capacity.into(),
        )?)
    }

    const fn validated(
        algorithm: Algorithm,
        limit: u64,
        period_us: u64,
        capacity: u64,
    ) -> Result<Self, OutOfRange> {
        let share = match algorithm.is_shared() {
            true => DEFAULT_SHARED_UNITS as u64,
            false => 0,
        };
        Self::validated_share(algorithm, limit, period_us, capacity, share)
    }

    /// With the units that a member of a shared bucket has at least; 0 for all others.
    const fn validated_share(
        algorithm: Algorithm,
        limit: u64,
        period_us: u64,
        capacity: u64,
        share: u64,
    ) -> Result<Self, OutOfRange> {
        let keyword = algorithm.capacity_keyword();
        let max = algorithm.max_limit();
        if limit == 0 || limit > max as u64 {
            return Err(OutOfRange::Limit { limit, max });
        }
        if capacity == 0 || capacity > MAX_CAPACITY as u64 {
            return Err(OutOfRange::Capacity { keyword, capacity });
        }
        if keyword.is_none() && capacity != limit {
            return Err(OutOfRange::NoCapacity { algorithm });
        }
        if algorithm.is_concurrent() {
            if period_us < MIN_HOLD_US || period_us > MAX_HOLD_US {
                return Err(OutOfRange::Hold { hold_us: period_us });
            }
        } else if period_us < MIN_PERIOD_US || period_us > MAX_PERIOD_US {
            return Err(OutOfRange::Period { period_us });
        }
        if algorithm.is_shared() {
            if share == 0 {
                return Err(OutOfRange::Share { share });
            }
            if share > capacity / 4 {
                return Err(OutOfRange::SharedBurst { share, capacity });
            }
        }
        // Both are at most `MAX_CAPACITY`.
        let (limit, capacity) = (narrow(limit), narrow(capacity));
        let unit = drain(1, period_us, limit);
        let full = drain(capacity, period_us, limit);
        if full.us > MAX_TIME_US || (full.us == MAX_TIME_US && full.part > 0) {
            return Err(OutOfRange::Drain {
                limit,
                period_us,
                capacity,
            });
        }
        if algorithm.is_shared() && full.ceil() > MAX_PERIOD_US {
            return Err(OutOfRange::SharedDrain { drain_us: full.us });
        }
        let unit_reciprocal = if keyword.is_some() && unit.part == 0 {
            reciprocal(unit.us)
        } else {
            0
        };
        Ok(Quota {
            algorithm,
            limit,
            capacity,
            // At most a fourth of the capacity.
            member_units: narrow(share),
            period_us,
            unit,
            full,
            unit_reciprocal,
        })
    }

    /// The algorithm.
    #[inline]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units per period; of a concurrency limit, units at once.
    #[inline]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The period; of a concurrency limit, the hold time.
    #[inline]
    pub fn period(&self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    /// The period in microseconds.
    #[inline]
    pub fn period_us(&self) -> u64 {
        self.period_us
    }

    /// The maximum cost of one request: the limit of a window, a log or a concurrency limit, the burst
    /// or queue of a bucket.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The units that a member of a shared bucket has at least, for each of its weight; `None` if the
    /// quota is not shared.
    ///
    /// ```
    /// use tallygate_core::Quota;
    ///
    /// assert_eq!("token-bucket 10/s burst 50 shared".parse::<Quota>()?.shared_units(), Some(4));
    /// assert_eq!("token-bucket 10/s burst 50".parse::<Quota>()?.shared_units(), None);
    /// # Ok::<(), tallygate_core::QuotaError>(())
    /// ```
    pub fn shared_units(&self) -> Option<u32> {
        (self.member_units > 0).then_some(self.member_units)
    }

    /// The same, 0 if the quota is not shared.
    #[inline]
    pub(crate) fn member_units(&self) -> u32 {
        self.member_units
    }

    /// The lifetime of this quota's state in microseconds: the period of a window or log, a full
    /// drain of a bucket, rounded up, and the hold time of a concurrency limit.
    #[inline]
    pub fn span_us(&self) -> u64 {
        match self.algorithm.capacity_keyword() {
            Some(_) => self.full.ceil(),
            None => self.period_us,
        }
    }

    /// The end of the window that contains `at_us`, if windows are aligned; `None` for others.
    ///
    /// ```
    /// use tallygate_core::Quota;
    ///
    /// assert_eq!("fixed-window 5/s".parse::<Quota>()?.window_end_us(1_300_000), Some(2_000_000));
    /// assert_eq!("token-bucket 5/s".parse::<Quota>()?.window_end_us(1_300_000), None);
    /// # Ok::<(), tallygate_core::QuotaError>(())
    /// ```
    pub fn window_end_us(&self, at_us: u64) -> Option<u64> {
        let aligned = self.algorithm.has_aligned_windows();
        aligned.then(|| at_us - at_us % self.period_us + self.period_us)
    }

    /// The maximum number of units that check and take can admit within any span of that length,
    /// end exclusive, rounded down; of a concurrency limit, the units in flight at once.
    pub fn worst_case(&self, span_us: u64) -> u64 {
        self.algorithm.worst_case(self, span_us)
    }

    /// The part of each of `replicas` processes, so that all of them together keep the rate: the
    /// limit and the burst divided by `replicas`, rounded down. A limit below one becomes one in a
    /// longer period; a concurrency limit is at least one. A burst too small to be shared is not
    /// shared. `None` if that period is above the maximum.
    ///
    /// ```
    /// use tallygate_core::Quota;
    ///
    /// let quota: Quota = "token-bucket 10/s burst 3".parse()?;
    /// let part = quota.divide(4).expect("2/s is a rate");
    /// assert_eq!(part.to_string(), "token-bucket 2/s burst 1");
    /// let part = quota.divide(100).expect("one in 10 s is a rate");
    /// assert_eq!(part.to_string(), "token-bucket 1/10s burst 1");
    /// # Ok::<(), tallygate_core::QuotaError>(())
    /// ```
    pub fn divide(&self, replicas: u32) -> Option<Quota> {
        let replicas = replicas.max(1);
        let limit = (self.limit / replicas).max(1);
        let period_us = if self.limit < replicas && !self.algorithm.is_concurrent() {
            let longer = u128::from(self.period_us) * u128::from(replicas);
            let us = longer.div_ceil(u128::from(self.limit));
            u64::try_from(us).ok()?.next_multiple_of(1_000)
        } else {
            self.period_us
        };
        let capacity = match self.algorithm.capacity_keyword() {
            // A rate that was rounded down may drain too slowly for its part of the burst.
            Some(_) => (self.capacity / replicas)
                .min(narrow(
                    mul_div(self.max_drain_us(), limit.into(), period_us).0,
                ))
                .max(1),
            None => limit,
        };
        let share = self.member_units.min(capacity / 4);
        let algorithm = match share {
            0 => self.algorithm.unshared(),
            1.. => self.algorithm,
        };
        Self::validated_share(
            algorithm,
            limit.into(),
            period_us,
            capacity.into(),
            share.into(),
        )
        .ok()
    }

    /// The longest full drain.
    fn max_drain_us(&self) -> u64 {
        match self.member_units {
            0 => MAX_TIME_US,
            1.. => MAX_PERIOD_US,
        }
    }

    /// How long `units` take at the sustained rate in microseconds, rounded up.
    pub fn drain_us(&self, units: u32) -> u64 {
        drain(units, self.period_us, self.limit).ceil()
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
            drain(units, self.period_us, self.limit)
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
}

/// How long `units` take to drain at `limit` per period.
const fn drain(units: u32, period_us: u64, limit: u32) -> Drain {
    let (us, part) = mul_div(units as u64, period_us, limit as u64);
    Drain {
        us,
        part: narrow(part),
    }
}

/// A period in microseconds; above the maximum it saturates.
#[expect(clippy::cast_possible_truncation, reason = "compared first")]
const fn period_us(period: Duration) -> Result<u64, OutOfRange> {
    if !period.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(OutOfRange::Fraction { period });
    }
    let us = period.as_micros();
    Ok(if us > u64::MAX as u128 {
        u64::MAX
    } else {
        us as u64
    })
}
