//! The buckets: a level that drains at limit/period. A token bucket is the mirror image of a leaky
//! bucket, and a shaping queue is the same level read as a schedule.

use super::{Level, Packable, Packed};
use crate::math::{div, narrow};
use crate::quota::{Drain, Quota};
use crate::snapshot::CounterState;

/// A level, as the time it takes to drain, and the time of its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub(crate) changed: u64,
    pub(crate) level: Drain,
    /// The limit when the level was written: converts the drain time to units.
    pub(crate) limit: u32,
}

impl Packable for Bucket {
    #[inline]
    fn empty(quota: &Quota, now: u64) -> Self {
        Bucket {
            changed: now,
            level: Drain::default(),
            limit: quota.limit(),
        }
    }

    #[inline]
    fn timestamp(&self) -> u64 {
        self.changed
    }

    #[inline]
    fn advance(self, quota: &Quota, now: u64) -> Self {
        let bucket = if self.limit == quota.limit() {
            self
        } else {
            self.with_limit_of(quota)
        };
        let elapsed = now - bucket.changed;
        let level = match bucket.level.us.checked_sub(elapsed) {
            Some(us) => Drain { us, ..bucket.level },
            None => Drain::default(),
        };
        Bucket {
            changed: now,
            level,
            ..bucket
        }
    }

    #[inline]
    fn pack(&self, _: &Quota) -> Packed {
        Packed {
            expires_at_us: self.changed + self.level.ceil(),
            a: self.changed,
            b: u64::from(self.level.part) << 30 | u64::from(self.limit),
        }
    }

    #[inline]
    fn unpack(_: &Quota, packed: Packed) -> Self {
        let part = narrow(packed.b >> 30);
        let drained = packed.expires_at_us.saturating_sub(u64::from(part > 0));
        Bucket {
            changed: packed.a,
            level: Drain {
                us: drained.saturating_sub(packed.a),
                part,
            },
            limit: narrow(packed.b & ((1 << 30) - 1)),
        }
    }
}

impl Level for Bucket {
    #[inline]
    fn available(&self, quota: &Quota, _: u64) -> u32 {
        if self.level >= quota.full() {
            return 0;
        }
        let free = minus(quota.full(), self.level, quota.limit());
        let parts = u128::from(free.us) * u128::from(quota.limit()) + u128::from(free.part);
        narrow(div(parts, quota.period_us()).0)
    }

    #[inline]
    fn until_fits(&self, quota: &Quota, units: u32, _: u64) -> u64 {
        let wanted = plus(self.level, quota.drain(units), quota.limit());
        minus(wanted, quota.full(), quota.limit()).ceil()
    }

    #[inline]
    fn until_new(&self, _: &Quota, _: u64) -> u64 {
        self.level.ceil()
    }

    #[inline]
    fn take(&mut self, quota: &Quota, units: u32, _: u64) {
        self.level = plus(self.level, quota.drain(units), quota.limit()).min(Drain::MAX);
    }

    #[inline]
    fn refund(&mut self, quota: &Quota, units: u32, _: u64) -> bool {
        self.lower(quota.drain(units), quota.limit())
    }

    fn undo(&mut self, quota: &Quota, units: u32, taken: u64, now: u64) -> bool {
        // A part has drained since; the rest is still in the level.
        let then = quota.drain(units).min(Drain::MAX);
        let elapsed = now.checked_sub(taken);
        let left = elapsed.and_then(|elapsed| then.us.checked_sub(elapsed));
        left.is_some_and(|us| self.lower(Drain { us, ..then }, quota.limit()))
    }
}

impl Bucket {
    /// Converts the used units, rounded up, to another limit.
    // At the last change, not at the current time: a refusal does not store the conversion, and
    // the next evaluation must give the same result.
    #[cold]
    fn with_limit_of(self, quota: &Quota) -> Self {
        let period = u128::from(quota.period_us());
        let parts =
            u128::from(self.level.us) * u128::from(self.limit) + u128::from(self.level.part);
        let used = parts.div_ceil(period);
        let (us, part) = div(used * period, u64::from(quota.limit()));
        let part = narrow(part);
        Bucket {
            level: Drain { us, part }.min(Drain::MAX),
            limit: quota.limit(),
            ..self
        }
    }

    pub(super) fn inspect(&self, quota: &Quota) -> CounterState {
        let parts = u128::from(self.level.us) * u128::from(quota.limit());
        let milli = (parts + u128::from(self.level.part)) * 1_000;
        let used = milli.div_ceil(u128::from(quota.period_us()));
        CounterState::Level {
            used_milli: u64::try_from(used).unwrap_or(u64::MAX),
        }
    }

    /// Lowers the level, down to 0. Whether that changed it.
    #[inline]
    pub(super) fn lower(&mut self, by: Drain, limit: u32) -> bool {
        let before = self.level;
        self.level = if by >= before {
            Drain::default()
        } else {
            minus(before, by, limit)
        };
        self.level < before
    }
}

#[inline]
pub(super) fn plus(a: Drain, b: Drain, limit: u32) -> Drain {
    // Two parts below 10^9 stay below 2^32. The microseconds of a huge cost may be saturated.
    let us = a.us.saturating_add(b.us);
    let part = a.part + b.part;
    if part >= limit {
        Drain {
            us: us.saturating_add(1),
            part: part - limit,
        }
    } else {
        Drain { us, part }
    }
}

/// Subtracts a smaller drain from a larger one.
#[inline]
pub(super) fn minus(a: Drain, b: Drain, limit: u32) -> Drain {
    if a.part >= b.part {
        Drain {
            us: a.us - b.us,
            part: a.part - b.part,
        }
    } else {
        Drain {
            us: a.us - b.us - 1,
            part: a.part + limit - b.part,
        }
    }
}
