//! Quotas as constants: builders and [`quota!`](crate::quota), checked when they are compiled.

use core::time::Duration;

use super::fault::OutOfRange;
use super::{Quota, period_us, text};
use crate::algorithm::Algorithm;

/// Creates a [`Quota`] from a literal in its text form, checked when it is compiled.
///
/// ```
/// use tallygate_core::{Quota, quota};
///
/// const SEARCH: Quota = quota!("token-bucket 10/s burst 50");
/// assert_eq!(SEARCH, Quota::token_bucket(10).per_second().burst(50));
/// assert_eq!(quota!("100/min"), Quota::per_minute(100));
/// ```
///
/// A mistake does not compile:
///
/// ```compile_fail
/// let quota = tallygate_core::quota!("tokenbucket 10/s");
/// ```
#[macro_export]
macro_rules! quota {
    ($text:literal) => {{
        const QUOTA: $crate::Quota = $crate::Quota::from_literal($text);
        QUOTA
    }};
}

/// A number of units that still needs its period; see [`Quota::token_bucket`].
#[derive(Clone, Copy, Debug)]
#[must_use = "set its period: without one it is not a quota"]
pub struct QuotaBuilder {
    algorithm: Algorithm,
    limit: u32,
}

impl QuotaBuilder {
    /// The limit is per second.
    ///
    /// # Panics
    /// When the limit is 0 or above [`MAX_CAPACITY`](crate::MAX_CAPACITY), for a sliding window log
    /// above [`MAX_LOG_LIMIT`](crate::MAX_LOG_LIMIT). In a constant this is an error of the compiler.
    pub const fn per_second(self) -> Quota {
        self.per(Duration::from_secs(1))
    }

    /// The limit is per minute.
    ///
    /// # Panics
    /// See [`per_second`](QuotaBuilder::per_second).
    pub const fn per_minute(self) -> Quota {
        self.per(Duration::from_secs(60))
    }

    /// The limit is per hour.
    ///
    /// # Panics
    /// See [`per_second`](QuotaBuilder::per_second).
    pub const fn per_hour(self) -> Quota {
        self.per(Duration::from_secs(3_600))
    }

    /// The limit is per day of 24 hours. Windows of a day start at midnight UTC.
    ///
    /// # Panics
    /// See [`per_second`](QuotaBuilder::per_second).
    pub const fn per_day(self) -> Quota {
        self.per(Duration::from_secs(86_400))
    }

    /// The limit is per period: 1 ms to 366 days, in whole milliseconds.
    ///
    /// # Panics
    /// When the limit or the period is out of range; parse text or use [`Quota::new`] for data.
    pub const fn per(self, period: Duration) -> Quota {
        let limit = self.limit as u64;
        match period_us(period) {
            Ok(us) => literal(Quota::validated(self.algorithm, limit, us, limit)),
            Err(error) => panic!("{}", error.summary()),
        }
    }
}

impl Quota {
    /// A fixed window: one count for each window, aligned to the Unix epoch.
    ///
    /// ```
    /// use tallygate_core::Quota;
    ///
    /// const DAILY: Quota = Quota::fixed_window(1_000).per_day();
    /// assert_eq!(DAILY.to_string(), "fixed-window 1000/d");
    /// ```
    pub const fn fixed_window(limit: u32) -> QuotaBuilder {
        let algorithm = Algorithm::FixedWindow;
        QuotaBuilder { algorithm, limit }
    }

    /// A sliding window log: exact, stores every request of the last period.
    pub const fn sliding_window_log(limit: u32) -> QuotaBuilder {
        let algorithm = Algorithm::SlidingWindowLog;
        QuotaBuilder { algorithm, limit }
    }

    /// A sliding window counter, the default algorithm: two counts, the previous one weighted.
    pub const fn sliding_window_counter(limit: u32) -> QuotaBuilder {
        let algorithm = Algorithm::SlidingWindowCounter;
        QuotaBuilder { algorithm, limit }
    }

    /// A token bucket, also known as GCRA: starts full and refills continuously. Its
    /// [burst](Quota::burst) is the limit if none is set.
    ///
    /// ```
    /// use tallygate_core::Quota;
    ///
    /// const API: Quota = Quota::token_bucket(10).per_second().burst(50);
    /// assert_eq!(API.to_string(), "token-bucket 10/s burst 50");
    /// ```
    pub const fn token_bucket(limit: u32) -> QuotaBuilder {
        let algorithm = Algorithm::TokenBucket;
        QuotaBuilder { algorithm, limit }
    }

    /// A leaky bucket: starts empty and drains continuously. With a [burst](Quota::burst), or with
    /// neither, it refuses what does not fit; with a [queue](Quota::queue) it delays.
    ///
    /// ```
    /// use tallygate_core::Quota;
    ///
    /// const MAILER: Quota = Quota::leaky_bucket(10).per_second().queue(20);
    /// assert_eq!(MAILER.to_string(), "leaky-bucket 10/s queue 20");
    /// ```
    pub const fn leaky_bucket(limit: u32) -> QuotaBuilder {
        let algorithm = Algorithm::LeakyPolicing;
        QuotaBuilder { algorithm, limit }
    }

