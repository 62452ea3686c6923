//! Sliding window counter: two aligned windows, the previous one weighted by its overlap.

use super::{Level, Packable, Packed};
use crate::MAX_UNITS;
use crate::math::{div, mul_div, narrow};
use crate::quota::Quota;
use crate::snapshot::CounterState;

/// Two windows' counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// When the current window started.
    pub(crate) start: u64,
    pub(crate) previous: u64,
    pub(crate) current: u64,
}

impl Packable for Counter {
    #[inline]
    fn empty(quota: &Quota, now: u64) -> Self {
        Counter {
            start: now - now % quota.period_us(),
            previous: 0,
            current: 0,
        }
    }

    #[inline]
    fn timestamp(&self) -> u64 {
        self.start
    }

    #[inline]
    fn advance(self, quota: &Quota, now: u64) -> Self {
        let next = self.start + quota.period_us();
        if now < next {
            self
        } else if now < next + quota.period_us() {
            Counter {
                start: next,
                previous: self.current,
                current: 0,
            }
        } else {
            Self::empty(quota, now)
        }
    }

    #[inline]
    fn pack(&self, quota: &Quota) -> Packed {
        Packed {
            expires_at_us: self.start + windows(self.current) * quota.period_us(),
            a: self.current,
            b: self.previous,
        }
    }

    #[inline]
    fn unpack(quota: &Quota, packed: Packed) -> Self {
        let lived = windows(packed.a) * quota.period_us();
        Counter {
            start: packed.expires_at_us.saturating_sub(lived),
            previous: packed.b,
            current: packed.a,
        }
    }
}

/// How many windows from the start of the current one on still matter.
#[inline]
fn windows(current: u64) -> u64 {
    if current > 0 { 2 } else { 1 }
}

impl Level for Counter {
    #[inline]
    fn available(&self, quota: &Quota, now: u64) -> u32 {
        // What counts: the previous window's share, rounded down, and the current window.
        let share = if self.previous == 0 {
            0
        } else {
            let overlap = self.start + quota.period_us() - now;
            mul_div(self.previous, overlap, quota.period_us()).0
        };
        narrow(u64::from(quota.limit()).saturating_sub(share + self.current))
    }

    fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64 {
        let room = u64::from(quota.limit() - units);
        let at = if let Some(room) = room.checked_sub(self.current) {
            self.start + faded(self.previous, room, quota)
        } else {
            // The current window alone is too full: it has to become the previous one and fade.
            self.start + quota.period_us() + faded(self.current, room, quota)
        };
        at.saturating_sub(now)
    }

    #[inline]
    fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        let at = if self.current > 0 {
            self.start + quota.period_us() + faded(self.current, 0, quota)
        } else {
            self.start + faded(self.previous, 0, quota)
        };
        at.saturating_sub(now)
    }

    #[inline]
    fn take(&mut self, _: &Quota, units: u32, _: u64) {
        self.current = (self.current + u64::from(units)).min(MAX_UNITS);
    }

    #[inline]
    fn refund(&mut self, _: &Quota, units: u32, _: u64) -> bool {
        let before = self.current;
        self.current = before.saturating_sub(units.into());
        self.current < before
    }

    fn undo(&mut self, quota: &Quota, units: u32, taken: u64, now: u64) -> bool {
        let period = quota.period_us();
        if self.start <= taken && taken < self.start + period {
            self.refund(quota, units, now)
        } else if self.start <= taken + period && taken < self.start {
            let before = self.previous;
            self.previous = before.saturating_sub(units.into());
            self.previous < before
        } else {
            false
        }
    }
}

impl Counter {
    pub(super) fn inspect(&self, quota: &Quota) -> CounterState {
        CounterState::Windows {
            start_us: self.start,
            end_us: self.start + quota.period_us(),
            previous: self.previous,
            current: self.current,
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
