//! Leases: units that a process takes from a shared counter ahead of requests, and spends without
//! asking the store. Performs no I/O and reads no clock.
//!
//! Units are debited before they are spent. They are spent within `hold` of the time the store was
//! asked for them, and in the aligned window in which it debited them, by the latest time that the
//! store's clock may show. What is left goes back as of the time it was taken: such an undo never
//! returns more than the units still weigh.

use std::collections::BTreeSet;
use std::collections::hash_map::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tallygate_core::{Outcome, Quota, Verdict};

use super::hot_keys::HotKeys;
use super::store_time::Timing;
use crate::limit::LeaseSettings;

/// A process leases at most one in this many of the units available to it.
const SHARE: u32 = 4;
/// Counters with leases, in all. The store decides all requests of others.
const MAX_COUNTERS: usize = 65_536;
/// Counters of which is known how often they are asked for, in all.
const MAX_CANDIDATES: usize = 65_536;
const SHARDS: usize = 64;
const MAX_PER_SHARD: usize = MAX_COUNTERS / SHARDS;
/// Lots of one counter: the one being spent and its successor.
const MAX_LOTS: usize = 2;

/// The leases of a process. `T` is what the caller needs to send a call for a counter.
///
/// Local times are in microseconds of any monotonic clock of this process.
pub(crate) struct Leases<T> {
    /// Identifiers are hashes with a random seed.
    shards: Box<[Mutex<Shard<T>>]>,
    counts: Counts,
}

struct Shard<T> {
    counters: HashMap<u64, Leased<T>, FixedState>,
    candidates: HotKeys,
    /// When each of the counters is to be looked at.
    due: BTreeSet<(u64, u64)>,
    /// Units to be returned with the next tick.
    returns: Vec<LeaseReturn<T>>,
    /// Requests under way whose counter was reset: what they take may no longer be charged.
    voided: BTreeSet<u64>,
    /// The number of the last request.
    requests: u64,
    /// The number of the last counter that was added.
    added: u64,
    closed: bool,
}

struct Leased<T> {
    /// Differs from that of an earlier quota, or before a reset.
    number: u64,
    target: T,
    quota: Quota,
    settings: LeaseSettings,
    lots: SmallVec<[Lot; MAX_LOTS]>,
    /// The most units that this process may have of it: in its lots, pending, on their way back and
    /// in the lease that is on its way.
    bound: u32,
    /// Units of requests whose other limits are not decided yet.
    pending: u32,
    /// Units whose return has not been confirmed.
    returning: u32,
    /// The units that were left in the store, without the lots.
    remaining: u32,
    /// When the counter is as new, if nobody asks.
    reset_us: u64,
    /// The lease that is on its way.
    requested: Option<Requested>,
    usage: Usage,
    /// When it is looked at.
    due_us: u64,
}

#[derive(Clone, Copy)]
struct Requested {
    number: u64,
    max: u32,
}

/// How often a counter was asked for, in the present and the last period.
#[derive(Clone, Copy, Debug)]
struct Usage {
    since_us: u64,
    now: u32,
    before: u32,
}

impl Usage {
    fn count(&mut self, period_us: u64, now_us: u64) {
        let elapsed = now_us.saturating_sub(self.since_us);
        if elapsed > period_us {
            let adjacent = elapsed <= period_us.saturating_mul(2);
            self.before = if adjacent { self.now } else { 0 };
            (self.now, self.since_us) = (0, now_us);
        }
        self.now = self.now.saturating_add(1);
    }

    /// The larger count of both periods.
    fn max(self) -> u32 {
        self.now.max(self.before)
    }

    fn is_over(self, period_us: u64, now_us: u64) -> bool {
        now_us.saturating_sub(self.since_us) > period_us.saturating_mul(2)
    }
}

#[derive(Clone, Copy, Debug)]
struct Lot {
    /// By the store's clock.
    taken_us: u64,
    granted: u32,
    left: u32,
    /// Not spent from then on.
    until_us: u64,
    used_us: u64,
}