    /// A limit of units in flight at once: 1 to 10,000, each held for 1 s to 24 h unless it is renewed
    /// or released before.
    ///
    /// # Panics
    /// When the limit or the hold time is out of range; parse text or use [`Quota::new`] for data.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tallygate_core::Quota;
    ///
    /// const STREAMS: Quota = Quota::concurrent(10, Duration::from_secs(30));
    /// assert_eq!(STREAMS.to_string(), "concurrent 10 for 30s");
    /// ```
    pub const fn concurrent(limit: u32, hold: Duration) -> Self {
        let units = limit as u64;
        match period_us(hold) {
            Ok(us) => literal(Quota::validated(Algorithm::Concurrent, units, us, units)),
            Err(error) => panic!("{}", error.summary()),
        }
    }

    /// A sliding window counter of `limit` requests per second.
    ///
    /// # Panics
    /// When the limit is 0 or above [`MAX_CAPACITY`](crate::MAX_CAPACITY); parse text or use
    /// [`Quota::new`] for data.
    pub const fn per_second(limit: u32) -> Self {
        Quota::sliding_window_counter(limit).per_second()
    }

    /// A sliding window counter of `limit` requests per minute.
    ///
    /// # Panics
    /// See [`Quota::per_second`].
    pub const fn per_minute(limit: u32) -> Self {
        Quota::sliding_window_counter(limit).per_minute()
    }

    /// A sliding window counter of `limit` requests per hour.
    ///
    /// # Panics
    /// See [`Quota::per_second`].
    pub const fn per_hour(limit: u32) -> Self {
        Quota::sliding_window_counter(limit).per_hour()
    }

    /// A sliding window counter of `limit` requests per day.
    ///
    /// # Panics
    /// See [`Quota::per_second`].
    pub const fn per_day(limit: u32) -> Self {
        Quota::sliding_window_counter(limit).per_day()
    }

    /// Sets the burst of a token bucket, or of a leaky bucket that refuses.
    ///
    /// # Panics
    /// When the burst is out of range, or the quota is a window or has a queue: in a constant an
    /// error of the compiler. For data, use [`Quota::with_capacity`].
    ///
    /// ```compile_fail
    /// use tallygate_core::Quota;
    ///
    /// const WINDOW: Quota = Quota::fixed_window(10).per_second().burst(50);
    /// ```
    #[must_use]
    pub const fn burst(self, units: u32) -> Quota {
        self.with_keyword("burst", units)
    }

    /// Sets the queue of a leaky bucket, which then delays requests instead of refusing them.
    ///
    /// # Panics
    /// When the queue is out of range, or the quota is no leaky bucket or has a burst: in a constant
    /// an error of the compiler. For data, use [`Quota::with_capacity`].
    #[must_use]
    pub const fn queue(self, units: u32) -> Quota {
        self.with_keyword("queue", units)
    }

    /// Lets members share the bucket by weight: each has at least `units`, and borrows what others
    /// leave.
    ///
    /// # Panics
    /// When the units are 0 or above a fourth of the burst, a full drain is above 366 days, or the
    /// quota is no bucket with a burst: in a constant an error of the compiler.
    ///
    /// ```
    /// use tallygate_core::Quota;
    ///
    /// const TENANTS: Quota = Quota::token_bucket(100).per_second().burst(100).shared(4);
    /// assert_eq!(TENANTS.to_string(), "token-bucket 100/s burst 100 shared 4");
    /// ```
    #[must_use]
    pub const fn shared(self, units: u32) -> Quota {
        let Some(algorithm) = self.algorithm.shared() else {
            panic!("only token buckets and leaky buckets with a burst can be shared");
        };
        let (limit, capacity) = (self.limit as u64, self.capacity as u64);
        literal(Quota::validated_share(
            algorithm,
            limit,
            self.period_us,
            capacity,
            units as u64,
        ))
    }

    const fn with_keyword(self, keyword: &'static str, units: u32) -> Quota {
        let name = self.algorithm.name().as_bytes();
        let Some(algorithm) = text::algorithm(name, Some(keyword.as_bytes())) else {
            panic!("only buckets have a burst, and only leaky buckets a queue");
        };
        // A capacity that is not the limit was set before.
        let is_set = self.capacity != self.limit;
        assert!(
            !self.algorithm.is_shared(),
            "the burst is set before the share"
        );
        assert!(
            !is_set || algorithm as u8 == self.algorithm as u8,
            "a bucket has a burst or a queue, not both"
        );
        let (limit, units) = (self.limit as u64, units as u64);
        literal(Quota::validated(algorithm, limit, self.period_us, units))
    }

    /// For [`quota!`](crate::quota).
    ///
    /// # Panics
    /// When the text is invalid.
    #[doc(hidden)]
    pub const fn from_literal(text: &'static str) -> Quota {
        match text::parse(text) {
            Ok(quota) => quota,
            Err(fault) => panic!("{}", fault.problem.summary()),
        }
    }
}

const fn literal(quota: Result<Quota, OutOfRange>) -> Quota {
    match quota {
        Ok(quota) => quota,
        Err(error) => panic!("{}", error.summary()),
    }
}
