//! throttlecrab: GCRA in one map with a sweep every minute. It needs `&mut`, hence the mutex.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use throttlecrab::{PeriodicStore, RateLimiter};

use super::{Contender, ExpiringContender};
use crate::keys::Key;
use crate::quota_spec::QuotaSpec;

const NAME: &str = "throttlecrab";

/// Its periodic store on the system clock.
pub(super) struct Periodic(LockedLimiter);

impl Contender for Periodic {
    const NAME: &'static str = NAME;

    fn new(spec: &QuotaSpec, capacity: usize) -> Self {
        Periodic(LockedLimiter::new(spec, capacity))
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        self.0.check(key, SystemTime::now())
    }
}

/// The same with supplied times.
pub(super) struct Supplied {
    inner: LockedLimiter,
    zero: SystemTime,
    now_us: AtomicU64,
}

impl ExpiringContender for Supplied {
    const NAME: &'static str = NAME;

    fn new(life: Duration, capacity: usize) -> Self {
        Supplied {
            // With a burst of 1 it drops a key immediately.
            inner: LockedLimiter::new(&QuotaSpec::bucket(life, 2), capacity),
            zero: SystemTime::now(),
            now_us: AtomicU64::new(0),
        }
    }

    fn set_time(&self, now: Duration) {
        let now_us = u64::try_from(now.as_micros()).expect("a run is shorter than 584,000 years");
        self.now_us.store(now_us, Relaxed);
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        let now = self.zero + Duration::from_micros(self.now_us.load(Relaxed));
        self.inner.check(key, now)
    }
}

struct LockedLimiter {
    limiter: Mutex<RateLimiter<PeriodicStore>>,
    burst: i64,
    count: i64,
    period_s: i64,
}

impl LockedLimiter {
    fn new(spec: &QuotaSpec, capacity: usize) -> LockedLimiter {
        let store = PeriodicStore::with_capacity(capacity);
        LockedLimiter {
            limiter: Mutex::new(RateLimiter::new(store)),
            burst: spec.capacity.into(),
            count: spec.limit.into(),
            period_s: i64::try_from(spec.period.as_secs()).expect("periods are short"),
        }
    }

    #[inline]
    fn check(&self, key: &Key, now: SystemTime) -> bool {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let result = limiter.rate_limit(key, self.burst, self.count, self.period_s, 1, now);
        matches!(black_box(&result), Ok((true, _)))
    }
}
