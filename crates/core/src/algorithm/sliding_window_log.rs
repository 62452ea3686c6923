//! Sliding window log: every instant of the last period with its units. Exact, and paid for in
//! memory.

use core::fmt;

use super::entries::Entries;
use super::ring::{Coming, Entry};
use super::{Level, moment};
use crate::MAX_UNITS;
use crate::math::narrow;
use crate::quota::Quota;
use crate::snapshot::CounterState;

/// How many instants a log in debt remembers beyond its limit. Past that the two oldest merge
/// into the later one: nothing fits earlier than it should, and no log grows for ever.
const INSTANTS_IN_DEBT: usize = 1_000;

/// Single requests, oldest first.
// When it may be forgotten is one period after its newest entry: entries in place need not say when
// that was.
#[derive(Clone, Default)]
pub struct Log {
    expires_at_us: u64,
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
    /// When the newest entry came, if there is any.
    #[inline(always)]
    fn newest_us(&self, quota: &Quota) -> u64 {
        self.expires_at_us.saturating_sub(quota.period_us())
    }

    /// The newest entry, if there is any.
    #[inline(always)]
    pub(super) fn newest(&self, quota: &Quota) -> Option<Entry> {
        self.entries.last(self.newest_us(quota))
    }

    /// Brings the log to a moment: an entry exactly one period old is gone.
    #[inline(always)]
    pub(super) fn advance(&mut self, newest: Option<Entry>, quota: &Quota, now: u64) -> LogAt<'_> {
        let counts = |entry: Entry| entry.time + quota.period_us() > now;
        let newest_us = self.newest_us(quota);
        LogAt {
            first: self.entries.first(0, newest_us, counts),
            newest,
            log: self,
        }
    }

    /// Takes units if that is simple, as it nearly always is, and gives what is left; none if not,
    /// with nothing changed.
    #[inline(always)]
    pub(crate) fn take_at_once(&mut self, quota: &Quota, units: u32, now: u64) -> Option<u32> {
        let coming = Coming {
            now,
            units,
            after: now.checked_sub(quota.period_us())?,
            most: quota.limit(),
        };
        let used = self.entries.append(self.newest_us(quota), coming)?;
        self.expires_at_us = now + quota.period_us();
        Some(narrow(u64::from(quota.limit()) - used))
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
    /// When the newest entry came; of no meaning if there is none.
    #[inline]
    fn newest_us(&self) -> u64 {
        self.newest.map_or(0, |newest| newest.time)
    }

    #[inline]
    fn get(&self, i: usize) -> Entry {
        self.log.entries.get(i, self.newest_us())
    }

    /// The units before an entry.
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

    /// Notes which entry is the newest now.
    #[inline]
    fn set_newest(&mut self, quota: &Quota, newest: Option<Entry>) {
        self.newest = newest;
        self.log.expires_at_us = newest.map_or(0, |newest| newest.time + quota.period_us());
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
            if entries.len() >= limit + INSTANTS_IN_DEBT {
                entries.merge_front(newest_us);
            }
            entries.push(taken, newest_us, limit);
        }
        self.set_newest(quota, Some(taken));
    }

    fn give_back(&mut self, quota: &Quota, units: u32, _: u64) {
        self.drop_expired();
        let left = self.used().saturating_sub(units.into());
        let newest_us = self.newest_us();
        let entries = &mut self.log.entries;
        if left == 0 {
            entries.truncate(0, newest_us);
            self.set_newest(quota, None);
            return;
        }
        let last = entries.first(0, newest_us, |entry| entry.sum >= left);
        let time = entries.get(last, newest_us).time;
        entries.truncate(last + 1, newest_us);
        let newest = Entry { time, sum: left };
        entries.amend(newest);
        self.set_newest(quota, Some(newest));
    }
}

impl LogAt<'_> {
    /// Gives back what units taken at some moment still weigh, and never more.
    pub(super) fn undo(&mut self, quota: &Quota, units: u32, taken: u64, _: u64) {
        self.drop_expired();
        let newest_us = self.newest_us();
        let entries = &mut self.log.entries;
        let at = entries.first(0, newest_us, |entry| entry.time >= taken);
        let mut newest = self.newest;
        // Those of that very instant, if it still counts.
        if at < entries.len() && entries.get(at, newest_us).time == taken {
            newest = entries.lower(at, units.into(), newest_us);
        }
        self.set_newest(quota, newest);
    }

    /// What there is to see of it.
    pub(super) fn view(&self, _: &Quota) -> CounterState {
        let entries = self.log.units(self.newest_us()).skip(self.first);
        CounterState::Log {
            entries: entries.collect(),
        }
    }
}

impl Log {
    /// The memory that it has elsewhere, for those who want that near before they decide; empty as
    /// long as it has none.
    #[inline]
    pub fn elsewhere(&self) -> &[u32] {
        self.entries.elsewhere()
    }

    /// A log without entries that is not to be forgotten until then, in the place of one to come.
    pub fn awaited(expires_at_us: u64) -> Self {
        Log {
            expires_at_us,
            entries: Entries::default(),
        }
    }

    /// From this time on the log may be forgotten.
    #[inline]
    pub fn expires_at_us(&self) -> u64 {
        self.expires_at_us
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// The moment that a request is decided as at.
    pub(super) fn effective_time_us(&self, quota: &Quota, t: u64) -> u64 {
        let newest = self.newest(quota);
        newest
            .and_then(|newest| moment(newest.time, quota, t))
            .unwrap_or(t)
    }

    /// Puts a log together of instants and running sums, both growing; what does not grow is left
    /// out.
    #[cfg(feature = "lua")]
    pub(crate) fn of(quota: &Quota, instants: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut log = Log::default();
        for (time, sum) in instants {
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

    /// When each entry came and its units, given when the newest one did.
    fn units(&self, newest_us: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..self.entries.len()).map(move |i| {
            let entry = self.entries.get(i, newest_us);
            (
                entry.time,
                entry.sum - self.entries.sum_before(i, newest_us),
            )
        })
    }

    /// How long before the newest entry each came, and its units.
    fn ages(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        // Only those elsewhere know when they came.
        let newest_us = self.entries.last(u64::MAX).map_or(0, |newest| newest.time);
        let units = self.units(newest_us);
        units.map(move |(time, units)| (newest_us - time, units))
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
