//! Sliding window log: every instant of the last period with its units. Exact, and paid for in
//! memory.

use alloc::vec::Vec;
use core::fmt;

use super::entries::Entries;
use super::ring::Entry;
use super::{Level, moment};
use crate::MAX_UNITS;
use crate::math::narrow;
use crate::quota::Quota;
use crate::view::View;

/// How many instants a log in debt remembers beyond its limit. Past that the two oldest merge
/// into the later one: nothing fits earlier than it should, and no log grows for ever.
const INSTANTS_IN_DEBT: usize = 1_000;

/// Single requests, oldest first.
#[derive(Clone, Default)]
pub struct Log {
    entries: Entries,
}

/// A log brought to a moment: what is before `first` no longer counts, but is only dropped when
/// something changes.
pub(crate) struct LogAt<'a> {
    log: &'a mut Log,
    first: usize,
    newest: Option<Entry>,
}

impl Log {
    /// The newest instant, if there is any.
    #[inline(always)]
    pub(super) fn newest(&self) -> Option<Entry> {
        self.entries.last()
    }

    /// Brings the log to a moment: an entry exactly one period old is gone.
    #[inline(always)]
    pub(super) fn advance(&mut self, newest: Option<Entry>, quota: &Quota, now: u64) -> LogAt<'_> {
        let counts = |entry: Entry| entry.time + quota.period_us() > now;
        LogAt {
            first: self.entries.first(0, counts),
            newest,
            log: self,
        }
    }

    /// Takes units in the shortest way and gives what is left: if all of the log counts, the units
    /// fit, and so they do where its entries are.
    #[inline(always)]
    pub(crate) fn take_plainly(&mut self, quota: &Quota, units: u32, now: u64) -> Option<u32> {
        let expired = now.checked_sub(quota.period_us())?;
        let limit = quota.limit();
        let used = self.entries.append(now, units, expired, limit)?;
        Some(narrow(u64::from(limit) - used))
    }

    /// Sees the log as if it were new.
    pub(super) fn forgotten(&mut self, newest: Option<Entry>) -> LogAt<'_> {
        LogAt {
            first: self.entries.len(),
            newest,
            log: self,
        }
    }
}

impl LogAt<'_> {
    /// The units that count.
    #[inline]
    fn used(&self) -> u64 {
        match self.newest {
            Some(newest) => newest.sum - self.log.entries.sum_before(self.first),
            None => 0,
        }
    }

    #[inline]
    fn drop_expired(&mut self) {
        if self.first > 0 {
            self.log.entries.drop_front(self.first);
            self.first = 0;
            self.newest = self.log.entries.last();
        }
    }
}

impl Level for LogAt<'_> {
    #[inline]
    fn available(&self, quota: &Quota, _: u64) -> u32 {
        narrow(u64::from(quota.limit()).saturating_sub(self.used()))
    }

    fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64 {
        let entries = &self.log.entries;
        let room = u64::from(quota.limit() - units);
        let total = self.newest.map_or(0, |newest| newest.sum);
        let freeing = entries.first(self.first, |entry| total - entry.sum <= room);
        if freeing == entries.len() {
            return 0;
        }
        entries.get(freeing).time + quota.period_us() - now
    }

    #[inline]
    fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        match self.newest {
            Some(newest) if self.first < self.log.entries.len() => {
                (newest.time + quota.period_us()).saturating_sub(now)
            }
            Some(_) | None => 0,
        }
    }

    #[inline]
    fn take(&mut self, quota: &Quota, units: u32, now: u64) {
        self.drop_expired();
        let entries = &mut self.log.entries;
        let used = self.newest.map_or(0, |newest| newest.sum);
        let sum = (used + u64::from(units)).min(MAX_UNITS);
        let taken = Entry { time: now, sum };
        let in_an_instant = self.newest.is_some_and(|newest| newest.time == now);
        self.newest = Some(taken);
        if in_an_instant {
            entries.amend(taken);
            return;
        }
        let limit = quota.limit() as usize;
        if entries.len() >= limit + INSTANTS_IN_DEBT {
            entries.merge_front();
        }
        entries.push(taken, limit);
    }

    fn give_back(&mut self, _: &Quota, units: u32, _: u64) {
        self.drop_expired();
        let left = self.used().saturating_sub(units.into());
        let entries = &mut self.log.entries;
        while let Some(last) = entries.len().checked_sub(1) {
            if entries.sum_before(last) < left {
                let time = entries.get(last).time;
                entries.amend(Entry { time, sum: left });
                break;
            }
            entries.pop();
        }
        self.newest = entries.last();
    }
}

impl LogAt<'_> {
    /// Gives back what units taken at some moment still weigh, and never more.
    pub(super) fn undo(&mut self, _: &Quota, units: u32, taken: u64, _: u64) {
        self.drop_expired();
        let entries = &mut self.log.entries;
        let at = entries.first(0, |entry| entry.time >= taken);
        // Those of that very instant, if it still counts.
        if at < entries.len() && entries.get(at).time == taken {
            entries.lower(at, units.into());
        }
        self.newest = entries.last();
    }

    /// What there is to see of it.
    pub(super) fn view(&self, _: &Quota) -> View {
        let entries: Vec<(u64, u64)> = self.log.entries().skip(self.first).collect();
        View::Log { entries }
    }
}

impl Log {
    /// The memory that it has elsewhere, for those who want that near before they decide; empty as
    /// long as it has none.
    #[inline]
    pub fn elsewhere(&self) -> &[u32] {
        self.entries.elsewhere()
    }

    /// From this time on the log may be forgotten.
    #[inline]
    pub fn forget_at_us(&self, quota: &Quota) -> u64 {
        self.newest()
            .map_or(0, |newest| newest.time + quota.period_us())
    }

    /// The moment that a request is decided as at.
    pub(super) fn moment_us(&self, quota: &Quota, t: u64) -> u64 {
        let newest = self.newest();
        newest
            .and_then(|newest| moment(newest.time, quota, t))
            .unwrap_or(t)
    }

    /// Puts a log together of instants and running sums, both growing; what does not grow is left
    /// out.
    #[cfg(feature = "lua")]
    pub(crate) fn of(instants: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut log = Log::default();
        for (time, sum) in instants {
            let newest = log.newest();
            if newest.is_none_or(|newest| newest.time < time && newest.sum < sum) && sum > 0 {
                let likely = log.entries.len() + 1;
                log.entries.push(Entry { time, sum }, likely);
            }
        }
        log
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
