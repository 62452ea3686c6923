//! The readable state of a counter, for display.

use alloc::vec::Vec;

use crate::MAX_TIME_US;
use crate::algorithm::State;
use crate::caller::{Caller, Weight};
use crate::quota::Quota;

/// The readable state of a counter at a time, for display and debugging.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CounterState {
    /// One window, aligned to the Unix epoch.
    Window {
        /// When it started.
        start_us: u64,
        /// When it ends, exclusive.
        end_us: u64,
        /// The units taken in it.
        used: u64,
    },
    /// Two windows, the previous one weighted by its overlap.
    Windows {
        /// When the current one started.
        start_us: u64,
        /// When it ends.
        end_us: u64,
        /// The units taken in the previous one, unweighted.
        previous: u64,
        /// The units taken in the current one.
        current: u64,
    },
    /// Every instant of the last period, oldest first.
    Log {
        /// The time and the units taken at it.
        entries: Vec<(u64, u64)>,
    },
    /// A level that drains.
    Level {
        /// Thousandths of units that have not drained yet, rounded up: missing from a token
        /// bucket, waiting in a queue.
        used_milli: u64,
    },
    /// A bucket and its members.
    Shared {
        /// As that of [`CounterState::Level`], of the whole bucket.
        used_milli: u64,
        /// The members of this epoch and of the one before, in no order.
        members: Vec<MemberState>,
    },
    /// Units in flight.
    Holds {
        /// The live holds in the order of their ends.
        holds: Vec<HoldState>,
    },
}

/// A member of a shared bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// The [member](crate::Caller::member).
    pub id: u64,
    /// Its weight.
    pub weight: Weight,
    /// Thousandths of units of its share that have not drained yet, rounded up.
    pub used_milli: u64,
    /// Thousandths of units that its share has; with all of them used, it borrows.
    pub most_milli: u64,
}

impl MemberState {
    /// Whether it has less than a unit of its own left: what it takes now is what others leave.
    #[must_use]
    pub fn borrows(&self) -> bool {
        self.most_milli.saturating_sub(self.used_milli) < 1_000
    }
}

/// What one owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldState {
    /// The [owner](crate::Caller::owner).
    pub id: u64,
    /// The units.
    pub units: u32,
    /// When the hold ends.
    pub until_us: u64,
}

impl State {
    /// Returns the readable state at a time, under the quota the state belongs to.
    ///
    /// ```
    /// use tallygate_core::{Quota, State, Verb, CounterState, evaluate};
    ///
    /// let quota: Quota = "token-bucket 10/s burst 50".parse()?;
    /// let mut state = State::New;
    /// evaluate(&quota, &mut state, Verb::Check, 5, 0);
    /// assert_eq!(state.inspect(&quota, 250_000), CounterState::Level { used_milli: 2_500 });
    /// # Ok::<(), tallygate_core::QuotaError>(())
    /// ```
    pub fn inspect(&self, quota: &Quota, now_us: u64) -> CounterState {
        // A copy: advancing a new log makes it an empty one.
        let mut state = self.clone();
        let advanced = state.advance(quota, &Caller::default(), now_us.min(MAX_TIME_US));
        advanced.level.inspect(quota)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::{Verb, evaluate};

    const SECOND: u64 = 1_000_000;

    #[track_caller]
    fn assert_shown(text: &str, taken: &[(u64, u32)], at: u64, expected: CounterState) {
        let quota: Quota = text.parse().unwrap();
        let mut state = State::New;
        for &(at, cost) in taken {
            evaluate(&quota, &mut state, Verb::Charge, cost, at);
        }
        let before = state.clone();
        assert_eq!(state.inspect(&quota, at), expected);
        assert_eq!(state, before, "inspecting changes nothing");
    }

    #[test]
    fn a_log_shows_only_entries_that_still_count() {
        let taken = [(SECOND, 1), (2 * SECOND, 3), (2 * SECOND, 1)];
        let shows = |taken: &[_], at, entries| {
            let expected = CounterState::Log { entries };
            assert_shown("sliding-window-log 10/10s", taken, at * SECOND, expected);
        };
        shows(&taken, 3, vec![(SECOND, 1), (2 * SECOND, 4)]);
        shows(&taken, 11, vec![(2 * SECOND, 4)]);
        shows(&taken, 12, vec![]);
        shows(&[], 0, vec![]);
    }

    #[test]
    fn a_member_borrows_with_less_than_a_unit_of_its_share_left() {
        let member = |used_milli| MemberState {
            id: 1,
            weight: Weight::ONE,
            used_milli,
            most_milli: 4_000,
        };
        let borrows = [0, 3_000, 3_001, 4_000, 4_001].map(|used| member(used).borrows());
        assert_eq!(borrows, [false, false, true, true, true]);
    }

    #[test]
    fn a_level_shows_thousandths_and_debt() {
        for text in [
            "token-bucket 3/s burst 10",
            "leaky-bucket 3/s burst 10",
            "leaky-bucket 3/s queue 10",
        ] {
            let shows = |taken: &[_], at, used_milli| {
                assert_shown(text, taken, at, CounterState::Level { used_milli });
            };
            shows(&[], 0, 0);
            shows(&[(0, 2)], 0, 2_000);
            // A third of a second is a unit, a microsecond less is not quite.
            shows(&[(0, 2)], 333_333, 1_001);
            shows(&[(0, 2)], 333_334, 1_000);
            shows(&[(0, 25)], SECOND, 22_000);
        }
    }
}
