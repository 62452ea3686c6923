//! Concurrency limits: units in flight, held by owners until they are released or lapse.
//!
//! # State
//!
//! A hold of each owner: units and the time it ends. It is live while t < until. m is the newest
//! end less the hold time H; the span is H.
//!
//! # Formulas
//!
//! For an owner at t, over live holds only:
//!
//! - available = limit - the units of the others; remaining = limit - all units.
//! - Taking n (of a check or a take): the owner holds exactly n until t + H, whatever it held.
//! - Renewing: the owner's units until t + H. Refunding n: n units less, the end stays.
//! - until n fit: the first end of another's hold after which enough have ended.
//!
//! Holds are linked in the order of their ends: a new one ends last, because t is never before m.
//! Expired ones are dropped with the next change.

use alloc::vec::Vec;

use super::id_map::{IdMap, NONE};
use super::{InFlight, Level, effective_time};
use crate::caller::{Caller, Room};
use crate::quota::Quota;
use crate::snapshot::{CounterState, HoldState};

/// The holds of one counter.
#[derive(Clone, Debug)]
pub struct Holds {
    owners: IdMap<Hold>,
    /// The holds that end first and last.
    oldest: u32,
    newest: u32,
    /// The units of all holds.
    units: u32,
}

/// What one owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    units: u32,
    until: u64,
    /// The holds that end before and after it.
    older: u32,
    newer: u32,
}

/// What an owner held before it took units, to [restore](crate::restore_hold) it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerHold {
    /// The units.
    pub units: u32,
    /// The end, in microseconds.
    pub until_us: u64,
}

impl Default for Holds {
    fn default() -> Self {
        Holds {
            owners: IdMap::default(),
            oldest: NONE,
            newest: NONE,
            units: 0,
        }
    }
}

/// Equal if every owner holds the same; holds of one end may be linked in any order.
impl PartialEq for Holds {
    fn eq(&self, other: &Self) -> bool {
        let is_in_other = |(owner, hold): &(u64, Hold)| {
            let found = other.owners.find(*owner);
            found.is_some_and(|at| {
                let (_, same) = other.owners.at(at);
                (same.units, same.until) == (hold.units, hold.until)
            })
        };
        self.owners.len() == other.owners.len() && self.owners.iter().all(is_in_other)
    }
}

impl Eq for Holds {}

impl Holds {
    /// What each owner holds.
    #[cfg(feature = "lua")]
    pub(crate) fn from_each(holds: impl Iterator<Item = (u64, FormerHold)>) -> Self {
        let mut all = Holds::default();
        for (owner, hold) in holds {
            all.set(owner, hold.units, hold.until_us);
        }
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owners.len() == 0
    }

    /// The number of owners.
    pub(super) fn owners(&self) -> usize {
        self.owners.len()
    }

    /// The last end; 0 if there is no hold.
    pub(super) fn expires_at_us(&self) -> u64 {
        match self.newest {
            NONE => 0,
            newest => self.hold(newest).until,
        }
    }

    /// The time of the last change, if there are holds.
    pub(super) fn timestamp(&self, quota: &Quota) -> Option<u64> {
        let newest = self.expires_at_us();
        (newest > 0).then(|| newest.saturating_sub(quota.period_us()))
    }

    #[inline]
    fn hold(&self, at: u32) -> &Hold {
        &self.owners.at(at).1
    }

    /// The holds in the order of their ends, with their owners.
    fn iter(&self) -> impl Iterator<Item = &(u64, Hold)> {
        let at = |at: u32| (at != NONE).then(|| self.owners.at(at));
        core::iter::successors(at(self.oldest), move |(_, hold)| at(hold.newer))
    }

    /// The units of the holds that end at or before a time.
    fn expired(&self, now: u64) -> u32 {
        let expired = self.iter().take_while(|(_, hold)| hold.until <= now);
        expired.map(|(_, hold)| hold.units).sum()
    }

    fn drop_expired(&mut self, now: u64) {
        while self.oldest != NONE && self.hold(self.oldest).until <= now {
            self.remove(self.oldest);
        }
    }

    /// Sets what an owner holds; it ends after all others, or with the last of them.
    fn set(&mut self, owner: u64, units: u32, until: u64) {
        if let Some(at) = self.owners.find(owner) {
            self.remove(at);
        }
        // From the newest: nearly always that is its place. Only a restored hold may end earlier.
        let (mut older, mut newer) = (self.newest, NONE);
        while older != NONE && self.hold(older).until > until {
            newer = older;
            older = self.hold(older).older;
        }
        let hold = Hold {
            units,
            until,
            older,
            newer,
        };
        let at = self.owners.push(owner, hold);
        self.link(at);
        self.units += units;
    }

    fn remove(&mut self, at: u32) {
        let Hold {
            older,
            newer,
            units,
            ..
        } = *self.hold(at);
        match older {
            NONE => self.oldest = newer,
            older => self.owners.at_mut(older).newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.owners.at_mut(newer).older = older,
        }
        self.units -= units;
        self.owners.remove(at);
        // The last entry moved there.
        if (at as usize) < self.owners.len() {
            self.link(at);
        }
    }

