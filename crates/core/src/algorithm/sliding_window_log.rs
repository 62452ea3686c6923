//! Sliding window log: every instant of the last period with its units. Exact, at the cost of
//! memory.

use core::fmt;

use super::Level;
use super::entries::Entries;
use super::ring::{Append, Entry};
use crate::MAX_UNITS;
use crate::math::narrow;
use crate::quota::Quota;
use crate::snapshot::CounterState;

/// Entries that a log in debt stores beyond its limit. Past that the two oldest merge into the later
/// one: nothing fits too early, and the log stays bounded.
const MAX_DEBT_ENTRIES: usize = 1_000;

/// The newest entries that an undo reaches; older ones stay charged. Bounds the cost of an undo on a
/// long log.
const UNDO_ENTRIES: usize = 256;

/// Single requests, oldest first.
// It expires one period after its newest entry, so inline entries need not store that time.
#[derive(Clone, Default)]
pub struct Log {
    expires_at_us: u64,
    entries: Entries,
}

/// A log advanced to a time. Entries before `first` have expired; they are dropped with the next
/// change.
pub(crate) struct AdvancedLog<'a> {
    log: &'a mut Log,
    first: usize,
    newest: Option<Entry>,
}

impl Log {
    /// The time of the newest entry, if there is any.
    #[inline(always)]
    fn newest_us(&self, quota: &Quota) -> u64 {
        self.expires_at_us.saturating_sub(quota.period_us())
    }

    /// The newest entry, if there is any.
    #[inline(always)]
    pub(super) fn newest(&self, quota: &Quota) -> Option<Entry> {
        self.entries.last(self.newest_us(quota))
    }

    /// Advances the log to a time. An entry exactly one period old has expired.
    #[inline(always)]
    pub(super) fn advance(
        &mut self,
        newest: Option<Entry>,
        quota: &Quota,
        now: u64,
    ) -> AdvancedLog<'_> {
        let counts = |entry: Entry| entry.time + quota.period_us() > now;
        let newest_us = self.newest_us(quota);
        AdvancedLog {
            first: self.entries.first(0, newest_us, counts),
            newest,
            log: self,
        }
    }

    /// Fast path of a check that is admitted: expires old entries and appends one. Returns what
    /// remains, or `None`, with nothing changed, if the general path is needed.
    // A third of the instructions of the general path, which `packing.rs` compares it with.
    #[inline(always)]
    pub(crate) fn try_append(&mut self, quota: &Quota, units: u32, now: u64) -> Option<u32> {
        let append = Append {
            now,
            units,
            after: now.checked_sub(quota.period_us())?,
            max: quota.limit(),
        };
        let used = self.entries.try_append(self.newest_us(quota), append)?;
        self.expires_at_us = now + quota.period_us();
        Some(narrow(u64::from(quota.limit()) - used))
    }

    /// Advances the log as if all entries had expired.
    pub(super) fn expire_all(&mut self, newest: Option<Entry>) -> AdvancedLog<'_> {
        AdvancedLog {
            first: self.entries.len(),
            newest,
            log: self,
        }
    }

    /// The heap memory of the log, for prefetching.
    #[inline]
    pub fn heap(&self) -> &[u32] {
        self.entries.heap()
    }

    /// The maximum heap memory of a log under a quota, allocator overhead included. 0 if all its
    /// entries fit inline.
    pub fn max_heap_bytes(quota: &Quota) -> usize {
        Entries::max_heap_bytes(quota.limit() as usize, quota.period_us())
    }

    /// An empty log that expires at a time: keeps a slot occupied.
    pub fn placeholder(expires_at_us: u64) -> Self {
        Log {
            expires_at_us,
            entries: Entries::default(),
        }
    }

    /// The log is as new from this time on.
    #[inline]
    pub fn expires_at_us(&self) -> u64 {
        self.expires_at_us
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// Builds a log from times and running sums. Skips entries where either does not increase.
    #[cfg(feature = "lua")]
    pub(crate) fn from_entries(quota: &Quota, entries: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut log = Log::default();
        for (time, sum) in entries {
            let newest = log.newest(quota);
            if newest.is_none_or(|newest| newest.time < time && newest.sum < sum) && sum > 0 {
                let likely = log.entries.len() + 1;
                let newest_us = log.newest_us(quota);
                log.entries.push(Entry { time, sum }, newest_us, likely);
                log.expires_at_us = time + quota.period_us();
            }
        }
        log
    }

    /// The time and units of each entry, given the time of the newest.
    fn units(&self, newest_us: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..self.entries.len()).map(move |i| {
            let entry = self.entries.get(i, newest_us);
            (
                entry.time,
                entry.sum - self.entries.sum_before(i, newest_us),
            )
        })
    }

    /// The age of each entry relative to the newest, and its units.
    fn ages(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        // Any time will do: inline entries are relative to it.
        let newest_us = self.entries.last(u64::MAX).map_or(0, |newest| newest.time);
        let units = self.units(newest_us);
        units.map(move |(time, units)| (newest_us - time, units))
    }
}

