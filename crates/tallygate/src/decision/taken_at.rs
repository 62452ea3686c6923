//! The time at which a decision took units, which an undo needs.

#[cfg(feature = "redis")]
use tallygate_core::FormerHold;

use super::{Decision, DecisionSource};
use crate::request::RequestEntry;

/// When units were taken, by the store's clock, in microseconds. `leased`: some of them had been
/// taken ahead by this process; in here, so that a [`Decision`] has 64 bytes.
#[derive(Clone, Debug)]
pub(crate) enum TakenAt {
    /// From all counters at the same time.
    All { time_us: u64, leased: bool },
    /// From each counter at its own time.
    Each { times: Box<Times>, leased: bool },
}

/// By a counter's hash.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    times: Box<[(u64, u64)]>,
    /// What owners held of concurrency limits before, if that is to be restored.
    #[cfg(feature = "redis")]
    former: Box<[(u64, FormerHold)]>,
}

impl TakenAt {
    /// The same time for all counters.
    #[inline]
    pub(crate) fn all(time_us: u64) -> Self {
        TakenAt::All {
            time_us,
            leased: false,
        }
    }

    /// Combines the times of all counters. `hash` is called only if they differ.
    pub(crate) fn new(times: &[u64], hash: impl Fn(usize) -> u64) -> Self {
        match times {
            [] => TakenAt::all(0),
            [first, rest @ ..] if rest.iter().all(|time| time == first) => TakenAt::all(*first),
            _ => {
                let each = times.iter().enumerate();
                let each = each.map(|(i, &time)| (hash(i), time)).collect();
                TakenAt::Each {
                    times: Box::new(Times {
                        times: each,
                        #[cfg(feature = "redis")]
                        former: Box::default(),
                    }),
                    leased: false,
                }
            }
        }
    }

    /// With what owners held of some counters before: an undo restores it.
    #[cfg(feature = "redis")]
    pub(crate) fn with_former(self, held: Vec<(u64, FormerHold)>) -> Self {
        if held.is_empty() {
            return self;
        }
        let leased = self.leased();
        let times = match self {
            // The time of all counters is the earliest.
            TakenAt::All { time_us, .. } => [(0, time_us)].into(),
            TakenAt::Each { times, .. } => times.times,
        };
        let former = held.into();
        let times = Box::new(Times { times, former });
        TakenAt::Each { times, leased }
    }