    /// Points the neighbours of a hold to its position.
    fn link(&mut self, at: u32) {
        let Hold { older, newer, .. } = *self.hold(at);
        match older {
            NONE => self.oldest = at,
            older => self.owners.at_mut(older).newer = at,
        }
        match newer {
            NONE => self.newest = at,
            newer => self.owners.at_mut(newer).older = at,
        }
    }

    /// What an owner holds.
    pub(crate) fn held(&self, quota: &Quota, caller: &Caller, now: u64) -> Option<FormerHold> {
        let hold = self.hold(self.owners.find(caller.owner)?);
        let at = self.timestamp(quota)?;
        let is_live = effective_time(at, quota, now).is_some_and(|now| now < hold.until);
        is_live.then_some(FormerHold {
            units: hold.units,
            until_us: hold.until,
        })
    }

    /// Restores what an owner held before a take, as if that had not been. Whether that changed
    /// anything.
    pub(crate) fn restore(&mut self, owner: u64, former: Option<FormerHold>) -> bool {
        let now = self.owners.find(owner).map(|at| *self.hold(at));
        match (now, former) {
            (None, None) => return false,
            (Some(now), Some(former))
                if (now.units, now.until) == (former.units, former.until_us) =>
            {
                return false;
            }
            (_, Some(former)) => self.set(owner, former.units, former.until_us),
            (Some(_), None) => {
                if let Some(at) = self.owners.find(owner) {
                    self.remove(at);
                }
            }
        }
        true
    }
}

/// Holds advanced to a time, for one owner.
pub(crate) struct AdvancedHolds<'a> {
    holds: &'a mut Holds,
    owner: u64,
    is_full: bool,
    now: u64,
    units: InFlight,
}

impl<'a> AdvancedHolds<'a> {
    /// Advances holds. Returns the effective time too.
    pub(super) fn new(
        holds: &'a mut Holds,
        quota: &Quota,
        caller: &Caller,
        now: u64,
    ) -> (Self, u64) {
        let timestamp = holds.timestamp(quota);
        let effective = timestamp.map_or(Some(now), |at| effective_time(at, quota, now));
        // Too far back: no hold is live.
        let live_after = effective.unwrap_or(u64::MAX);
        let own = holds.owners.find(caller.owner).map(|at| *holds.hold(at));
        let own = own.filter(|hold| hold.until > live_after);
        let advanced = AdvancedHolds {
            units: InFlight {
                live: holds.units - holds.expired(live_after),
                own: own.map_or(0, |hold| hold.units),
            },
            owner: caller.owner,
            is_full: caller.room == Room::Full,
            now: live_after,
            holds,
        };
        (advanced, effective.unwrap_or(now))
    }

    fn lacks_room(&self) -> bool {
        self.is_full && self.units.own == 0
    }

    fn live_holds(&self) -> impl Iterator<Item = &(u64, Hold)> {
        self.holds
            .iter()
            .skip_while(|(_, hold)| hold.until <= self.now)
    }

    /// Sets what the owner holds, for the whole hold time.
    fn hold(&mut self, quota: &Quota, units: u32, now: u64) {
        self.holds.drop_expired(self.now);
        self.holds.set(self.owner, units, now + quota.period_us());
        self.units.hold(units);
        self.now = now;
    }

    pub(super) fn inspect(&self, _: &Quota) -> CounterState {
        let live = self.live_holds().map(|&(id, hold)| HoldState {
            id,
            units: hold.units,
            until_us: hold.until,
        });
        let holds: Vec<HoldState> = live.collect();
        CounterState::Holds { holds }
    }
}

impl Level for AdvancedHolds<'_> {
    fn available(&self, quota: &Quota, _: u64) -> u32 {
        if self.lacks_room() {
            return 0;
        }
        quota.limit().saturating_sub(self.units.others())
    }

    fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64 {
        let mut others = self.units.others();
        let mut others_holds = self.live_holds().filter(|(owner, _)| *owner != self.owner);
        let end = others_holds.find(|(_, hold)| {
            others -= hold.units;
            self.lacks_room() || others + units <= quota.limit()
        });
        match end {
            Some((_, hold)) => hold.until - now,
            // There is no memory for the first hold.
            None => quota.period_us(),
        }
    }

    fn until_new(&self, _: &Quota, now: u64) -> u64 {
        match self.units.live {
            0 => 0,
            1.. => self.holds.expires_at_us().saturating_sub(now),
        }
    }

    fn take(&mut self, quota: &Quota, units: u32, now: u64) {
        self.hold(quota, units, now);
    }

    fn refund(&mut self, _: &Quota, units: u32, now: u64) -> bool {
        if self.units.own == 0 {
            return false;
        }
        self.holds.drop_expired(self.now);
        self.now = now;
        let Some(at) = self.holds.owners.find(self.owner) else {
            return false;
        };
        let back = self.units.give_back(units);
        if self.units.own > 0 {
            self.holds.owners.at_mut(at).units -= back;
            self.holds.units -= back;
        } else {
            self.holds.remove(at);
        }
        true
    }

    /// Ends the hold.
    fn undo(&mut self, quota: &Quota, _: u32, _: u64, now: u64) -> bool {
        self.refund(quota, u32::MAX, now)
    }

    fn in_flight(&self) -> Option<InFlight> {
        Some(self.units)
    }
}