impl AdvancedLog<'_> {
    /// The time of the newest entry; meaningless if there is none.
    #[inline]
    fn newest_us(&self) -> u64 {
        self.newest.map_or(0, |newest| newest.time)
    }

    #[inline]
    fn get(&self, i: usize) -> Entry {
        self.log.entries.get(i, self.newest_us())
    }

    /// The units of all entries before this one.
    #[inline]
    fn sum_before(&self, i: usize) -> u64 {
        self.log.entries.sum_before(i, self.newest_us())
    }

    /// The units that count.
    #[inline]
    fn used(&self) -> u64 {
        match self.newest {
            Some(newest) => newest.sum - self.sum_before(self.first),
            None => 0,
        }
    }

    #[inline]
    fn drop_expired(&mut self) {
        if self.first > 0 {
            let newest_us = self.newest_us();
            self.log.entries.drop_front(self.first, newest_us);
            self.first = 0;
            self.newest = self.log.entries.last(newest_us);
        }
    }

    /// Updates the newest entry and the expiry.
    #[inline]
    fn set_newest(&mut self, quota: &Quota, newest: Option<Entry>) {
        self.newest = newest;
        self.log.expires_at_us = newest.map_or(0, |newest| newest.time + quota.period_us());
    }

    pub(super) fn inspect(&self, _: &Quota) -> CounterState {
        let entries = self.log.units(self.newest_us()).skip(self.first);
        CounterState::Log {
            entries: entries.collect(),
        }
    }
}

impl Level for AdvancedLog<'_> {
    #[inline]
    fn available(&self, quota: &Quota, _: u64) -> u32 {
        narrow(u64::from(quota.limit()).saturating_sub(self.used()))
    }

    fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64 {
        let entries = &self.log.entries;
        let room = u64::from(quota.limit() - units);
        let total = self.newest.map_or(0, |newest| newest.sum);
        let frees = |entry: Entry| total - entry.sum <= room;
        let freeing = entries.first(self.first, self.newest_us(), frees);
        if freeing == entries.len() {
            return 0;
        }
        self.get(freeing).time + quota.period_us() - now
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
        let used = self.newest.map_or(0, |newest| newest.sum);
        let sum = (used + u64::from(units)).min(MAX_UNITS);
        let taken = Entry { time: now, sum };
        let newest_us = self.newest_us();
        let entries = &mut self.log.entries;
        if self.newest.is_some() && newest_us == now {
            entries.amend(taken);
        } else {
            let limit = quota.limit() as usize;
            if entries.len() >= limit + MAX_DEBT_ENTRIES {
                entries.merge_front(newest_us);
            }
            entries.push(taken, newest_us, limit);
        }
        self.set_newest(quota, Some(taken));
    }

    fn refund(&mut self, quota: &Quota, units: u32, _: u64) -> bool {
        let used = self.used();
        if used == 0 {
            return false;
        }
        self.drop_expired();
        let left = used.saturating_sub(units.into());
        let newest_us = self.newest_us();
        let entries = &mut self.log.entries;
        if left == 0 {
            entries.truncate(0, newest_us);
            self.set_newest(quota, None);
            return true;
        }
        let last = entries.first(0, newest_us, |entry| entry.sum >= left);
        let time = entries.get(last, newest_us).time;
        entries.truncate(last + 1, newest_us);
        let newest = Entry { time, sum: left };
        entries.amend(newest);
        self.set_newest(quota, Some(newest));
        true
    }

    fn undo(&mut self, quota: &Quota, units: u32, taken: u64, _: u64) -> bool {
        let (newest_us, len) = (self.newest_us(), self.log.entries.len());
        let oldest = self.first.max(len.saturating_sub(UNDO_ENTRIES));
        let entries = &self.log.entries;
        let at = entries.first(oldest, newest_us, |entry| entry.time >= taken);
        // Only the entry of exactly that time. One of a saturated log may have no units.
        if at == len || self.get(at).time != taken || self.get(at).sum == self.sum_before(at) {
            return false;
        }
        let at = at - self.first;
        self.drop_expired();
        let newest = self.log.entries.lower(at, units.into(), newest_us);
        self.set_newest(quota, newest);
        true
    }
}

impl PartialEq for Log {
    fn eq(&self, other: &Self) -> bool {
        self.expires_at_us == other.expires_at_us && self.ages().eq(other.ages())
    }
}

impl Eq for Log {}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "until {} ", self.expires_at_us)?;
        f.debug_map().entries(self.ages()).finish()
    }
}
