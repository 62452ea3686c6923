//! What a table is made of: a few counters under one lock. Knows nothing of where they belong.

use std::hint::select_unpredictable;

use tallygate_core::{Quota, State, evaluate};

use super::{Answer, Ask, Counter};

/// Later than any counter may be forgotten: the slot is claimed.
pub(super) const CLAIMED: u64 = (1 << 54) - 1;

/// A few places for counters; all vacant at first.
pub(super) trait Bucket: Default + Send + Sync {
    /// What it is under lock.
    type Slots<'a>: Slots
    where
        Self: 'a;

    /// Waits for the lock.
    fn lock(&self) -> Self::Slots<'_>;

    /// Takes the lock if nobody has it.
    fn try_lock(&self) -> Option<Self::Slots<'_>>;

    /// Starts to bring its memory near.
    fn touch(&self);

    /// The same for what [`guess`](Bucket::guess) looks at first.
    fn touch_tags(&self) {
        self.touch();
    }

    /// Where a counter seems to be: a guess without the lock, for the sake of memory to come, which
    /// is asked for.
    fn guess(&self, tag: u64) -> Option<usize>;

    /// Decides at once if the counter is here and that is simple, as it nearly always is; gives what
    /// was locked if not, with nothing changed.
    fn decide_at_once(
        &self,
        guess: Option<usize>,
        counter: Counter<'_>,
        ask: Ask,
    ) -> Result<Answer, Self::Slots<'_>>;
}

/// Which of a few places passes a test that one of them passes at most.
#[inline]
pub(super) fn find<const LEN: usize>(passes: impl Fn(usize) -> bool) -> Option<usize> {
    // All are looked at: a branch on where it is would be guessed wrong half the time.
    let mut found = LEN;
    for at in 0..LEN {
        found = select_unpredictable(passes(at), at, found);
    }
    (found < LEN).then_some(found)
}

/// Places for counters under lock, by number.
pub(super) trait Slots: Sized {
    /// How many there are.
    const LEN: usize;

    /// Whose counter it is; 0 when vacant.
    fn tag(&self, at: usize) -> u64;

    /// From this time on the slot may be used for another.
    fn forget_at(&self, at: usize) -> u64;

    /// Decides on the counter that is there.
    fn decide(&mut self, at: usize, tag: u64, quota: &Quota, ask: Ask) -> Answer;

    /// Decides on a counter that is not there yet, from a state it starts with.
    fn decide_new(
        &mut self,
        at: usize,
        tag: u64,
        quota: &Quota,
        ask: Ask,
        mut state: State,
    ) -> Answer {
        let effective_time_us = state.effective_time_us(quota, ask.now);
        let verdict = evaluate(quota, &mut state, ask.verb, ask.cost, ask.now);
        self.store(at, tag, quota, state);
        Answer {
            verdict,
            effective_time_us,
        }
    }

    /// Takes the state out and keeps the slot from being used for another until one is stored.
    fn claim(&mut self, at: usize, tag: u64, quota: &Quota) -> State;

    /// Puts a state in; a new one vacates the slot.
    fn store(&mut self, at: usize, tag: u64, quota: &Quota, state: State);

    /// Moves a counter over.
    fn move_to(&mut self, at: usize, there: &mut Self, to: usize);

    /// Until then, a counter whose home this is may live in its other bucket.
    fn strays_until(&self) -> u64;

    /// Notes that such a counter lives until then.
    fn stray(&mut self, until: u64);

    #[inline]
    fn is_claimed(&self, at: usize) -> bool {
        self.forget_at(at) == CLAIMED
    }

    /// Where a counter is.
    fn find(&self, tag: u64) -> Option<usize>;

    #[inline]
    fn vacancy(&self, now: u64) -> Option<usize> {
        (0..Self::LEN).find(|&at| self.forget_at(at) <= now)
    }
}