/// A counter of a request.
#[derive(Clone, Copy)]
pub(crate) struct LeasedCounter<'a> {
    pub(crate) id: u64,
    pub(crate) quota: &'a Quota,
    pub(crate) settings: LeaseSettings,
    pub(crate) cost: u32,
}

/// What a request spent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Its figures are estimates.
    pub(crate) verdict: Verdict,
    pub(crate) taken_us: u64,
    /// Whether it is time to [request](Leases::request) the next lease.
    pub(crate) renew: bool,
    spending: Spending,
    /// Of its counter.
    number: u64,
}

/// Whether a request takes what it spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spending {
    Final,
    /// Other limits may refuse: until it is [kept](Leases::keep) or [put back](Leases::put_back).
    Pending,
}

/// A lease to be taken: at most `max` units, and one in `divisor` of those available.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeaseRequest<T> {
    pub(crate) id: u64,
    pub(crate) target: T,
    pub(crate) quota: Quota,
    pub(crate) max: u32,
    pub(crate) divisor: u32,
    number: u64,
}

/// Units to be returned by an undo as of `taken_us`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeaseReturn<T> {
    pub(crate) id: u64,
    pub(crate) target: T,
    pub(crate) quota: Quota,
    pub(crate) units: u32,
    pub(crate) taken_us: u64,
    /// The number of the counter that they count for until they are returned.
    number: Option<u64>,
}

/// What leases did, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Units that are leased and not spent.
    pub outstanding: u64,
    /// Leases that were taken.
    pub leases: u64,
    /// Units that were taken ahead.
    pub taken: u64,
    /// Units that were returned unspent.
    pub returned: u64,
    /// Units that may be lost: their return failed, or the reply to a lease did. They stay charged.
    pub stranded: u64,
    /// Requests that were decided without asking the store.
    pub saved: u64,
}

#[derive(Default)]
struct Counts {
    /// That are known.
    counters: AtomicU64,
    outstanding: AtomicU64,
    leases: AtomicU64,
    taken: AtomicU64,
    returned: AtomicU64,
    stranded: AtomicU64,
    saved: AtomicU64,
}

impl<T> Leased<T> {
    fn held(&self) -> u32 {
        self.lots.iter().map(|lot| lot.left).sum()
    }

    fn set_bound(&mut self, divisor: u32) {
        let max = self.settings.max.unwrap_or(u32::MAX);
        self.bound = (self.quota.capacity() / divisor).min(max);
    }

    /// The most that the next lease may take: with the lots and what has not arrived at the store
    /// yet, a process that ends strands one lease.
    fn max_lease(&self) -> u32 {
        let requested = self.requested.map_or(0, |requested| requested.max);
        let parts = [self.held(), self.pending, self.returning, requested];
        let has = parts.into_iter().fold(0, u32::saturating_add);
        self.bound.saturating_sub(has)
    }

    fn has_requested(&self, number: u64) -> bool {
        self.requested.is_some_and(|one| one.number == number)
    }

    fn is_due(&self, divisor: u32) -> bool {
        let lots = self.lots.iter().filter(|lot| lot.left > 0);
        self.requested.is_none()
            && self.usage.max() >= self.settings.threshold()
            && lots.count() < MAX_LOTS
            && self.max_lease() > 1
            && self.remaining / divisor > 1
    }

    /// When to look at it next. `None` if it is no longer used.
    fn next_due_us(&self, now_us: u64) -> Option<u64> {
        let hold_us = self.settings.hold_us();
        let ends = self.lots.iter().map(|lot| lot.ends_us(hold_us)).min();
        let in_use = self.requested.is_some()
            || self.pending > 0
            || self.returning > 0
            || !self.usage.is_over(hold_us, now_us);
        ends.or_else(|| in_use.then(|| now_us.saturating_add(hold_us)))
    }
}

