//! The buckets of a quota whose units drain in whole microseconds, as nearly all do: the same level
//! as any bucket's, without fractions to carry along. Kept packed only.

use super::{Flat, Level, Packed};
use crate::MAX_TIME_US;
use crate::quota::Quota;

/// A level in microseconds to drain, and when it was last changed.
#[derive(Clone, Copy)]
pub(super) struct WholeBucket {
    changed: u64,
    level: u64,
}

impl WholeBucket {
    /// Whether that is the packed state of such a bucket, written under this very limit.
    #[inline]
    pub(super) fn packs(quota: &Quota, packed: Packed) -> bool {
        quota.is_whole() && packed.b == u64::from(quota.limit())
    }
}

/// How long units take to drain.
#[inline]
fn drain(quota: &Quota, units: u32) -> u64 {
    quota.drain(1).us.saturating_mul(u64::from(units))
}

impl Flat for WholeBucket {
    #[inline]
    fn empty(_: &Quota, now: u64) -> Self {
        WholeBucket {
            changed: now,
            level: 0,
        }
    }

    #[inline]
    fn mark(&self) -> u64 {
        self.changed
    }

    #[inline]
    fn advance(self, _: &Quota, now: u64) -> Self {
        WholeBucket {
            changed: now,
            level: self.level.saturating_sub(now - self.changed),
        }
    }

    #[inline]
    fn pack(&self, quota: &Quota) -> Packed {
        Packed {
            forget_at_us: self.changed + self.level,
            a: self.changed,
            b: u64::from(quota.limit()),
        }
    }

    #[inline]
    fn unpack(_: &Quota, packed: Packed) -> Self {
        WholeBucket {
            changed: packed.a,
            level: packed.forget_at_us.saturating_sub(packed.a),
        }
    }
}

impl Level for WholeBucket {
    #[inline]
    fn available(&self, quota: &Quota, _: u64) -> u32 {
        let free = quota.full().us.saturating_sub(self.level);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "what is free is at most the capacity"
        )]
        let units = (free / quota.drain(1).us) as u32;
        units
    }

    #[inline]
    fn until_fits(&self, quota: &Quota, units: u32, _: u64) -> u64 {
        self.level + drain(quota, units) - quota.full().us
    }

    #[inline]
    fn until_new(&self, _: &Quota, _: u64) -> u64 {
        self.level
    }

    #[inline]
    fn take(&mut self, quota: &Quota, units: u32, _: u64) {
        let level = self.level.saturating_add(drain(quota, units));
        self.level = level.min(MAX_TIME_US);
    }

    #[inline]
    fn give_back(&mut self, quota: &Quota, units: u32, _: u64) {
        self.level = self.level.saturating_sub(drain(quota, units));
    }
}
