//! Fair shares: a bucket whose members divide its rate by weight and borrow what others leave.
//!
//! # State
//!
//! - The *root*: the bucket, as [`Bucket`]: level, time of the last change, limit.
//! - The *epoch*: its start and length E.
//! - The members admitted in this epoch (*current*) and those of the one before that were not
//!   admitted since (*previous*). A member has a level, the time it is as of, and a weight. Of each
//!   table, the sum of the weights and the number of members.
//!
//! The first admission while no member is kept starts an epoch of length S, a full drain F rounded
//! up to a microsecond. At start + E: start += E, E = S * max(1, min(b * C / burst, 1 d / S)) for the
//! sum C of the current weights, and the current members become the previous ones. A turn without
//! current members, or a second turn, leaves none. m and span are the root's.
//!
//! # Formulas
//!
//! For a member of weight w at t, with the sum W of all weights, its own replaced by w, and the
//! root's free units k:
//!
//! - Its level drains by a = (t - time) * w / W microseconds. Its time moves by a * W / w, rounded
//!   up; to t if the level is 0.
//! - most = max(floor(F) * w / W microseconds, drain(b * w)), at most F.
//! - R = burst / 4; leave = R * level / most, both in whole microseconds.
//! - available = k if W = w, otherwise
//!   max(0, k - R, min(k - leave, units in most - level)).
//!
//! Taking n charges the root; the member enters this epoch with w and
//! level = max(level, min(level + drain(n), most)). A new member beyond the bound of an epoch has
//! k - R and is not kept.
//!
//! A decision reads and writes the root, the epoch, the sums and the member's own entry: a [`View`].
//! Tables are only searched for that entry.

use alloc::vec::Vec;
use core::mem;

use super::bucket::{Bucket, minus, plus};
use super::id_map::IdMap;
use super::{Level, Packable, effective_time};
use crate::caller::{Caller, MAX_MEMBERS, Room, Weight};
use crate::math::{div, mul_div, narrow};
use crate::quota::{Drain, Quota};
use crate::snapshot::{CounterState, MemberState};

/// The longest epoch, unless a full drain is longer.
const MAX_EPOCH_US: u64 = 86_400_000_000;

/// A shared bucket and its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FairShare {
    /// `None` if new.
    root: Option<Bucket>,
    epoch: Option<Epoch>,
    current: IdMap<Member>,
    previous: IdMap<Member>,
    current_weight: u64,
    previous_weight: u64,
}

/// The time in which members count as current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// What one member has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) level: Drain,
    pub(crate) as_of: u64,
    pub(crate) weight: Weight,
}

/// The number of members of a table and the sum of their weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) members: u32,
    pub(crate) weight: u64,
}

/// The table that has the caller's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    None,
    Current(Member),
    Previous(Member),
}

/// A share as one member sees it: all that a decision needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// `None` if new.
    pub(crate) root: Option<Bucket>,
    pub(crate) epoch: Option<Epoch>,
    pub(crate) current: Tally,
    pub(crate) previous: Tally,
    pub(crate) own: Own,
}

/// A share as a script returns it.
#[cfg(feature = "lua")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareView(pub(crate) View);

/// What became of the tables since the view's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    None,
    /// The current members are the previous ones.
    One,
    /// No member is left.
    All,
}

/// What a member may take, by the formulas above.
struct Share {
    /// The sum of all weights.
    active: u64,
    level: Drain,
    as_of: u64,
    most: Drain,
}

impl FairShare {
    /// A share with these members in place of the view's own.
    #[cfg(feature = "lua")]
    pub(crate) fn from_members(
        view: &View,
        current: impl Iterator<Item = (u64, Member)>,
        previous: impl Iterator<Item = (u64, Member)>,
    ) -> Self {
        let mut share = FairShare {
            root: view.root,
            epoch: view.epoch,
            current_weight: view.current.weight,
            previous_weight: view.previous.weight,
            ..FairShare::default()
        };
        current.for_each(|(id, member)| set(&mut share.current, id, Some(member)));
        previous.for_each(|(id, member)| set(&mut share.previous, id, Some(member)));
        share
    }

