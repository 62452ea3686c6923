//! Budgets for those who found no room of their own. Limits of equal quota share one: what all
//! of them take together stays within what each may take alone, so nobody is above their limit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tallygate_core::{Quota, State};

use super::table::Id;
use crate::limit::Limit;

/// Counters a stripe serves; more stripes are fairer and take more memory.
const COUNTERS_A_STRIPE: usize = 256;
const STRIPES: std::ops::RangeInclusive<usize> = 16..=4_096;
/// Quotas with a live budget in one stripe. Beyond that there is no way to count, so that nothing
/// is admitted until one of them is forgotten.
const BUDGETS_A_STRIPE: usize = 32;

pub(super) struct Shared {
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
    forget_at: u64,
}

/// What a stripe can offer a limit.
pub(super) enum Offer {
    /// This state.
    State(State),
    /// Nothing before this time.
    FullUntil(u64),
}

impl Shared {
    pub(super) fn new(capacity: usize) -> Self {
        let stripes = (capacity / COUNTERS_A_STRIPE).clamp(*STRIPES.start(), *STRIPES.end());
        Shared {
            stripes: (0..stripes).map(|_| Mutex::default()).collect(),
            live_until: AtomicU64::new(0),
            decisions: AtomicU64::new(0),
        }
    }

    /// How many decisions were made on a shared budget.
    pub(super) fn decisions(&self) -> u64 {
        self.decisions.load(Relaxed)
    }

    /// Whether anybody shares, or did so lately enough to matter.
    #[inline]
    pub(super) fn any_live(&self, now: u64) -> bool {
        self.live_until.load(Relaxed) > now
    }

    #[inline]
    pub(super) fn stripe(&self, id: Id) -> usize {
        // A counter always shares with the same others: its tag decides, of which the last bit says
        // nothing.
        ((id.tag() >> 1) % self.stripes.len() as u64) as usize
    }

    /// The state a counter starts from when it gets room of its own: what it may have taken while
    /// it shared is in that budget.
    #[inline]
    pub(super) fn inherited(&self, id: Id, limit: &Limit, now: u64) -> State {
        if !self.any_live(now) {
            return State::New;
        }
        let stripe = self.stripes[self.stripe(id)].lock();
        match stripe.find(limit) {
            Some(budget) if budget.forget_at > now => budget.state.clone(),
            Some(_) | None => State::New,
        }
    }

    /// Locks stripes, in the order that all callers follow.
    pub(super) fn hold(&self, mut stripes: SmallVec<[usize; 2]>) -> HeldStripes<'_> {
        if !stripes.is_empty() {
            self.decisions.fetch_add(1, Relaxed);
        }
        stripes.sort_unstable();
        stripes.dedup();
        let lock = |at: usize| (at, self.stripes[at].lock());
        HeldStripes {
            shared: self,
            stripes: stripes.into_iter().map(lock).collect(),
        }
    }
}

/// Stripes under lock.
pub(super) struct HeldStripes<'s> {
    shared: &'s Shared,
    stripes: SmallVec<[(usize, MutexGuard<'s, Stripe>); 2]>,
}

impl HeldStripes<'_> {
    fn stripe(&mut self, id: Id) -> &mut Stripe {
        let at = self.shared.stripe(id);
        let held = self.stripes.iter_mut().find(|(stripe, _)| *stripe == at);
        &mut held.expect("the stripe of every sharing limit is held").1
    }

    /// The budget of a limit.
    pub(super) fn offer(&mut self, id: Id, limit: &Limit, now: u64) -> Offer {
        let stripe = self.stripe(id);
        if let Some(budget) = stripe.find(limit) {
            return Offer::State(budget.state.clone());
        }
        let soonest = stripe.budgets.iter().map(|budget| budget.forget_at).min();
        match soonest {
            Some(soonest) if stripe.budgets.len() >= BUDGETS_A_STRIPE && soonest > now => {
                Offer::FullUntil(soonest)
            }
            Some(_) | None => Offer::State(State::New),
        }
    }

    /// Writes a budget down.
    pub(super) fn store(&mut self, id: Id, limit: &Limit, state: State, forget_at: u64, now: u64) {
        self.shared.live_until.fetch_max(forget_at, Relaxed);
        let stripe = self.stripe(id);
        let budget = Budget {
            fingerprint: limit.fingerprint(),
            quota: *limit.quota(),
            state,
            forget_at,
        };
        let same = |other: &Budget| other.is_of(limit);
        let place = stripe.budgets.iter().position(same).or_else(|| {
            let stale = |other: &Budget| other.forget_at <= now;
            stripe.budgets.iter().position(stale)
        });
        match place {
            Some(at) => stripe.budgets[at] = budget,
            None => stripe.budgets.push(budget),
        }
    }
}

impl Stripe {
    fn find(&self, limit: &Limit) -> Option<&Budget> {
        self.budgets.iter().find(|budget| budget.is_of(limit))
    }
}

impl Budget {
    fn is_of(&self, limit: &Limit) -> bool {
        self.fingerprint == limit.fingerprint() && self.quota == *limit.quota()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stripe_has_its_counters() {
        let shared = Shared::new(0);
        let mut used = vec![false; shared.stripes.len()];
        for hash in 0..1_000 {
            used[shared.stripe(Id::new(hash))] = true;
        }
        assert!(used.iter().all(|&used| used), "{used:?}");
    }
}
