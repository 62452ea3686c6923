//! Fast path for packed buckets whose units drain in whole microseconds: the arithmetic of
//! [`Bucket`](super::Bucket) without fractions.
//!
//! Takes 7 to 25 % off a decision at 1M keys. `packing.rs` compares it with the general path.

use super::{Level, Packable, Packed};
use crate::MAX_TIME_US;
use crate::quota::Quota;

/// A level without a fraction of a microsecond, stored under the current limit.
#[derive(Clone, Copy)]
pub(crate) struct WholeBucket {
    changed: u64,
    /// When the level has drained.
    drained: u64,
}

impl WholeBucket {
    /// Whether a packed bucket has no fraction and was stored under the quota's limit.
    #[inline(always)]
    pub(super) fn fits(quota: &Quota, packed: Packed) -> bool {
        quota.has_whole_units() && packed.b == u64::from(quota.limit())
    }

    #[inline]
    fn level(&self) -> u64 {
        self.drained - self.changed
    }

    #[inline]
    fn set_level(&mut self, level: u64) {
        self.drained = self.changed + level;
    }

    /// Lowers the level, down to 0. Whether that changed it.
    #[inline]
    fn lower(&mut self, by: u64) -> bool {
        let before = self.level();
        self.set_level(before.saturating_sub(by));
        self.level() < before
    }
}

impl Packable for WholeBucket {
    #[inline]
    fn empty(_: &Quota, now: u64) -> Self {
        WholeBucket {
            changed: now,
            drained: now,
        }
    }

    #[inline]
    fn timestamp(&self) -> u64 {
        self.changed
    }

    #[inline]
    fn advance(self, _: &Quota, now: u64) -> Self {
        WholeBucket {
            changed: now,
            drained: self.drained.max(now),
        }
    }

    #[inline]
    fn pack(&self, quota: &Quota) -> Packed {
        Packed {
            expires_at_us: self.drained,
            a: self.changed,
            b: quota.limit().into(),
        }
    }

    #[inline]
    fn unpack(_: &Quota, packed: Packed) -> Self {
        WholeBucket {
            changed: packed.a,
            drained: packed.expires_at_us,
        }
    }
}

impl Level for WholeBucket {
    #[inline]
    fn available(&self, quota: &Quota, _: u64) -> u32 {
        quota.whole_units(quota.full().us.saturating_sub(self.level()))
    }

    #[inline]
    fn until_fits(&self, quota: &Quota, units: u32, _: u64) -> u64 {
        let wanted = self.level().saturating_add(quota.drain(units).us);
        wanted - quota.full().us
    }

    #[inline]
    fn until_new(&self, _: &Quota, _: u64) -> u64 {
        self.level()
    }

    #[inline]
    fn take(&mut self, quota: &Quota, units: u32, _: u64) {
        let level = self.level().saturating_add(quota.drain(units).us);
        self.set_level(level.min(MAX_TIME_US));
    }

    #[inline]
    fn refund(&mut self, quota: &Quota, units: u32, _: u64) -> bool {
        self.lower(quota.drain(units).us)
    }

    #[inline]
    fn undo(&mut self, quota: &Quota, units: u32, taken: u64, now: u64) -> bool {
        let then = quota.drain(units).us.min(MAX_TIME_US);
        let elapsed = now.checked_sub(taken);
        let left = elapsed.and_then(|elapsed| then.checked_sub(elapsed));
        left.is_some_and(|us| self.lower(us))
    }
}