    pub(super) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The time of the last change.
    pub(super) fn timestamp(&self) -> Option<u64> {
        self.root.map(|root| root.timestamp())
    }

    /// The number of members that are kept.
    pub(super) fn members(&self) -> usize {
        self.current.len() + self.previous.len()
    }

    /// The share is as new from this time on.
    pub(super) fn expires_at_us(&self, quota: &Quota) -> u64 {
        let Some(root) = self.root else {
            return 0;
        };
        let view = self.view(Own::None);
        (root.changed + root.level.ceil()).max(view.members_end(quota).unwrap_or(0))
    }

    fn own(&self, member: u64) -> Own {
        match self.current.find(member) {
            Some(at) => Own::Current(self.current.at(at).1),
            None => match self.previous.find(member) {
                Some(at) => Own::Previous(self.previous.at(at).1),
                None => Own::None,
            },
        }
    }

    fn view(&self, own: Own) -> View {
        let tally = |table: &IdMap<Member>, weight| Tally {
            members: narrow(table.len() as u64),
            weight,
        };
        View {
            root: self.root,
            epoch: self.epoch,
            current: tally(&self.current, self.current_weight),
            previous: tally(&self.previous, self.previous_weight),
            own,
        }
    }

    /// Stores what a decision changed: first the turn of the epochs, then the caller's entry.
    fn store(&mut self, view: &View, turn: Turn, member: u64) {
        match turn {
            Turn::None => {}
            Turn::One => {
                self.previous = mem::take(&mut self.current);
            }
            Turn::All => {
                self.current = IdMap::default();
                self.previous = IdMap::default();
            }
        }
        self.root = view.root;
        self.epoch = view.epoch;
        let (current, previous) = match view.own {
            Own::None => (None, None),
            Own::Current(own) => (Some(own), None),
            Own::Previous(own) => (None, Some(own)),
        };
        set(&mut self.current, member, current);
        set(&mut self.previous, member, previous);
        self.current_weight = view.current.weight;
        self.previous_weight = view.previous.weight;
    }
}

fn set(table: &mut IdMap<Member>, id: u64, value: Option<Member>) {
    match (table.find(id), value) {
        (Some(at), Some(value)) => *table.at_mut(at) = value,
        (Some(at), None) => {
            table.remove(at);
        }
        (None, Some(value)) => {
            table.push(id, value);
        }
        (None, None) => {}
    }
}

impl View {
    const NEW: Self = View {
        root: None,
        epoch: None,
        current: Tally {
            members: 0,
            weight: 0,
        },
        previous: Tally {
            members: 0,
            weight: 0,
        },
        own: Own::None,
    };

    /// Advances to a time that is not before the last change.
    fn advance(&mut self, quota: &Quota, now: u64) -> Turn {
        let mut turn = Turn::None;
        let Some(root) = self.root else {
            self.root = Some(Bucket::empty(quota, now));
            return turn;
        };
        self.root = Some(root.advance(quota, now));
        if root.limit != quota.limit() {
            self.forget_members();
            return Turn::All;
        }
        while let Some(epoch) = self.epoch
            && now >= epoch.start + epoch.length
        {
            if turn == Turn::One || self.current.members == 0 {
                self.forget_members();
                return Turn::All;
            }
            turn = Turn::One;
            self.epoch = Some(Epoch {
                start: epoch.start + epoch.length,
                length: epoch_length(quota, self.current.weight),
            });
            self.previous = mem::take(&mut self.current);
            self.own = match self.own {
                Own::Current(own) => Own::Previous(own),
                Own::Previous(_) | Own::None => Own::None,
            };
        }
        turn
    }

    fn forget_members(&mut self) {
        *self = View {
            root: self.root,
            ..View::NEW
        };
    }

    /// When the members will be forgotten if nobody asks.
    fn members_end(&self, quota: &Quota) -> Option<u64> {
        let Epoch { start, length } = self.epoch?;
        let next = match self.current.members {
            0 => 0,
            1.. => epoch_length(quota, self.current.weight),
        };
        Some(start + length + next)
    }

    fn root(&self, quota: &Quota, now: u64) -> Bucket {
        self.root.unwrap_or_else(|| Bucket::empty(quota, now))
    }

