//! What a script returns of a concurrency limit: enough to derive a verdict, without its holds.

use alloc::vec::Vec;

use super::{FormerHold, InFlight, Level, effective_time};
use crate::quota::Quota;
use crate::snapshot::CounterState;

/// Holds in a few numbers, at the time of a decision, for one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldsSummary {
    /// The end of the hold that ends last.
    pub(crate) newest: u64,
    pub(crate) units: InFlight,
    /// Until when the owner holds what it holds.
    pub(crate) own_until: u64,
    /// The end of the hold after which the request fits, if it does not. For a refund, the end of the
    /// hold that ends last after it.
    pub(crate) next: u64,
}

impl HoldsSummary {
    /// The effective time of a request.
    pub(super) fn effective_time(&self, quota: &Quota, now: u64) -> u64 {
        let changed = self.newest.saturating_sub(quota.period_us());
        effective_time(changed, quota, now).unwrap_or(now)
    }

    /// What the owner holds.
    pub(crate) fn former(&self) -> Option<FormerHold> {
        (self.units.own > 0).then_some(FormerHold {
            units: self.units.own,
            until_us: self.own_until,
        })
    }

    pub(super) fn inspect(&self, _: &Quota) -> CounterState {
        CounterState::Holds { holds: Vec::new() }
    }
}

impl Level for HoldsSummary {
    fn available(&self, quota: &Quota, _: u64) -> u32 {
        quota.limit().saturating_sub(self.units.others())
    }

    fn until_fits(&self, _: &Quota, _: u32, now: u64) -> u64 {
        self.next.saturating_sub(now)
    }

    fn until_new(&self, _: &Quota, now: u64) -> u64 {
        match self.units.live {
            0 => 0,
            1.. => self.newest.saturating_sub(now),
        }
    }

    fn take(&mut self, quota: &Quota, units: u32, now: u64) {
        self.units.hold(units);
        self.newest = now + quota.period_us();
        self.own_until = self.newest;
    }

    fn refund(&mut self, _: &Quota, units: u32, _: u64) -> bool {
        let back = self.units.give_back(units);
        if back > 0 && self.units.own == 0 {
            self.newest = self.next;
        }
        back > 0
    }

    fn undo(&mut self, quota: &Quota, _: u32, _: u64, now: u64) -> bool {
        self.refund(quota, u32::MAX, now)
    }

    fn in_flight(&self) -> Option<InFlight> {
        Some(self.units)
    }
}
