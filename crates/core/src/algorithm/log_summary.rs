//! What a script returns of a log: enough to derive a verdict, without its entries.

use super::Level;
use crate::MAX_UNITS;
use crate::math::narrow;
use crate::quota::Quota;
use crate::snapshot::CounterState;

/// A log in a few numbers, at the time of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSummary {
    /// The time of the newest entry.
    pub(crate) newest: u64,
    /// The units that count.
    pub(crate) used: u64,
    /// The time of the entry whose expiry makes room, if the request does not fit.
    pub(crate) frees: u64,
}

impl Level for LogSummary {
    fn available(&self, quota: &Quota, _: u64) -> u32 {
        narrow(u64::from(quota.limit()).saturating_sub(self.used))
    }

    fn until_fits(&self, quota: &Quota, _: u32, now: u64) -> u64 {
        (self.frees + quota.period_us()).saturating_sub(now)
    }

    fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        if self.used == 0 {
            return 0;
        }
        (self.newest + quota.period_us()).saturating_sub(now)
    }

    fn take(&mut self, _: &Quota, units: u32, now: u64) {
        self.used = (self.used + u64::from(units)).min(MAX_UNITS);
        self.newest = now;
    }

    /// The script did it; only it has the entries.
    fn refund(&mut self, _: &Quota, _: u32, _: u64) -> bool {
        true
    }

    fn undo(&mut self, _: &Quota, _: u32, _: u64, _: u64) -> bool {
        true
    }
}

impl LogSummary {
    pub(super) fn inspect(&self, _: &Quota) -> CounterState {
        let entry = (self.used > 0).then_some((self.newest, self.used));
        CounterState::Log {
            entries: entry.into_iter().collect(),
        }
    }
}
