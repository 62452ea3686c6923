//! Clocks of stores in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time in whole microseconds since the Unix epoch.
///
/// It should not step back. If it does, decisions follow the rules for a corrected clock and never
/// panic.
pub trait Clock: Send + Sync + 'static {
    /// The current time.
    fn now_us(&self) -> u64;
}

impl<C: Clock> Clock for Arc<C> {
    #[inline]
    fn now_us(&self) -> u64 {
        (**self).now_us()
    }
}

/// The system's monotonic clock, set to wall time when created.
///
/// Later changes of the wall clock are not followed. Reads the processor's time stamp counter where
/// there is one, and synchronizes it with the monotonic clock once a second.
#[derive(Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    start_count: u64,
    start: Instant,
    start_us: i64,
    /// Added to the counter's microseconds to get the time.
    offset_us: AtomicI64,
    /// The counter's microseconds of the next synchronization.
    next_sync_us: AtomicU64,
}

const SYNC_INTERVAL_US: u64 = 1_000_000;
/// A reading of both clocks that takes longer was interrupted, and is discarded.
const MAX_SYNC_US: u64 = 10;

impl SystemClock {
    /// Creates a clock that starts at wall time.
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let start_us = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
        SystemClock {
            start_count: counter.raw(),
            start: Instant::now(),
            start_us,
            counter,
            offset_us: AtomicI64::new(start_us),
            next_sync_us: AtomicU64::new(SYNC_INTERVAL_US),
        }
    }

    /// The counter's microseconds since the start.
    #[inline]
    fn elapsed_us(&self) -> u64 {
        let nanos = self
            .counter
            .delta_as_nanos(self.start_count, self.counter.raw());
        nanos / 1_000
    }

    #[cold]
    fn sync(&self) {
        let before_us = self.elapsed_us();
        let elapsed = self.start.elapsed();
        let after_us = self.elapsed_us();
        if after_us.saturating_sub(before_us) < MAX_SYNC_US {
            let elapsed_us = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
            let correction = elapsed_us.saturating_sub_unsigned(before_us);
            let offset = self.start_us.saturating_add(correction);
            // A difference of one is due to rounding.
            if offset.abs_diff(self.offset_us.load(Relaxed)) > 1 {
                self.offset_us.store(offset, Relaxed);
            }
            let next = before_us.saturating_add(SYNC_INTERVAL_US);
            self.next_sync_us.store(next, Relaxed);
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now_us(&self) -> u64 {
        let elapsed_us = self.elapsed_us();
        if elapsed_us > self.next_sync_us.load(Relaxed) {
            self.sync();
        }
        elapsed_us.saturating_add_signed(self.offset_us.load(Relaxed))
    }
}

/// A clock that moves only when set, for tests and simulations.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tallygate::{Limiter, ManualClock, MemoryStore};
///
/// let clock = Arc::new(ManualClock::at(1_700_000_000_000_000));
/// let store = MemoryStore::builder().clock(clock.clone()).build();
/// let limiter = Limiter::with_store(store, "fixed-window 1/s".parse::<tallygate::Quota>()?);
///
/// assert!(limiter.check("a").allowed());
/// assert!(!limiter.check("a").allowed());
/// clock.advance(Duration::from_secs(1));
/// assert!(limiter.check("a").allowed());
/// # Ok::<(), tallygate::QuotaError>(())
/// ```
#[derive(Debug, Default)]
pub struct ManualClock {
    now_us: AtomicU64,
}

impl ManualClock {
    /// Creates a clock at this many microseconds since the Unix epoch.
    pub fn at(now_us: u64) -> Self {
        ManualClock {
            now_us: now_us.into(),
        }
    }

    /// Sets the time, also backwards.
    pub fn set(&self, now_us: u64) {
        self.now_us.store(now_us, Relaxed);
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let by_us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        let forward = |now: u64| Some(now.saturating_add(by_us));
        // The closure always returns a value.
        let _ = self.now_us.fetch_update(Relaxed, Relaxed, forward);
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now_us(&self) -> u64 {
        self.now_us.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_starts_at_wall_time_and_advances() {
        let clock = SystemClock::new();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let difference = u128::from(clock.now_us()).abs_diff(wall.as_micros());
        assert!(difference < 60_000_000, "{difference} us from wall time");
        let before = clock.now_us();
        while clock.now_us() == before {}
        assert!(clock.now_us() > before);
    }

    #[test]
    fn a_wrong_counter_is_corrected() {
        let clock = SystemClock::new();
        // As if the counter had been an hour ahead at the last synchronization.
        let ahead_us = clock.start_us + 3_600_000_000;
        clock.offset_us.store(ahead_us, Relaxed);
        let wrong = clock.now_us();
        while clock.offset_us.load(Relaxed) == ahead_us {
            clock.sync();
        }
        assert!(clock.now_us() < wrong);
    }
}
