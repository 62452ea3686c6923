//! Sliding window counter: two aligned windows, the previous one weighted by its overlap.

use super::Packed;
use crate::MAX_UNITS;
use crate::math::{div, mul_div, narrow};
use crate::quota::Quota;

/// Two windows' counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// When the current window started.
    start: u64,
    previous: u64,
    current: u64,
}

impl Counter {
    #[inline]
    pub(super) fn empty(quota: &Quota, now: u64) -> Self {
        Counter {
            start: now - now % quota.period_us(),
            previous: 0,
            current: 0,
        }
    }

    #[inline]
    fn advance(self, quota: &Quota, now: u64) -> Self {
        let period = quota.period_us();
        let next = self.start + period;
        if now < next {
            self
        } else if now < next + period {
            Counter {
                start: next,
                previous: self.current,
                current: 0,
            }
        } else {
            Self::empty(quota, now)
        }
    }

    /// What counts against the limit: the previous window's share, rounded down, and the current.
    #[inline]
    fn estimate(&self, quota: &Quota, now: u64) -> u64 {
        if self.previous == 0 {
            return self.current;
        }
        let period = quota.period_us();
        let overlap = period - (now - self.start);
        mul_div(self.previous, overlap, period).0 + self.current
    }

    #[inline]
    pub(super) fn mark(&self) -> u64 {
        self.start
    }

    #[inline]
    pub(super) fn available(&self, quota: &Quota, now: u64) -> u32 {
        let estimate = self.advance(quota, now).estimate(quota, now);
        narrow(u64::from(quota.limit()).saturating_sub(estimate))
    }

    pub(super) fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64 {
        let counter = self.advance(quota, now);
        let room = u64::from(quota.limit() - units);
        let at = if let Some(room) = room.checked_sub(counter.current) {
            counter.start + faded(counter.previous, room, quota)
        } else {
            // The current window alone is too full: it has to become the previous one and fade.
            counter.start + quota.period_us() + faded(counter.current, room, quota)
        };
        at.saturating_sub(now)
    }

    #[inline]
    pub(super) fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        let counter = self.advance(quota, now);
        let at = if counter.current > 0 {
            counter.start + quota.period_us() + faded(counter.current, 0, quota)
        } else {
            counter.start + faded(counter.previous, 0, quota)
        };
        at.saturating_sub(now)
    }

    #[inline]
    pub(super) fn take(&mut self, quota: &Quota, units: u32, now: u64) {
        *self = self.advance(quota, now);
        self.current = (self.current + u64::from(units)).min(MAX_UNITS);
    }

    #[inline]
    pub(super) fn give_back(&mut self, quota: &Quota, units: u32, now: u64) {
        *self = self.advance(quota, now);
        self.current = self.current.saturating_sub(units.into());
    }

    #[inline]
    pub(super) fn pack(&self, quota: &Quota) -> Packed {
        Packed {
            forget_at_us: self.start + 2 * quota.period_us(),
            a: self.current,
            b: self.previous,
        }
    }

    #[inline]
    pub(super) fn unpack(quota: &Quota, packed: Packed) -> Self {
        Counter {
            start: packed.forget_at_us.saturating_sub(2 * quota.period_us()),
            previous: packed.b,
            current: packed.a,
        }
    }
}

/// How far into the window after it a count weighs at most `room`: the least `e` with
/// `floor(count x (period - e) / period) <= room`, at most one period.
#[inline]
fn faded(count: u64, room: u64, quota: &Quota) -> u64 {
    if count <= room {
        return 0;
    }
    let period = quota.period_us();
    // The share is at most room while count x overlap < (room + 1) x period.
    let bound = u128::from(room + 1) * u128::from(period) - 1;
    period - div(bound, count).0.min(period)
}