    pub(super) fn leased(&self) -> bool {
        match self {
            TakenAt::All { leased, .. } | TakenAt::Each { leased, .. } => *leased,
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn set_leased(&mut self) {
        match self {
            TakenAt::All { leased, .. } | TakenAt::Each { leased, .. } => *leased = true,
        }
    }

    /// The earliest time: an undo as of an earlier time never returns too much.
    fn earliest(&self) -> u64 {
        match self {
            TakenAt::All { time_us, .. } => *time_us,
            TakenAt::Each { times, .. } => {
                let times = times.times.iter().map(|&(_, time)| time);
                times.min().unwrap_or(0)
            }
        }
    }
}

impl Decision {
    /// Sets the time of the decision by the store's clock, in microseconds, for implementations of
    /// [`Store`](crate::Store) that can undo it.
    #[must_use]
    pub fn with_taken_us(mut self, taken_us: u64) -> Self {
        if let DecisionSource::Counters(taken_at) = &mut self.source {
            *taken_at = TakenAt::All {
                time_us: taken_us,
                leased: taken_at.leased(),
            };
        }
        self
    }

    /// The time at which units were taken, by the store's clock, in microseconds. `None` if there
    /// is nothing to undo: the decision is a refusal, took nothing, or is not based on the counters
    /// of the store.
    pub fn taken_us(&self) -> Option<u64> {
        match &self.source {
            // Some limits may have granted units although the decision is a refusal.
            DecisionSource::Counters(taken_at) if self.allowed() && self.max_granted() > 0 => {
                Some(taken_at.earliest())
            }
            DecisionSource::Counters(_)
            | DecisionSource::SharedBudget
            | DecisionSource::Open
            | DecisionSource::Closed { .. }
            | DecisionSource::Shed { .. }
            | DecisionSource::Local
            | DecisionSource::PartlyLocal { .. } => None,
        }
    }

    /// The time of the decision by the store's clock, in microseconds, whatever it took. `None` if
    /// it is unknown, differs by counter, or the decision is not based on the store's counters.
    #[cfg(feature = "tokio")]
    pub(crate) fn single_time_us(&self) -> Option<u64> {
        match &self.source {
            DecisionSource::Counters(TakenAt::All { time_us, .. }) if *time_us > 0 => {
                Some(*time_us)
            }
            DecisionSource::Counters(_)
            | DecisionSource::SharedBudget
            | DecisionSource::Open
            | DecisionSource::Closed { .. }
            | DecisionSource::Shed { .. }
            | DecisionSource::Local
            | DecisionSource::PartlyLocal { .. } => None,
        }
    }

    /// The time at which units were taken from the counter with that hash.
    pub(crate) fn counter_taken_us(&self, hash: impl FnOnce() -> u64) -> Option<u64> {
        let earliest = self.taken_us()?;
        let DecisionSource::Counters(TakenAt::Each { times, .. }) = &self.source else {
            return Some(earliest);
        };
        let hash = hash();
        let own = times.times.iter().find(|(counter, _)| *counter == hash);
        Some(own.map_or(earliest, |&(_, time)| time))
    }

    /// What the owner held before of the counter with that hash, if an undo restores it.
    #[cfg(feature = "redis")]
    pub(crate) fn former_hold(&self, hash: u64) -> Option<FormerHold> {
        let DecisionSource::Counters(TakenAt::Each { times, .. }) = &self.source else {
            return None;
        };
        let own = times.former.iter().find(|(counter, _)| *counter == hash);
        own.map(|(_, former)| *former)
    }

    /// The units taken from the counter of one entry.
    pub(crate) fn taken_units(&self, entry: &RequestEntry<'_>) -> u32 {
        // A take grants every limit the same, which may be less than the cost.
        entry.cost().min(self.max_granted())
    }

    fn max_granted(&self) -> u32 {
        let verdicts = self.inner.verdicts().iter();
        let granted = verdicts.map(tallygate_core::Verdict::granted);
        granted.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use tallygate_core::{Outcome, Verdict};

    use super::*;

    fn admitted(granted: u32) -> Verdict {
        Verdict {
            outcome: Outcome::Admitted {
                granted,
                delay_us: 0,
            },
            limit: 10,
            remaining: 5,
            reset_after_us: 7,
        }
    }

    #[test]
    fn a_decision_fits_in_a_cache_line() {
        assert!(size_of::<Decision>() <= 64);
    }

    #[test]
    fn equality_ignores_the_time_of_the_decision() {
        let earlier = Decision::from_verdict(admitted(3), 1);
        assert_eq!(earlier, Decision::from_verdict(admitted(3), 2));
        assert_ne!(earlier, Decision::from_verdict(admitted(4), 1));
        assert_ne!(earlier, earlier.clone().into_local());
    }

    #[test]
    fn each_counter_has_its_own_time_and_an_unknown_one_the_earliest() {
        let inner = || tallygate_core::Decision::from_verdicts(vec![admitted(3), admitted(3)]);
        let apart = Decision::new(inner(), TakenAt::new(&[9, 8], |i| 100 + i as u64));
        let taken_us = |hash| apart.counter_taken_us(|| hash);
        assert_eq!(
            [taken_us(100), taken_us(101), taken_us(7)],
            [Some(9), Some(8), Some(8)]
        );
        assert_eq!(apart.taken_us(), Some(8));
        let together = Decision::new(inner(), TakenAt::new(&[9, 9], |_| unreachable!()));
        assert_eq!(together.counter_taken_us(|| unreachable!()), Some(9));
    }

    #[test]
    fn a_decision_that_took_nothing_cannot_be_undone() {
        assert_eq!(Decision::from_verdict(admitted(0), 5).taken_us(), None);
        let mut refused = admitted(0);
        refused.outcome = Outcome::Refused {
            retry: tallygate_core::Retry::Never,
        };
        let mixed = Decision::from(vec![admitted(1), refused]).with_taken_us(5);
        assert_eq!(mixed.taken_us(), None);
        assert_eq!(
            Decision::from_verdict(admitted(1), 5)
                .into_local()
                .taken_us(),
            None
        );
        let inner = tallygate_core::Decision::from_verdict(admitted(1));
        assert_eq!(Decision::from_shared_budget(inner).taken_us(), None);
        let timed = Decision::from(vec![admitted(1)]).with_taken_us(5);
        assert_eq!(timed.taken_us(), Some(5));
    }
}
