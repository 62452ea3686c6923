//! Taking back what a request took, as of the moment it took it. Knows no algorithm by name.

use super::{Change, Turn};
use crate::MAX_TIME_US;
use crate::algorithm::{AnyLevel, State};
use crate::decision::Verdict;
use crate::quota::Quota;
use crate::verb::Verb;

/// Takes back `cost` units that a check, take or charge took at `taken_us`, as far as they still
/// weigh at `now_us`: never more, so that an undo that comes late admits nobody above the limit.
/// At once, it is as if they had never been taken.
///
/// `taken_us` is the [moment](State::effective_time_us) of the decision, and the quota the one it was made
/// under. A refund knows no such moment: it gives back to whoever is there now. What was reset or
/// refunded in between is taken back once more, and so is what is undone twice.
///
/// ```
/// use tallygate_core::{evaluate, undo, Quota, State, Verb};
///
/// let quota: Quota = "fixed-window 10/min".parse()?;
/// let mut state = State::New;
/// let minute = 60_000_000;
/// let taken_us = state.effective_time_us(&quota, 28 * minute);
/// evaluate(&quota, &mut state, Verb::Check, 4, taken_us);
/// assert_eq!(undo(&quota, &mut state, taken_us, 4, taken_us + 1).remaining, 10);
///
/// evaluate(&quota, &mut state, Verb::Check, 4, taken_us);
/// evaluate(&quota, &mut state, Verb::Check, 9, 29 * minute);
/// assert_eq!(undo(&quota, &mut state, taken_us, 4, 29 * minute).remaining, 1); // long forgotten
/// # Ok::<(), tallygate_core::QuotaError>(())
/// ```
pub fn undo(quota: &Quota, state: &mut State, taken_us: u64, cost: u32, now_us: u64) -> Verdict {
    let opened = state.open(quota, now_us.min(MAX_TIME_US));
    let mut turn = Turn::new(quota, opened, Verb::Refund, cost);
    let (verdict, change) = turn.undo(taken_us);
    let next = turn.level.into_state();
    change.write(state, next);
    verdict
}

impl Turn<'_, AnyLevel<'_>> {
    fn undo(&mut self, taken_us: u64) -> (Verdict, Change<()>) {
        if self.cost == 0 {
            return (self.spared(), Change::Nothing);
        }
        let taken = taken_us.min(MAX_TIME_US);
        self.level.undo(self.quota, self.cost, taken, self.now);
        self.given_back()
    }
}
