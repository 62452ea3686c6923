//! Fixed window: one count, in windows aligned to the Unix epoch.

use super::Packed;
use crate::MAX_UNITS;
use crate::math::narrow;
use crate::quota::Quota;

/// One window's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    start: u64,
    count: u64,
}

impl Window {
    #[inline]
    pub(super) fn empty(quota: &Quota, now: u64) -> Self {
        Window {
            start: now - now % quota.period_us(),
            count: 0,
        }
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
    pub(super) fn mark(&self) -> u64 {
        self.start
    }

    #[inline]
    pub(super) fn available(&self, quota: &Quota, now: u64) -> u32 {
        narrow(u64::from(quota.limit()).saturating_sub(self.advance(quota, now).count))
    }

    #[inline]
    pub(super) fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64 {
        let window = self.advance(quota, now);
        if window.count + u64::from(units) <= quota.limit().into() {
            0
        } else {
            window.start + quota.period_us() - now
        }
    }

    #[inline]
    pub(super) fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        let window = self.advance(quota, now);
        if window.count == 0 {
            0
        } else {
            window.start + quota.period_us() - now
        }
    }

    #[inline]
    pub(super) fn take(&mut self, quota: &Quota, units: u32, now: u64) {
        *self = self.advance(quota, now);
        self.count = (self.count + u64::from(units)).min(MAX_UNITS);
    }

    #[inline]
    pub(super) fn give_back(&mut self, quota: &Quota, units: u32, now: u64) {
        *self = self.advance(quota, now);
        self.count = self.count.saturating_sub(units.into());
    }

    #[inline]
    pub(super) fn pack(&self, quota: &Quota) -> Packed {
        Packed {
            forget_at_us: self.start + quota.period_us(),
            a: self.count,
            b: 0,
        }
    }

    #[inline]
    pub(super) fn unpack(quota: &Quota, packed: Packed) -> Self {
        Window {
            start: packed.forget_at_us.saturating_sub(quota.period_us()),
            count: packed.a,
        }
    }
}
