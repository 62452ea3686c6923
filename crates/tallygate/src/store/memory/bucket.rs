//! The buckets of a table: a few slots under one lock.

use std::hint::select_unpredictable;

use tallygate_core::{Caller, Quota, State, Verb, evaluate};

use super::{Operation, TimedVerdict};

/// The expiry of a claimed slot: later than that of any counter.
pub(super) const CLAIMED: u64 = (1 << 54) - 1;

/// Equal checks of one counter.
#[derive(Clone, Copy)]
pub(super) struct RepeatedCheck {
    pub(super) cost: u32,
    pub(super) now: u64,
    pub(super) times: usize,
}

/// A few slots, vacant at first.
pub(super) trait Bucket: Sized + Send + Sync + 'static {
    /// The slots under lock.
    type Slots<'a>: Slots
    where
        Self: 'a;

    /// The buckets of a table.
    type Buckets: Buckets<Self>;

    fn lock(&self) -> Self::Slots<'_>;

    fn try_lock(&self) -> Option<Self::Slots<'_>>;

    /// Prefetches the bucket.
    fn prefetch(&self);

    /// Prefetches what [`guess`](Bucket::guess) reads.
    fn prefetch_tags(&self) {
        self.prefetch();
    }

    /// Counts the live counters.
    fn live(&self, now: u64) -> usize {
        let slots = self.lock();
        let is_live = |&at: &usize| slots.expires_at(at) > now;
        (0..Self::Slots::<'_>::LEN).filter(is_live).count()
    }

    /// The slot that a counter seems to be in, read without the lock. Prefetches the slot.
    fn guess(&self, tag: u64) -> Option<usize>;
}

/// The buckets of a table.
pub(super) trait Buckets<B>: Send + Sync {
    /// Allocates vacant buckets.
    fn vacant(len: usize) -> Self;

    fn len(&self) -> usize;

    /// The bucket at an index below the length.
    fn get(&self, index: usize) -> &B;
}

/// The only position that passes a test.
#[inline]
pub(super) fn find<const LEN: usize>(passes: impl Fn(usize) -> bool) -> Option<usize> {
    // Without a branch on the position, which would be mispredicted half the time.
    let mut found = LEN;
    for at in 0..LEN {
        found = select_unpredictable(passes(at), at, found);
    }
    (found < LEN).then_some(found)
}

/// The slots of a locked bucket.
pub(super) trait Slots: Sized {
    const LEN: usize;

    /// The tag of a slot's counter; 0 if vacant.
    fn tag(&self, at: usize) -> u64;

    /// The slot may be reused from this time on.
    fn expires_at(&self, at: usize) -> u64;

    /// Evaluates an operation on the counter of a slot.
    fn evaluate(
        &mut self,
        at: usize,
        tag: u64,
        quota: &Quota,
        operation: Operation<'_>,
    ) -> TimedVerdict;

    /// Evaluates the same check of the counter of a slot so many times.
    #[inline]
    fn check_repeatedly(
        &mut self,
        at: usize,
        tag: u64,
        quota: &Quota,
        repeated: RepeatedCheck,
        mut each: impl FnMut(TimedVerdict),
    ) {
        let RepeatedCheck { cost, now, times } = repeated;
        for _ in 0..times {
            let operation = Operation::new(Verb::Check, cost, now, &Caller::NONE);
            each(self.evaluate(at, tag, quota, operation));
        }
    }

    /// Evaluates an operation on a new counter, which starts from a state.
    fn evaluate_new(
        &mut self,
        at: usize,
        tag: u64,
        quota: &Quota,
        operation: Operation<'_>,
        mut state: State,
    ) -> TimedVerdict {
        let Operation {
            verb, cost, now, ..
        } = operation;
        let effective_time_us = state.effective_time_us(quota, now);
        let verdict = evaluate(quota, &mut state, verb, cost, now);
        self.store(at, tag, quota, state);
        TimedVerdict {
            verdict,
            effective_time_us,
        }
    }

    /// Takes the state out of a slot and reserves the slot until [`store`](Slots::store).
    fn claim(&mut self, at: usize, tag: u64, quota: &Quota) -> State;

    /// Stores a state; a new one vacates the slot.
    fn store(&mut self, at: usize, tag: u64, quota: &Quota, state: State);

    /// Moves a counter to a slot of another bucket.
    fn move_to(&mut self, at: usize, target: &mut Self, to: usize);

    /// Until this time, a counter whose home this is may be in its alternate bucket.
    fn displaced_until(&self) -> u64;

    /// Records that such a counter lives until this time.
    fn set_displaced(&mut self, until: u64);

    #[inline]
    fn is_claimed(&self, at: usize) -> bool {
        self.expires_at(at) == CLAIMED
    }

    /// The slot of a counter.
    fn find(&self, tag: u64) -> Option<usize>;

    /// The slot of a counter, tried first at a guess.
    #[inline]
    fn find_from(&self, guess: Option<usize>, tag: u64) -> Option<usize> {
        match guess {
            Some(at) if self.tag(at) == tag => Some(at),
            Some(_) | None => self.find(tag),
        }
    }

    #[inline]
    fn vacant_slot(&self, now: u64) -> Option<usize> {
        (0..Self::LEN).find(|&at| self.expires_at(at) <= now)
    }
}
