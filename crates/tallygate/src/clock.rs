//! Where a store in this process gets its time from. Knows nothing of what it is used for.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time in whole microseconds since the Unix epoch.
///
/// It should not step back; where it does, decisions follow the rules for a clock that was
/// corrected, and never panic.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now_us(&self) -> u64;
}

impl<C: Clock> Clock for Arc<C> {
    #[inline]
    fn now_us(&self) -> u64 {
        (**self).now_us()
    }
}

/// The machine's clock, anchored to wall time when it was made.
///
/// A wall clock that is set later is not followed. The processor's counter is read where there
/// is one, and held to the system's monotonic clock once a second, so that it does not drift; a
/// counter that ran ahead by more than a microsecond is put back by as many as it was ahead.
#[derive(Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    start_count: u64,
    start: Instant,
    start_us: i64,
    /// How many microseconds a count is, in parts of 2^64.
    rate: u64,
    /// What to add to the counter's microseconds to get the time.
    offset_us: AtomicI64,
    /// The count from which on it is to be compared with the system's clock again.
    compare_at: AtomicU64,
    compare_every: u64,
}

const COMPARE_EVERY_NS: u64 = 1_000_000_000;
const LONGEST_LOOK_US: u64 = 10;
/// So many counts, a power of two, tell how long one is: weeks of them, so that nothing is lost by
/// rounding.
const COUNTS: u32 = 53;

impl SystemClock {
    /// Anchors a clock to wall time now.
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let start_us = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
        let ns = u128::from(counter.delta_as_nanos(0, 1 << COUNTS)).max(1);
        let fits = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        let compare_every = fits((u128::from(COMPARE_EVERY_NS) << COUNTS) / ns);
        SystemClock {
            start_count: counter.raw(),
            start: Instant::now(),
            start_us,
            counter,
            // No counter in use is as slow as one a microsecond.
            rate: fits((ns << (64 - COUNTS)) / 1_000),
            offset_us: AtomicI64::new(start_us),
            compare_at: AtomicU64::new(compare_every),
            compare_every,
        }
    }

    #[inline]
    fn count(&self) -> u64 {
        self.counter.raw().saturating_sub(self.start_count)
    }

    /// How long so many counts are.
    // One multiplication; by way of nanoseconds it would be two, and shifts.
    #[inline]
    fn us(&self, count: u64) -> u64 {
        ((u128::from(count) * u128::from(self.rate)) >> 64) as u64
    }

    #[cold]
    fn compare(&self) {
        let before = self.count();
        let elapsed = self.start.elapsed();
        let after = self.count();
        // A thread that was put to sleep in between knows nothing.
        if self.us(after.saturating_sub(before)) < LONGEST_LOOK_US {
            let elapsed = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
            let correction = elapsed.saturating_sub_unsigned(self.us(before));
            let offset = self.start_us.saturating_add(correction);
            // One more or less comes of rounding.
            if offset.abs_diff(self.offset_us.load(Relaxed)) > 1 {
                self.offset_us.store(offset, Relaxed);
            }
            let next = before.saturating_add(self.compare_every);
            self.compare_at.store(next, Relaxed);
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
        let count = self.count();
        if count > self.compare_at.load(Relaxed) {
            self.compare();
        }
        self.us(count)
            .saturating_add_signed(self.offset_us.load(Relaxed))
    }
}

/// A clock that stands still until it is moved: for tests and simulations.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tallygate::{Limiter, ManualClock, MemoryStore};
///
/// let clock = Arc::new(ManualClock::at(1_700_000_000_000_000));
/// let store = MemoryStore::builder().clock(clock.clone()).build();
/// let limiter = Limiter::over(store, "fixed-window 1/s".parse::<tallygate::Quota>()?);
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
    /// A clock that shows this many microseconds since the Unix epoch.
    pub fn at(now_us: u64) -> Self {
        ManualClock {
            now_us: now_us.into(),
        }
    }

    /// Moves the clock, backwards too.
    pub fn set(&self, now_us: u64) {
        self.now_us.store(now_us, Relaxed);
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let by_us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        let forward = |now: u64| Some(now.saturating_add(by_us));
        // The closure never declines, so there is always a value.
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
    fn the_system_clock_shows_wall_time_and_moves_on() {
        let clock = SystemClock::new();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let apart = u128::from(clock.now_us()).abs_diff(wall.as_micros());
        assert!(apart < 60_000_000, "{apart} us from wall time");
        let before = clock.now_us();
        while clock.now_us() == before {}
        assert!(clock.now_us() > before);
    }

    #[test]
    fn a_counter_that_runs_wrong_is_held_to_the_system() {
        let clock = SystemClock::new();
        // As if the counter had run an hour ahead at the last comparison.
        let ahead_us = clock.start_us + 3_600_000_000;
        clock.offset_us.store(ahead_us, Relaxed);
        let wrong = clock.now_us();
        while clock.offset_us.load(Relaxed) == ahead_us {
            clock.compare();
        }
        assert!(clock.now_us() < wrong);
    }

    #[test]
    fn counts_are_as_long_as_the_counter_says() {
        let clock = SystemClock::new();
        for count in [0, 1, 999, 12_345_678, 1 << 40, (1 << 50) + 7] {
            let us = clock.counter.delta_as_nanos(0, count) / 1_000;
            let apart = us.abs_diff(clock.us(count));
            assert!(apart <= 1, "{count} counts: {us} us, {apart} apart");
        }
        let second = clock.us(clock.compare_every);
        assert!(second.abs_diff(1_000_000) <= 1, "{second} us");
    }
}
