//! throttlecrab: GCRA in one map with a sweep every minute. It wants `&mut`, hence the mutex.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use throttlecrab::{PeriodicStore, RateLimiter};

use super::{Contender, Expiring};
use crate::keys::Key;
use crate::setting::Setting;

const NAME: &str = "throttlecrab";

/// Its periodic store on the system's clock.
pub(super) struct Periodic(Inner);

impl Contender for Periodic {
    const NAME: &'static str = NAME;

    fn new(setting: &Setting, capacity: usize) -> Self {
        Periodic(Inner::new(setting, capacity))
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        self.0.check(key, SystemTime::now())
    }
}

/// The same on supplied time.
pub(super) struct Supplied {
    inner: Inner,
    zero: SystemTime,
    now_us: AtomicU64,
}

impl Expiring for Supplied {
    const NAME: &'static str = NAME;

    fn new(life: Duration, capacity: usize) -> Self {
        Supplied {
            // At a burst of 1 it forgets a key at once.
            inner: Inner::new(&Setting::bucket(life, 2), capacity),
            zero: SystemTime::now(),
            now_us: AtomicU64::new(0),
        }
    }

    fn set_time(&self, now: Duration) {
        let now_us = u64::try_from(now.as_micros()).expect("a run is far below 584,000 years");
        self.now_us.store(now_us, Relaxed);
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        let now = self.zero + Duration::from_micros(self.now_us.load(Relaxed));
        self.inner.check(key, now)
    }
}

struct Inner {
    limiter: Mutex<RateLimiter<PeriodicStore>>,
    burst: i64,
    count: i64,
    period_s: i64,
}

impl Inner {
    fn new(setting: &Setting, capacity: usize) -> Inner {
        let store = PeriodicStore::with_capacity(capacity);
        Inner {
            limiter: Mutex::new(RateLimiter::new(store)),
            burst: setting.capacity.into(),
            count: setting.limit.into(),
            period_s: i64::try_from(setting.period.as_secs()).expect("periods are short"),
        }
    }

    #[inline]
    fn check(&self, key: &Key, now: SystemTime) -> bool {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = limiter.rate_limit(key, self.burst, self.count, self.period_s, 1, now);
        matches!(black_box(&answer), Ok((true, _)))
    }
}