    fn own(&self) -> Option<Member> {
        match self.own {
            Own::None => None,
            Own::Current(own) | Own::Previous(own) => Some(own),
        }
    }

    /// Whether the caller is a member of this epoch, or may become one.
    fn has_room(&self, caller: &Caller) -> bool {
        match caller.room {
            Room::Always => true,
            _ if matches!(self.own, Own::Current(_)) => true,
            Room::Bounded => self.current.members < MAX_MEMBERS,
            Room::Full => false,
        }
    }

    fn share(&self, quota: &Quota, caller: &Caller, now: u64) -> Share {
        let weight = u64::from(caller.weight.get());
        let own = self.own();
        let kept = own.map_or(0, |own| u64::from(own.weight.get()));
        // Members that were read before the root may not be counted in it.
        let others = (self.previous.weight + self.current.weight).saturating_sub(kept);
        let active = others + weight;
        let (mut level, mut as_of) = (Drain::default(), now);
        if let Some(own) = own {
            // Another weight may have drained less: the time never passes `now`.
            let drained = mul_div(now.saturating_sub(own.as_of), weight, active).0;
            if let Some(us) = own.level.us.checked_sub(drained) {
                level = Drain { us, ..own.level };
            }
            if level > Drain::default() {
                // Rounded up: what was too short for a microsecond is not lost.
                let (us, rest) = mul_div(drained, active, weight);
                as_of = own.as_of + us + u64::from(rest > 0);
            }
        }
        let units = u64::from(quota.member_units()) * weight;
        let least = quota.drain(narrow(units).min(quota.capacity()));
        let part = Drain {
            us: mul_div(quota.full().us, weight, active).0,
            part: 0,
        };
        Share {
            active,
            level,
            as_of,
            most: part.max(least).min(quota.full()),
        }
    }

    fn available(&self, quota: &Quota, caller: &Caller, now: u64) -> u32 {
        let free = self.root(quota, now).available(quota, now);
        let reserve = quota.capacity() / 4;
        let beyond = free.saturating_sub(reserve);
        if !self.has_room(caller) {
            return beyond;
        }
        let share = self.share(quota, caller, now);
        if share.active == u64::from(caller.weight.get()) {
            return free;
        }
        let leave = match share.most.us {
            0 => 0,
            most => narrow(mul_div(reserve.into(), share.level.us, most).0),
        };
        let own = units(quota, share.level, share.most);
        free.saturating_sub(leave).min(own).max(beyond)
    }

    /// Takes units. The view was advanced to `now`.
    fn take(&mut self, quota: &Quota, caller: &Caller, taken: u32, now: u64) {
        let mut root = self.root(quota, now);
        root.take(quota, taken, now);
        self.root = Some(root);
        if !self.has_room(caller) {
            return;
        }
        let Share {
            level, as_of, most, ..
        } = self.share(quota, caller, now);
        let drain = quota.drain(taken.min(quota.capacity()));
        let then = plus(level, drain, quota.limit()).min(most);
        self.epoch.get_or_insert_with(|| Epoch {
            start: now,
            length: quota.full().ceil(),
        });
        self.remove_own();
        self.current.members += 1;
        self.current.weight += u64::from(caller.weight.get());
        self.own = Own::Current(Member {
            level: level.max(then),
            as_of,
            weight: caller.weight,
        });
    }

    fn remove_own(&mut self) {
        let (tally, own) = match self.own {
            Own::None => return,
            Own::Current(own) => (&mut self.current, own),
            Own::Previous(own) => (&mut self.previous, own),
        };
        tally.members -= 1;
        tally.weight -= u64::from(own.weight.get());
        self.own = Own::None;
    }

    fn members(&self) -> u32 {
        self.current.members + self.previous.members
    }

