//! The buckets of a quota whose units drain in whole microseconds, as nearly all do: the same level
//! as any bucket's, without fractions to carry along.

use super::Level;
use crate::MAX_TIME_US;
use crate::quota::Quota;

/// A bucket's level without a fraction of a microsecond, written under the limit that it is asked
/// under. The [packed](super::Packed) form of such a bucket is just these two times and that limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeBucket {
    /// When it was last changed.
    pub changed_us: u64,
    /// When it will have drained.
    pub drained_us: u64,
}

impl WholeBucket {
    /// The same at a moment, which is not before its last change.
    #[inline]
    pub(crate) fn advance(self, now: u64) -> Self {
        WholeBucket {
            changed_us: now,
            drained_us: self.drained_us.max(now),
        }
    }

    fn level(&self) -> u64 {
        self.drained_us - self.changed_us
    }

    fn set_level(&mut self, level: u64) {
        self.drained_us = self.changed_us + level;
    }
}

/// How long units take to drain.
#[inline]
fn drain(quota: &Quota, units: u32) -> u64 {
    quota.drain(1).us.saturating_mul(u64::from(units))
}

impl Level for WholeBucket {
    #[inline]
    fn available(&self, quota: &Quota, _: u64) -> u32 {
        let free = quota.full().us.saturating_sub(self.level());
        #[expect(
            clippy::cast_possible_truncation,
            reason = "what is free is at most the capacity"
        )]
        let units = quota.whole_units(free) as u32;
        units
    }

    #[inline]
    fn until_fits(&self, quota: &Quota, units: u32, _: u64) -> u64 {
        let wanted = self.level().saturating_add(drain(quota, units));
        wanted - quota.full().us
    }

    #[inline]
    fn until_new(&self, _: &Quota, _: u64) -> u64 {
        self.level()
    }

    #[inline]
    fn take(&mut self, quota: &Quota, units: u32, _: u64) {
        let level = self.level().saturating_add(drain(quota, units));
        self.set_level(level.min(MAX_TIME_US));
    }

    #[inline]
    fn give_back(&mut self, quota: &Quota, units: u32, _: u64) {
        self.set_level(self.level().saturating_sub(drain(quota, units)));
    }
}
