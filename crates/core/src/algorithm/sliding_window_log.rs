//! Sliding window log: every instant of the last period with its units. Exact, and paid for in
//! memory.

use core::fmt;

use super::ring::{Entry, Ring};
use crate::MAX_UNITS;
use crate::math::narrow;
use crate::quota::Quota;

/// How many instants a log in debt remembers beyond its limit. Past that the two oldest merge
/// into the later one: nothing fits earlier than it should, and no log grows for ever.
const INSTANTS_IN_DEBT: usize = 1_000;

/// Single requests, oldest first.
#[derive(Clone, Default)]
pub struct Log {
    entries: Ring,
}

impl Log {
    /// The first entry that still counts: one exactly a period old is gone.
    #[inline]
    fn advance(&self, quota: &Quota, now: u64) -> usize {
        self.entries
            .first(0, |entry| entry.time + quota.period_us() > now)
    }

    /// The units from an entry on.
    fn units_from(&self, first: usize) -> u64 {
        match self.entries.last() {
            Some(last) => last.sum - self.entries.sum_before(first),
            None => 0,
        }
    }

    #[inline]
    pub(super) fn mark(&self) -> u64 {
        self.entries.last().map_or(0, |newest| newest.time)
    }

    #[inline]
    pub(super) fn available(&self, quota: &Quota, now: u64) -> u32 {
        let used = self.units_from(self.advance(quota, now));
        narrow(u64::from(quota.limit()).saturating_sub(used))
    }

    pub(super) fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64 {
        let first = self.advance(quota, now);
        let room = u64::from(quota.limit() - units);
        let Some(last) = self.entries.last() else {
            return 0;
        };
        if self.units_from(first) <= room {
            return 0;
        }
        let freeing = self
            .entries
            .first(first, |entry| last.sum - entry.sum <= room);
        self.entries.get(freeing).time + quota.period_us() - now
    }

    #[inline]
    pub(super) fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        match self.entries.last() {
            Some(newest) => (newest.time + quota.period_us()).saturating_sub(now),
            None => 0,
        }
    }

    pub(super) fn take(&mut self, quota: &Quota, units: u32, now: u64) {
        let first = self.advance(quota, now);
        self.entries.drop_front(first);
        let newest = self.entries.last();
        let used = newest.map_or(0, |entry| entry.sum);
        let sum = (used + u64::from(units)).min(MAX_UNITS);
        let limit = quota.limit() as usize;
        match newest {
            Some(entry) if entry.time == now => self.entries.amend(sum),
            Some(_) | None => {
                if self.entries.len() >= limit + INSTANTS_IN_DEBT {
                    self.entries.merge_front();
                }
                if sum > used {
                    self.entries.push(Entry { time: now, sum }, limit);
                }
            }
        }
    }

    pub(super) fn give_back(&mut self, quota: &Quota, units: u32, now: u64) {
        let first = self.advance(quota, now);
        self.entries.drop_front(first);
        let used = self.units_from(0);
        let left = used.saturating_sub(units.into());
        while let Some(last) = self.entries.len().checked_sub(1) {
            if self.entries.sum_before(last) < left {
                self.entries.amend(left);
                break;
            }
            self.entries.pop();
        }
    }

    /// From this time on the log may be forgotten.
    pub fn forget_at_us(&self, quota: &Quota) -> u64 {
        self.mark() + quota.period_us()
    }

    fn entries(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..self.entries.len()).map(|i| {
            let entry = self.entries.get(i);
            (entry.time, entry.sum - self.entries.sum_before(i))
        })
    }
}

impl PartialEq for Log {
    fn eq(&self, other: &Self) -> bool {
        self.entries().eq(other.entries())
    }
}

impl Eq for Log {}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries()).finish()
    }
}
