//! Fixed window: one count, in windows aligned to the Unix epoch.

use super::{Level, Packable, Packed};
use crate::MAX_UNITS;
use crate::math::narrow;
use crate::quota::Quota;
use crate::snapshot::CounterState;

/// One window's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub(crate) start: u64,
    pub(crate) count: u64,
}

impl Packable for Window {
    #[inline]
    fn empty(quota: &Quota, now: u64) -> Self {
        Window {
            start: now - now % quota.period_us(),
            count: 0,
        }
    }

    #[inline]
    fn timestamp(&self) -> u64 {
        self.start
    }

    #[inline]
    fn advance(self, quota: &Quota, now: u64) -> Self {
        if now < self.start + quota.period_us() {
            self
        } else {
            Self::empty(quota, now)
        }
    }

    #[inline]
    fn pack(&self, quota: &Quota) -> Packed {
        Packed {
            expires_at_us: self.start + quota.period_us(),
            a: self.count,
            b: 0,
        }
    }

    #[inline]
    fn unpack(quota: &Quota, packed: Packed) -> Self {
        Window {
            start: packed.expires_at_us.saturating_sub(quota.period_us()),
            count: packed.a,
        }
    }
}

impl Level for Window {
    #[inline]
    fn available(&self, quota: &Quota, _: u64) -> u32 {
        narrow(u64::from(quota.limit()).saturating_sub(self.count))
    }

    #[inline]
    fn until_fits(&self, quota: &Quota, _: u32, now: u64) -> u64 {
        self.start + quota.period_us() - now
    }

    #[inline]
    fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        if self.count == 0 {
            0
        } else {
            self.start + quota.period_us() - now
        }
    }

    #[inline]
    fn take(&mut self, _: &Quota, units: u32, _: u64) {
        self.count = (self.count + u64::from(units)).min(MAX_UNITS);
    }

    #[inline]
    fn refund(&mut self, _: &Quota, units: u32, _: u64) -> bool {
        let before = self.count;
        self.count = before.saturating_sub(units.into());
        self.count < before
    }

    fn undo(&mut self, quota: &Quota, units: u32, taken: u64, now: u64) -> bool {
        let is_current = self.start <= taken && taken < self.start + quota.period_us();
        is_current && self.refund(quota, units, now)
    }
}

impl Window {
    pub(super) fn inspect(&self, quota: &Quota) -> CounterState {
        CounterState::Window {
            start_us: self.start,
            end_us: self.start + quota.period_us(),
            used: self.count,
        }
    }
}
