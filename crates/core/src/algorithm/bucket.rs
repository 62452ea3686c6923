//! The buckets: a level that drains at limit/period. Token bucket and leaky bucket are mirror
//! images of one another, and the shaping queue is the same level read as a schedule.

use super::Packed;
use crate::MAX_TIME_US;
use crate::math::{div, narrow};
use crate::quota::{Drain, Quota};

/// A level, as the time it takes to drain, and when it was last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    changed: u64,
    level: Drain,
    /// The limit under which the level was written: a drain time means units only together with it.
    limit: u32,
}

impl Bucket {
    #[inline]
    pub(super) fn empty(quota: &Quota, now: u64) -> Self {
        Bucket {
            changed: now,
            level: Drain::default(),
            limit: quota.limit(),
        }
    }

    #[inline]
    fn advance(self, quota: &Quota, now: u64) -> Self {
        let bucket = if self.limit == quota.limit() {
            self
        } else {
            self.converted(quota)
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

    /// The same used units, rounded up, under another limit.
    // As at the last change, not as at now: what it says of the future must not depend on when
    // it is asked, and a refusal does not write the conversion down.
    #[cold]
    fn converted(self, quota: &Quota) -> Self {
        let parts =
            u128::from(self.level.us) * u128::from(self.limit) + u128::from(self.level.part);
        let (whole, rest) = div(parts, quota.period_us());
        let used = u128::from(whole) + u128::from(rest > 0);
        let (us, part) = div(
            used * u128::from(quota.period_us()),
            u64::from(quota.limit()),
        );
        Bucket {
            level: saturated(Drain {
                us,
                part: narrow(part),
            }),
            limit: quota.limit(),
            ..self
        }
    }

    #[inline]
    pub(super) fn mark(&self) -> u64 {
        self.changed
    }

    #[inline]
    pub(super) fn available(&self, quota: &Quota, now: u64) -> u32 {
        let level = self.advance(quota, now).level;
        if level == Drain::default() {
            return quota.capacity();
        }
        let full = quota.full();
        if level >= full {
            return 0;
        }
        let free = minus(full, level, quota.limit());
        units(free, quota)
    }

    #[inline]
    pub(super) fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64 {
        let wanted = plus(
            self.advance(quota, now).level,
            quota.drain(units),
            quota.limit(),
        );
        let full = quota.full();
        if wanted <= full {
            0
        } else {
            minus(wanted, full, quota.limit()).ceil()
        }
    }

    #[inline]
    pub(super) fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        self.advance(quota, now).level.ceil()
    }

    #[inline]
    pub(super) fn take(&mut self, quota: &Quota, units: u32, now: u64) {
        *self = self.advance(quota, now);
        self.level = saturated(plus(self.level, quota.drain(units), quota.limit()));
    }

    #[inline]
    pub(super) fn give_back(&mut self, quota: &Quota, units: u32, now: u64) {
        *self = self.advance(quota, now);
        let back = quota.drain(units);
        self.level = if back >= self.level {
            Drain::default()
        } else {
            minus(self.level, back, quota.limit())
        };
    }

    #[inline]
    pub(super) fn pack(&self) -> Packed {
        Packed {
            forget_at_us: self.changed + self.level.ceil(),
            a: self.changed,
            b: u64::from(self.level.part) << 30 | u64::from(self.limit),
        }
    }

    #[inline]
    pub(super) fn unpack(packed: Packed) -> Self {
        let part = narrow(packed.b >> 30);
        let drained = packed.forget_at_us.saturating_sub(u64::from(part > 0));
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

/// A level never takes more than 2^52 microseconds to drain.
#[inline]
fn saturated(level: Drain) -> Drain {
    level.min(Drain {
        us: MAX_TIME_US,
        part: 0,
    })
}

#[inline]
fn plus(a: Drain, b: Drain, limit: u32) -> Drain {
    // Two parts below 10^9 stay below 2^32.
    let part = a.part + b.part;
    if part >= limit {
        Drain {
            us: a.us + b.us + 1,
            part: part - limit,
        }
    } else {
        Drain {
            us: a.us + b.us,
            part,
        }
    }
}

/// Subtracts a smaller drain from a larger one.
#[inline]
fn minus(a: Drain, b: Drain, limit: u32) -> Drain {
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

/// How many whole units drain in that time.
#[inline]
fn units(drain: Drain, quota: &Quota) -> u32 {
    let parts = u128::from(drain.us) * u128::from(quota.limit()) + u128::from(drain.part);
    narrow(div(parts, quota.period_us()).0)
}