impl<T: Clone> Leases<T> {
    pub(crate) fn new() -> Self {
        let shard = || {
            Mutex::new(Shard {
                counters: HashMap::default(),
                candidates: HotKeys::with_capacity(MAX_CANDIDATES / SHARDS),
                due: BTreeSet::new(),
                returns: Vec::new(),
                voided: BTreeSet::new(),
                requests: 0,
                added: 0,
                closed: false,
            })
        };
        Leases {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn stats(&self) -> LeaseStats {
        let counts = &self.counts;
        LeaseStats {
            outstanding: counts.outstanding.load(Relaxed),
            leases: counts.leases.load(Relaxed),
            taken: counts.taken.load(Relaxed),
            returned: counts.returned.load(Relaxed),
            stranded: counts.stranded.load(Relaxed),
            saved: counts.saved.load(Relaxed),
        }
    }

    /// Whether there is something to look at some time: ticks are needed.
    pub(crate) fn is_active(&self) -> bool {
        self.counts.outstanding.load(Relaxed) > 0 || self.counts.counters.load(Relaxed) > 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().closed)
    }

    pub(crate) fn count_saved(&self) {
        self.counts.saved.fetch_add(1, Relaxed);
    }

    /// Spends units of a lease, if one has enough.
    pub(crate) fn spend(
        &self,
        counter: &LeasedCounter<'_>,
        spending: Spending,
        replicas: u32,
        now_us: u64,
    ) -> Option<Spent> {
        let mut shard = self.shard(counter.id).lock();
        let leased = shard.counters.get_mut(&counter.id)?;
        if leased.quota != *counter.quota || counter.cost == 0 {
            return None;
        }
        let fits = |lot: &&mut Lot| lot.left >= counter.cost && now_us < lot.until_us;
        let lot = leased.lots.iter_mut().find(fits)?;
        lot.left -= counter.cost;
        lot.used_us = now_us;
        let taken_us = lot.taken_us;
        leased.usage.count(leased.settings.hold_us(), now_us);
        self.counts
            .outstanding
            .fetch_sub(counter.cost.into(), Relaxed);
        let divisor = divisor(replicas);
        leased.set_bound(divisor);
        let held = leased.held();
        let verdict = Verdict {
            outcome: Outcome::Admitted {
                granted: counter.cost,
                delay_us: 0,
            },
            limit: leased.quota.capacity(),
            remaining: leased
                .remaining
                .saturating_add(held)
                .min(leased.quota.capacity()),
            reset_after_us: leased.reset_us.saturating_sub(now_us),
        };
        // As many are asked for as were spent.
        let half = leased.max_lease() >= held;
        let renew = half && leased.is_due(divisor);
        if spending == Spending::Pending {
            leased.pending = leased.pending.saturating_add(counter.cost);
        }
        Some(Spent {
            verdict,
            taken_us,
            renew,
            spending,
            number: leased.number,
        })
    }

    /// Records that a request takes what it spent. Necessary only if that was
    /// [pending](Spending::Pending).
    pub(crate) fn keep(&self, id: u64, units: u32, spent: &Spent) {
        if spent.spending == Spending::Final {
            return;
        }
        let mut shard = self.shard(id).lock();
        let leased = shard.counters.get_mut(&id);
        if let Some(leased) = leased.filter(|leased| leased.number == spent.number) {
            leased.pending = leased.pending.saturating_sub(units);
        }
    }

    /// Puts back what a request spent without effect. Returns what has to be undone instead, because
    /// its lot is gone.
    pub(crate) fn put_back(
        &self,
        counter: &LeasedCounter<'_>,
        spent: &Spent,
        target: impl FnOnce() -> T,
    ) -> Option<LeaseReturn<T>> {
        let units = counter.cost;
        let mut shard = self.shard(counter.id).lock();
        let leased = shard.counters.get_mut(&counter.id);
        let mut leased = leased.filter(|leased| leased.number == spent.number);
        if let Some(leased) = &mut leased {
            if spent.spending == Spending::Pending {
                leased.pending = leased.pending.saturating_sub(units);
            }
            if self.put_into_lot(leased, units, spent.taken_us) {
                return None;
            }
            leased.returning = leased.returning.saturating_add(units);
        }
        Some(LeaseReturn {
            id: counter.id,
            target: target(),
            quota: *counter.quota,
            units,
            taken_us: spent.taken_us,
            number: leased.map(|leased| leased.number),
        })
    }

    /// Puts back what a request took and gives up. Returns whether it can be spent again; otherwise it
    /// has to be undone.
    pub(crate) fn undo(&self, id: u64, units: u32, taken_us: u64) -> bool {
        let mut shard = self.shard(id).lock();
        let leased = shard.counters.get_mut(&id);
        leased.is_some_and(|leased| self.put_into_lot(leased, units, taken_us))
    }

    fn put_into_lot(&self, leased: &mut Leased<T>, units: u32, taken_us: u64) -> bool {
        // Other units may have been leased for those that were spent.
        if leased.max_lease() < units {
            return false;
        }
        // A check that the store decided at the same time did not spend the lot.
        let has_room = |lot: &&mut Lot| {
            lot.taken_us == taken_us && lot.granted.saturating_sub(lot.left) >= units
        };
        let Some(lot) = leased.lots.iter_mut().find(has_room) else {
            return false;
        };
        lot.left += units;
        self.counts.outstanding.fetch_add(units.into(), Relaxed);
        true
    }

    /// Records a check that the store decided. Returns whether it is time to
    /// [request](Leases::request) a lease.
    pub(crate) fn on_check(
        &self,
        counter: &LeasedCounter<'_>,
        target: impl FnOnce() -> T,
        verdict: &Verdict,
        replicas: u32,
        now_us: u64,
    ) -> bool {
        let mut shard = self.shard(counter.id).lock();
        let shard = &mut *shard;
        if shard.closed {
            return false;
        }
        let hold_us = counter.settings.hold_us();
        let known = shard.counters.get(&counter.id);
        if known.is_some_and(|leased| leased.quota != *counter.quota) {
            // As of the quota that it was taken under.
            self.remove(shard, counter.id, Removal::Return);
        }
        if !shard.counters.contains_key(&counter.id) {
            let asked = shard.candidates.count(counter.id, hold_us, now_us);
            // Cold counters are not kept, nor those that a lease is not worth.
            if asked < counter.settings.threshold()
                || verdict.remaining / divisor(replicas) < 2
                || shard.counters.len() >= MAX_PER_SHARD
            {
                return false;
            }
            let usage = Usage {
                since_us: now_us,
                now: asked - 1,
                before: 0,
            };
            shard.added += 1;
            let leased = Leased {
                number: shard.added,
                target: target(),
                quota: *counter.quota,
                settings: counter.settings,
                lots: SmallVec::new(),
                bound: 0,
                pending: 0,
                returning: 0,
                remaining: 0,
                reset_us: 0,
                requested: None,
                usage,
                due_us: now_us.saturating_add(hold_us),
            };
            shard.due.insert((leased.due_us, counter.id));
            shard.counters.insert(counter.id, leased);
            self.counts.counters.fetch_add(1, Relaxed);
        }
        let Some(leased) = shard.counters.get_mut(&counter.id) else {
            return false;
        };
        leased.settings = counter.settings;
        leased.usage.count(hold_us, now_us);
        leased.remaining = verdict.remaining;
        leased.reset_us = now_us.saturating_add(verdict.reset_after_us);
        let divisor = divisor(replicas);
        leased.set_bound(divisor);
        leased.is_due(divisor)
    }

    /// The lease to take for a counter, if it is due. Until its result is reported, there is no
    /// other.
    pub(crate) fn request(&self, id: u64, replicas: u32) -> Option<LeaseRequest<T>> {
        let divisor = divisor(replicas);
        let mut shard = self.shard(id).lock();
        let shard = &mut *shard;
        if shard.closed {
            return None;
        }
        let leased = shard.counters.get_mut(&id)?;
        leased.set_bound(divisor);
        leased.lots.retain(|lot| lot.left > 0);
        if !leased.is_due(divisor) {
            return None;
        }
        shard.requests += 1;
        let max = leased.max_lease();
        leased.requested = Some(Requested {
            number: shard.requests,
            max,
        });
        Some(LeaseRequest {
            id,
            target: leased.target.clone(),
            quota: leased.quota,
            max,
            divisor,
            number: shard.requests,
        })
    }

    /// Records what the store granted: `verdict` after the lease was taken, as of the time when the
    /// request took effect. `timing` has the store's time.
    pub(crate) fn on_granted(
        &self,
        request: &LeaseRequest<T>,
        verdict: &Verdict,
        taken_us: u64,
        timing: Timing,
    ) {
        let units = verdict.granted();
        self.counts.leases.fetch_add(1, Relaxed);
        self.counts.taken.fetch_add(units.into(), Relaxed);
        let mut shard = self.shard(request.id).lock();
        let shard = &mut *shard;
        if shard.voided.remove(&request.number) {
            // If the reset came later, it forgot these units. If it came earlier, they are lost.
            self.counts.stranded.fetch_add(units.into(), Relaxed);
            return;
        }
        let usable = shard.counters.get_mut(&request.id);
        let usable = usable.filter(|leased| leased.has_requested(request.number));
        let Some(leased) = usable.filter(|_| !shard.closed) else {
            // Its quota has changed meanwhile, or the process ends.
            if units > 0 {
                shard.returns.push(LeaseReturn {
                    id: request.id,
                    target: request.target.clone(),
                    quota: request.quota,
                    units,
                    taken_us,
                    number: None,
                });
                self.counts.outstanding.fetch_add(units.into(), Relaxed);
            }
            return;
        };
        leased.requested = None;
        leased.remaining = verdict.remaining;
        leased.reset_us = timing.received_us.saturating_add(verdict.reset_after_us);
        if units == 0 {
            return;
        }
        let hold_us = leased.settings.hold_us();
        let mut until_us = timing.sent_us.saturating_add(hold_us);
        if let Some(end_us) = leased.quota.window_end_us(taken_us) {
            until_us = until_us.min(timing.before_store_time(end_us));
        }
        let lot = Lot {
            taken_us,
            granted: units,
            left: units,
            until_us,
            used_us: timing.received_us,
        };
        leased.lots.push(lot);
        self.counts.outstanding.fetch_add(units.into(), Relaxed);
        let due_us = lot.ends_us(hold_us);
        if due_us < leased.due_us {
            shard.due.remove(&(leased.due_us, request.id));
            shard.due.insert((due_us, request.id));
            leased.due_us = due_us;
        }
    }

    /// Records that a lease could not be taken. `max` units are stranded if it may have been.
    pub(crate) fn on_failed(&self, request: &LeaseRequest<T>, may_have_run: bool) {
        let mut shard = self.shard(request.id).lock();
        shard.voided.remove(&request.number);
        if let Some(leased) = shard.counters.get_mut(&request.id)
            && leased.has_requested(request.number)
        {
            leased.requested = None;
            // Not again before the store has decided something.
            leased.remaining = 0;
        }
        if may_have_run {
            self.counts.stranded.fetch_add(request.max.into(), Relaxed);
        }
    }

    /// Records whether units were returned.
    pub(crate) fn on_returned(&self, one: &LeaseReturn<T>, returned: bool) {
        let count = match returned {
            true => &self.counts.returned,
            false => &self.counts.stranded,
        };
        count.fetch_add(one.units.into(), Relaxed);
        let mut shard = self.shard(one.id).lock();
        let leased = shard.counters.get_mut(&one.id);
        if let Some(leased) = leased.filter(|leased| Some(leased.number) == one.number) {
            leased.returning = leased.returning.saturating_sub(one.units);
        }
    }

    /// Forgets a counter that is about to be reset: what was leased will no longer be charged.
    pub(crate) fn forget(&self, id: u64) {
        let mut shard = self.shard(id).lock();
        self.remove(&mut shard, id, Removal::Void);
    }

    /// Units to be returned now: of lots that may no longer be spent, or that nobody has used for
    /// half a hold.
    pub(crate) fn tick(&self, now_us: u64) -> Vec<LeaseReturn<T>> {
        let mut returns = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let shard = &mut *shard;
            while let Some(&(due_us, id)) = shard.due.first()
                && due_us <= now_us
            {
                shard.due.pop_first();
                let Some(leased) = shard.counters.get_mut(&id) else {
                    continue;
                };
                let hold_us = leased.settings.hold_us();
                for at in (0..leased.lots.len()).rev() {
                    let lot = leased.lots[at];
                    if lot.left > 0 && now_us < lot.ends_us(hold_us) {
                        continue;
                    }
                    leased.lots.remove(at);
                    if lot.left > 0 {
                        leased.returning = leased.returning.saturating_add(lot.left);
                        shard.returns.push(lot.into_return(id, leased));
                    }
                }
                match leased.next_due_us(now_us) {
                    Some(next_us) => {
                        leased.due_us = next_us;
                        shard.due.insert((next_us, id));
                    }
                    None => {
                        shard.counters.remove(&id);
                        self.counts.counters.fetch_sub(1, Relaxed);
                    }
                }
            }
            self.take_returns(shard, &mut returns);
        }
        returns
    }