    /// Lowers the root and the member, each by what the units weigh there. Whether that changed
    /// anything. An entry of the caller is always written again, and so is a root without members:
    /// the reference model does so.
    fn lower(
        &mut self,
        quota: &Quota,
        caller: &Caller,
        now: u64,
        by: Drain,
        own_by: impl FnOnce(u64, u64) -> Drain,
    ) -> bool {
        let mut root = self.root(quota, now);
        let lowered = root.lower(by, quota.limit());
        let Some(own) = self.own() else {
            let changed = lowered || self.members() == 0;
            if changed {
                self.root = Some(root);
            }
            return changed;
        };
        self.root = Some(root);
        let share = self.share(quota, caller, now);
        let by = own_by(caller.weight.get().into(), share.active);
        let level = if by >= share.level {
            Drain::default()
        } else {
            minus(share.level, by, quota.limit())
        };
        if level > Drain::default() {
            // The kept weight stays.
            let own = Member {
                level,
                as_of: share.as_of,
                weight: own.weight,
            };
            self.own = match self.own {
                Own::Current(_) => Own::Current(own),
                Own::Previous(_) | Own::None => Own::Previous(own),
            };
        } else {
            self.remove_own();
            if self.members() == 0 {
                self.forget_members();
            }
        }
        true
    }

    fn refund(&mut self, quota: &Quota, caller: &Caller, units: u32, now: u64) -> bool {
        let by = quota.drain(units).min(Drain::MAX);
        self.lower(quota, caller, now, by, |_, _| by)
    }

    fn undo(&mut self, quota: &Quota, caller: &Caller, units: u32, taken: u64, now: u64) -> bool {
        let Some(elapsed) = now.checked_sub(taken) else {
            return false;
        };
        let then = quota.drain(units).min(Drain::MAX);
        // A part has drained since; the rest is still in the level.
        let left = |drained: u64| match then.us.checked_sub(drained) {
            Some(us) => Drain { us, ..then },
            None => Drain::default(),
        };
        self.lower(quota, caller, now, left(elapsed), |weight, active| {
            left(mul_div(elapsed, weight, active).0)
        })
    }

    fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        let members = self.members_end(quota).unwrap_or(0);
        let root = self.root(quota, now).until_new(quota, now);
        root.max(members.saturating_sub(now))
    }

    /// By halving: what is available never falls while nobody asks, and all of it is once the share
    /// is as new.
    fn until_fits(&self, quota: &Quota, caller: &Caller, units: u32, now: u64) -> u64 {
        let fits = |wait: u64| {
            let mut later = *self;
            later.advance(quota, now + wait);
            later.available(quota, caller, now + wait) >= units
        };
        let root = self.root(quota, now);
        // No member has more than the root has free.
        let mut no = 0;
        if root.available(quota, now) < units {
            let wait = root.until_fits(quota, units, now);
            if fits(wait) {
                return wait;
            }
            no = wait;
        }
        let mut yes = self.until_new(quota, now);
        while yes.saturating_sub(no) > 1 {
            let middle = u64::midpoint(no, yes);
            if fits(middle) {
                yes = middle;
            } else {
                no = middle;
            }
        }
        yes
    }
}

/// An epoch: as many full drains as these weights need for their least units, within a day.
fn epoch_length(quota: &Quota, weight: u64) -> u64 {
    let drain = quota.full().ceil();
    let wanted = u64::from(quota.member_units()) * weight / u64::from(quota.capacity());
    drain * wanted.min(MAX_EPOCH_US / drain).max(1)
}

/// The whole units between a level and a higher one.
fn units(quota: &Quota, level: Drain, most: Drain) -> u32 {
    if level >= most {
        return 0;
    }
    let left = minus(most, level, quota.limit());
    let parts = u128::from(left.us) * u128::from(quota.limit()) + u128::from(left.part);
    narrow(div(parts, quota.period_us()).0)
}

/// A share advanced to a time, for one caller.
pub(crate) struct AdvancedShare<'a> {
    /// `None`: the view is all there is, as a script returned it.
    stored: Option<&'a mut FairShare>,
    view: View,
    turn: Turn,
    caller: Caller,
}

impl<'a> AdvancedShare<'a> {
    /// Advances a share. Returns the effective time too.
    pub(super) fn new(
        share: &'a mut FairShare,
        quota: &Quota,
        caller: &Caller,
        now: u64,
    ) -> (Self, u64) {
        let view = share.view(share.own(caller.member));
        Self::advance(Some(share), view, quota, caller, now)
    }

