//! The readable state of a counter, for display.

use alloc::vec::Vec;

use crate::MAX_TIME_US;
use crate::algorithm::State;
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
        let advanced = state.advance(quota, now_us.min(MAX_TIME_US));
        advanced.level.inspect(quota)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::{Verb, evaluate};

    const SECOND: u64 = 1_000_000;

    fn inspect_after(text: &str, taken: &[(u64, u32)], at: u64) -> CounterState {
        let quota: Quota = text.parse().unwrap();
        let mut state = State::New;
        for &(at, cost) in taken {
            evaluate(&quota, &mut state, Verb::Charge, cost, at);
        }
        let before = state.clone();
        let shown = state.inspect(&quota, at);
        assert_eq!(state, before, "inspecting changes nothing");
        shown
    }

    #[test]
    fn a_window_shows_its_bounds_and_its_count_until_it_ends() {
        let text = "fixed-window 10/10s";
        let taken = [(12 * SECOND, 3)];
        let (start_us, end_us) = (10 * SECOND, 20 * SECOND);
        let window = |start_us, end_us, used| CounterState::Window {
            start_us,
            end_us,
            used,
        };
        assert_eq!(
            inspect_after(text, &taken, end_us - 1),
            window(start_us, end_us, 3)
        );
        let next = window(end_us, end_us + 10 * SECOND, 0);
        assert_eq!(inspect_after(text, &taken, end_us), next);
        assert_eq!(
            inspect_after(text, &[], 13 * SECOND),
            window(start_us, end_us, 0)
        );
    }

    #[test]
    fn the_previous_window_is_shown_unweighted() {
        let shown = inspect_after("10/10s", &[(SECOND, 4), (11 * SECOND, 2)], 19 * SECOND);
        let expected = CounterState::Windows {
            start_us: 10 * SECOND,
            end_us: 20 * SECOND,
            previous: 4,
            current: 2,
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_log_shows_only_entries_that_still_count() {
        let text = "sliding-window-log 10/10s";
        let taken = [(SECOND, 1), (2 * SECOND, 3), (2 * SECOND, 1)];
        let both = vec![(SECOND, 1), (2 * SECOND, 4)];
        assert_eq!(
            inspect_after(text, &taken, 3 * SECOND),
            CounterState::Log { entries: both }
        );
        let later = vec![(2 * SECOND, 4)];
        let at = 11 * SECOND;
        assert_eq!(
            inspect_after(text, &taken, at),
            CounterState::Log { entries: later }
        );
        let entries = Vec::new();
        assert_eq!(
            inspect_after(text, &taken, 12 * SECOND),
            CounterState::Log { entries }
        );
        let entries = Vec::new();
        assert_eq!(inspect_after(text, &[], 0), CounterState::Log { entries });
    }

    #[test]
    fn a_level_shows_thousandths_and_debt() {
        for text in [
            "token-bucket 3/s burst 10",
            "leaky-bucket 3/s burst 10",
            "leaky-bucket 3/s queue 10",
        ] {
            let level = |used_milli| CounterState::Level { used_milli };
            assert_eq!(inspect_after(text, &[], 0), level(0));
            assert_eq!(inspect_after(text, &[(0, 2)], 0), level(2_000));
            // A third of a second is a unit, a microsecond less is not quite.
            assert_eq!(inspect_after(text, &[(0, 2)], 333_333), level(1_001));
            assert_eq!(inspect_after(text, &[(0, 2)], 333_334), level(1_000));
            assert_eq!(inspect_after(text, &[(0, 25)], SECOND), level(22_000));
        }
    }
}
