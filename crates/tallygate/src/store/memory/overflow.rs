//! Overflow budgets for counters of a partition that find no slot. Limits of equal quota share one:
//! together they take at most what each may take alone, so no counter exceeds its limit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tallygate_core::{Quota, State};

use super::table::Id;
use crate::limit::Limit;

/// Counters per stripe; more stripes are fairer and take more memory.
const COUNTERS_PER_STRIPE: usize = 256;
const STRIPE_COUNTS: std::ops::RangeInclusive<usize> = 16..=4_096;
/// Live budgets per stripe. When all are in use, further quotas are refused until one expires.
const MAX_BUDGETS_PER_STRIPE: usize = 32;

pub(super) struct Overflow {
    /// The index of the partition that it belongs to.
    partition: u16,
    stripes: Box<[Stripe]>,
    /// No budget is live from this time on.
    live_until: AtomicU64,
    /// Whether a stripe was ever locked for a decision.
    used: AtomicBool,
}

// One cache line each: when the partition is full, all threads are here.
#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    budgets: Mutex<Vec<Budget>>,
    /// Decisions of which this was the first stripe.
    decisions: AtomicU64,
}

pub(super) struct Budget {
    fingerprint: u64,
    quota: Quota,
    state: State,
    expires_at: u64,
}

/// The budget of a limit.
pub(super) enum BudgetState {
    State(State),
    /// The stripe is full until this time.
    FullUntil(u64),
}

impl Overflow {
    pub(super) fn new(partition: u16, capacity: usize) -> Self {
        let stripes =
            (capacity / COUNTERS_PER_STRIPE).clamp(*STRIPE_COUNTS.start(), *STRIPE_COUNTS.end());
        Overflow {
            partition,
            stripes: (0..stripes).map(|_| Stripe::default()).collect(),
            live_until: AtomicU64::new(0),
            used: AtomicBool::new(false),
        }
    }

    /// The number of decisions made on shared budgets.
    pub(super) fn decisions(&self) -> u64 {
        let decisions = |stripe: &Stripe| stripe.decisions.load(Relaxed);
        self.stripes.iter().map(decisions).sum()
    }

    /// Whether any decision was made on a shared budget.
    pub(super) fn was_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// Whether any budget is live.
    #[inline]
    pub(super) fn any_live(&self, now: u64) -> bool {
        self.live_until.load(Relaxed) > now
    }

    #[inline]
    pub(super) fn stripe(&self, id: Id) -> StripeRef<'_> {
        // By tag, so that a counter always uses the same budget. The lowest bit of a tag is constant.
        let index = ((id.tag() >> 1) % self.stripes.len() as u64) as usize;
        StripeRef {
            overflow: self,
            index,
        }
    }

    /// The state that a counter starts from in its own slot: that of the budget, which contains what
    /// the counter took without a slot.
    #[inline]
    pub(super) fn initial_state(&self, id: Id, limit: &Limit, now: u64) -> State {
        if !self.any_live(now) {
            return State::New;
        }
        let budgets = self.stripe(id).get().budgets.lock();
        match find(&budgets, limit) {
            Some(budget) if budget.expires_at > now => budget.state.clone(),
            Some(_) | None => State::New,
        }
    }

    fn set_live_until(&self, expires_at: u64) {
        // Written only if needed, so that the cache line stays shared.
        if self.live_until.load(Relaxed) < expires_at {
            self.live_until.fetch_max(expires_at, Relaxed);
        }
    }

    fn set_used(&self) {
        if !self.was_used() {
            self.used.store(true, Relaxed);
        }
    }
}

/// A stripe of an overflow.
#[derive(Clone, Copy)]
pub(super) struct StripeRef<'s> {
    overflow: &'s Overflow,
    index: usize,
}

impl<'s> StripeRef<'s> {
    fn get(self) -> &'s Stripe {
        &self.overflow.stripes[self.index]
    }

    /// The order of locking.
    fn order(self) -> (u16, usize) {
        (self.overflow.partition, self.index)
    }
}

/// Locked stripes of one or more partitions.
pub(super) struct LockedStripes<'s> {
    stripes: SmallVec<[(StripeRef<'s>, MutexGuard<'s, Vec<Budget>>); 2]>,
}

impl<'s> LockedStripes<'s> {
    /// Locks stripes for a decision, in ascending order to avoid deadlocks. Counts the decision
    /// once for each partition.
    pub(super) fn lock(mut stripes: SmallVec<[StripeRef<'s>; 2]>) -> Self {
        stripes.sort_unstable_by_key(|stripe| stripe.order());
        stripes.dedup_by_key(|stripe| stripe.order());
        let mut counted = None;
        let lock = |stripe: StripeRef<'s>| {
            let budgets = stripe.get().budgets.lock();
            let partition = Some(stripe.overflow.partition);
            if counted != partition {
                counted = partition;
                stripe.overflow.set_used();
                stripe.get().decisions.fetch_add(1, Relaxed);
            }
            (stripe, budgets)
        };
        LockedStripes {
            stripes: stripes.into_iter().map(lock).collect(),
        }
    }

    fn budgets(&mut self, stripe: StripeRef<'_>) -> &mut Vec<Budget> {
        let is_it = |(locked, _): &&mut (StripeRef<'_>, _)| locked.order() == stripe.order();
        let locked = self.stripes.iter_mut().find(is_it);
        &mut locked
            .expect("the stripe of every limit without a slot is locked")
            .1
    }

    pub(super) fn budget(&mut self, stripe: StripeRef<'_>, limit: &Limit, now: u64) -> BudgetState {
        let budgets = self.budgets(stripe);
        if let Some(budget) = find(budgets, limit) {
            return BudgetState::State(budget.state.clone());
        }
        let first_expiry = budgets.iter().map(|budget| budget.expires_at).min();
        match first_expiry {
            Some(expiry) if budgets.len() >= MAX_BUDGETS_PER_STRIPE && expiry > now => {
                BudgetState::FullUntil(expiry)
            }
            Some(_) | None => BudgetState::State(State::New),
        }
    }

    /// Stores a budget.
    pub(super) fn store(
        &mut self,
        stripe: StripeRef<'_>,
        limit: &Limit,
        state: State,
        expires_at: u64,
        now: u64,
    ) {
        stripe.overflow.set_live_until(expires_at);
        let budgets = self.budgets(stripe);
        let budget = Budget {
            fingerprint: limit.fingerprint(),
            quota: *limit.quota(),
            state,
            expires_at,
        };
        let same = |other: &Budget| other.is_for(limit);
        let slot = budgets.iter().position(same).or_else(|| {
            let expired = |other: &Budget| other.expires_at <= now;
            budgets.iter().position(expired)
        });
        match slot {
            Some(at) => budgets[at] = budget,
            None => budgets.push(budget),
        }
    }
}

fn find<'b>(budgets: &'b [Budget], limit: &Limit) -> Option<&'b Budget> {
    budgets.iter().find(|budget| budget.is_for(limit))
}

impl Budget {
    fn is_for(&self, limit: &Limit) -> bool {
        self.fingerprint == limit.fingerprint() && self.quota == *limit.quota()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stripe_is_used() {
        let overflow = Overflow::new(0, 0);
        let mut used = vec![false; overflow.stripes.len()];
        for hash in 0..1_000 {
            used[overflow.stripe(Id::new(hash)).index] = true;
        }
        assert!(used.iter().all(|&used| used), "{used:?}");
    }
}