    /// Advances what a script returned.
    #[cfg(feature = "lua")]
    pub(super) fn from_view(view: View, quota: &Quota, caller: &Caller, now: u64) -> (Self, u64) {
        Self::advance(None, view, quota, caller, now)
    }

    fn advance(
        stored: Option<&'a mut FairShare>,
        mut view: View,
        quota: &Quota,
        caller: &Caller,
        now: u64,
    ) -> (Self, u64) {
        let changed = view.root.map(|root| root.timestamp());
        let effective = changed.map_or(Some(now), |changed| effective_time(changed, quota, now));
        let mut turn = Turn::None;
        if effective.is_none() {
            view = View::NEW;
            turn = Turn::All;
        }
        let effective = effective.unwrap_or(now);
        match view.advance(quota, effective) {
            Turn::None => {}
            turned => turn = turned,
        }
        let advanced = AdvancedShare {
            stored,
            view,
            turn,
            caller: *caller,
        };
        (advanced, effective)
    }

    fn store(&mut self) {
        if let Some(share) = &mut self.stored {
            share.store(&self.view, self.turn, self.caller.member);
            self.turn = Turn::None;
        }
    }

    /// The view after the request, if there is no more of the share.
    #[cfg(feature = "lua")]
    pub(super) fn into_view(self) -> Option<ShareView> {
        self.stored.is_none().then_some(ShareView(self.view))
    }

    pub(super) fn inspect(&self, quota: &Quota) -> CounterState {
        let Some(root) = self.view.root else {
            return CounterState::Shared {
                used_milli: 0,
                members: Vec::new(),
            };
        };
        let now = root.timestamp();
        let tables = self.stored.as_deref().map(|share| match self.turn {
            Turn::None => (Some(&share.current), Some(&share.previous)),
            Turn::One => (None, Some(&share.current)),
            Turn::All => (None, None),
        });
        let (current, previous) = tables.unwrap_or_default();
        let state = |&(id, member): &(u64, Member), own: Own| {
            let view = View { own, ..self.view };
            let caller = Caller {
                member: id,
                weight: member.weight,
                ..Caller::default()
            };
            let share = view.share(quota, &caller, now);
            MemberState {
                id,
                weight: member.weight,
                used_milli: milli(quota, share.level),
                most_milli: milli(quota, share.most),
            }
        };
        let current = current.into_iter().flat_map(IdMap::iter);
        let current = current.map(|entry| state(entry, Own::Current(entry.1)));
        let previous = previous.into_iter().flat_map(IdMap::iter);
        let previous = previous.map(|entry| state(entry, Own::Previous(entry.1)));
        CounterState::Shared {
            used_milli: milli(quota, root.level),
            members: current.chain(previous).collect(),
        }
    }
}

/// A level in thousandths of units, rounded up.
fn milli(quota: &Quota, level: Drain) -> u64 {
    let parts = u128::from(level.us) * u128::from(quota.limit()) + u128::from(level.part);
    let used = (parts * 1_000).div_ceil(u128::from(quota.period_us()));
    u64::try_from(used).unwrap_or(u64::MAX)
}

impl Level for AdvancedShare<'_> {
    fn available(&self, quota: &Quota, now: u64) -> u32 {
        self.view.available(quota, &self.caller, now)
    }

    fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64 {
        self.view.until_fits(quota, &self.caller, units, now)
    }

    fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        self.view.until_new(quota, now)
    }

    fn take(&mut self, quota: &Quota, units: u32, now: u64) {
        self.view.take(quota, &self.caller, units, now);
        self.store();
    }

    fn refund(&mut self, quota: &Quota, units: u32, now: u64) -> bool {
        let changed = self.view.refund(quota, &self.caller, units, now);
        if changed {
            self.store();
        }
        changed
    }

    fn undo(&mut self, quota: &Quota, units: u32, taken: u64, now: u64) -> bool {
        let changed = self.view.undo(quota, &self.caller, units, taken, now);
        if changed {
            self.store();
        }
        changed
    }

    /// Not less by what was taken: the caller's share became fuller too.
    fn remaining_after(&self, quota: &Quota, _: u32, _: u32, now: u64) -> u32 {
        self.available(quota, now)
    }
}
