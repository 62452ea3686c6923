//! Overflow budgets for counters that find no slot. Limits of equal quota share one: together they
//! take at most what each may take alone, so no counter exceeds its limit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    stripes: Box<[Mutex<Stripe>]>,
    /// No budget is live from this time on.
    live_until: AtomicU64,
    decisions: AtomicU64,
}

#[derive(Default)]
pub(super) struct Stripe {
    budgets: Vec<Budget>,
}

struct Budget {
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
    pub(super) fn new(capacity: usize) -> Self {
        let stripes =
            (capacity / COUNTERS_PER_STRIPE).clamp(*STRIPE_COUNTS.start(), *STRIPE_COUNTS.end());
        Overflow {
            stripes: (0..stripes).map(|_| Mutex::default()).collect(),
            live_until: AtomicU64::new(0),
            decisions: AtomicU64::new(0),
        }
    }

    pub(super) fn decisions(&self) -> u64 {
        self.decisions.load(Relaxed)
    }

    /// Whether any budget is live.
    #[inline]
    pub(super) fn any_live(&self, now: u64) -> bool {
        self.live_until.load(Relaxed) > now
    }

    #[inline]
    pub(super) fn stripe(&self, id: Id) -> usize {
        // By tag, so that a counter always uses the same budget. The lowest bit of a tag is constant.
        ((id.tag() >> 1) % self.stripes.len() as u64) as usize
    }

    /// The state that a counter starts from in its own slot: that of the budget, which contains what
    /// the counter took without a slot.
    #[inline]
    pub(super) fn initial_state(&self, id: Id, limit: &Limit, now: u64) -> State {
        if !self.any_live(now) {
            return State::New;
        }
        let stripe = self.stripes[self.stripe(id)].lock();
        match stripe.find(limit) {
            Some(budget) if budget.expires_at > now => budget.state.clone(),
            Some(_) | None => State::New,
        }
    }

    /// Locks stripes, in ascending order to avoid deadlocks.
    pub(super) fn lock(&self, mut stripes: SmallVec<[usize; 2]>) -> LockedStripes<'_> {
        if !stripes.is_empty() {
            self.decisions.fetch_add(1, Relaxed);
        }
        stripes.sort_unstable();
        stripes.dedup();
        let lock = |at: usize| (at, self.stripes[at].lock());
        LockedStripes {
            overflow: self,
            stripes: stripes.into_iter().map(lock).collect(),
        }
    }
}

/// Locked stripes.
pub(super) struct LockedStripes<'s> {
    overflow: &'s Overflow,
    stripes: SmallVec<[(usize, MutexGuard<'s, Stripe>); 2]>,
}

impl LockedStripes<'_> {
    fn stripe(&mut self, id: Id) -> &mut Stripe {
        let at = self.overflow.stripe(id);
        let locked = self.stripes.iter_mut().find(|(stripe, _)| *stripe == at);
        &mut locked
            .expect("the stripe of every limit without a slot is locked")
            .1
    }

    pub(super) fn budget(&mut self, id: Id, limit: &Limit, now: u64) -> BudgetState {
        let stripe = self.stripe(id);
        if let Some(budget) = stripe.find(limit) {
            return BudgetState::State(budget.state.clone());
        }
        let first_expiry = stripe.budgets.iter().map(|budget| budget.expires_at).min();
        match first_expiry {
            Some(expiry) if stripe.budgets.len() >= MAX_BUDGETS_PER_STRIPE && expiry > now => {
                BudgetState::FullUntil(expiry)
            }
            Some(_) | None => BudgetState::State(State::New),
        }
    }

    /// Stores a budget.
    pub(super) fn store(&mut self, id: Id, limit: &Limit, state: State, expires_at: u64, now: u64) {
        self.overflow.live_until.fetch_max(expires_at, Relaxed);
        let stripe = self.stripe(id);
        let budget = Budget {
            fingerprint: limit.fingerprint(),
            quota: *limit.quota(),
            state,
            expires_at,
        };
        let same = |other: &Budget| other.is_for(limit);
        let slot = stripe.budgets.iter().position(same).or_else(|| {
            let expired = |other: &Budget| other.expires_at <= now;
            stripe.budgets.iter().position(expired)
        });
        match slot {
            Some(at) => stripe.budgets[at] = budget,
            None => stripe.budgets.push(budget),
        }
    }
}

impl Stripe {
    fn find(&self, limit: &Limit) -> Option<&Budget> {
        self.budgets.iter().find(|budget| budget.is_for(limit))
    }
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
        let overflow = Overflow::new(0);
        let mut used = vec![false; overflow.stripes.len()];
        for hash in 0..1_000 {
            used[overflow.stripe(Id::new(hash))] = true;
        }
        assert!(used.iter().all(|&used| used), "{used:?}");
    }
}