    /// Ends all leases: returns what is to be returned, and takes no more.
    pub(crate) fn close(&self) -> Vec<LeaseReturn<T>> {
        let mut returns = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.closed = true;
            let ids: Vec<u64> = shard.counters.keys().copied().collect();
            for id in ids {
                self.remove(&mut shard, id, Removal::Return);
            }
            self.take_returns(&mut shard, &mut returns);
        }
        returns
    }

    fn take_returns(&self, shard: &mut Shard<T>, returns: &mut Vec<LeaseReturn<T>>) {
        for one in &shard.returns {
            self.counts.outstanding.fetch_sub(one.units.into(), Relaxed);
        }
        returns.append(&mut shard.returns);
    }

    fn remove(&self, shard: &mut Shard<T>, id: u64, removal: Removal) {
        if let Removal::Void = removal {
            // Not sent yet.
            shard.returns.retain(|one| {
                let kept = one.id != id;
                if !kept {
                    self.counts.outstanding.fetch_sub(one.units.into(), Relaxed);
                }
                kept
            });
        }
        let Some(leased) = shard.counters.remove(&id) else {
            return;
        };
        self.counts.counters.fetch_sub(1, Relaxed);
        shard.due.remove(&(leased.due_us, id));
        for lot in leased.lots.iter().filter(|lot| lot.left > 0) {
            match removal {
                Removal::Return => shard.returns.push(lot.into_return(id, &leased)),
                Removal::Void => {
                    self.counts.outstanding.fetch_sub(lot.left.into(), Relaxed);
                }
            }
        }
        if let (Removal::Void, Some(requested)) = (removal, leased.requested) {
            shard.voided.insert(requested.number);
        }
    }

    fn shard(&self, id: u64) -> &Mutex<Shard<T>> {
        &self.shards[(id >> 58) as usize % SHARDS]
    }
}

/// What becomes of the units of a counter that is removed.
#[derive(Clone, Copy)]
enum Removal {
    Return,
    /// They are not charged any more.
    Void,
}

impl Lot {
    /// When it may no longer be spent, or nobody has used it for half a hold.
    fn ends_us(&self, hold_us: u64) -> u64 {
        self.until_us.min(self.used_us.saturating_add(hold_us / 2))
    }

    fn into_return<T: Clone>(self, id: u64, leased: &Leased<T>) -> LeaseReturn<T> {
        LeaseReturn {
            id,
            target: leased.target.clone(),
            quota: leased.quota,
            units: self.left,
            taken_us: self.taken_us,
            number: Some(leased.number),
        }
    }
}

/// Every process leases at most its part of what is available.
fn divisor(replicas: u32) -> u32 {
    replicas.max(1).saturating_mul(SHARE)
}

#[cfg(test)]
mod tests;
