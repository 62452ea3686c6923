//! When a decision took what it took: all that is needed to undo it. Knows no store.

use super::{Decision, How};
use crate::request::Asked;

/// When units were taken, by the store's clock.
#[derive(Clone, Debug)]
pub(crate) enum Taken {
    /// All of them.
    At(u64),
    /// Each counter's at a moment of its own.
    Apart(Box<Moments>),
}

/// Decisions are equal that say the same, whenever they were made.
impl PartialEq for Taken {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Taken {}

/// A mark that the store knows each counter by, and its moment.
#[derive(Clone, Debug)]
pub(crate) struct Moments(Vec<(u64, u64)>);

impl Taken {
    /// From each counter's moment; their marks are asked for only if those differ.
    pub(crate) fn of(moments: &[u64], mark: impl Fn(usize) -> u64) -> Self {
        match moments {
            [] => Taken::At(0),
            [one, rest @ ..] if rest.iter().all(|moment| moment == one) => Taken::At(*one),
            _ => {
                let each = moments.iter().enumerate();
                let each = each.map(|(i, &moment)| (mark(i), moment)).collect();
                Taken::Apart(Box::new(Moments(each)))
            }
        }
    }

    /// The first of the moments: too early a one never gives back too much.
    fn earliest(&self) -> u64 {
        match self {
            Taken::At(moment) => *moment,
            Taken::Apart(moments) => {
                let moments = moments.0.iter().map(|&(_, moment)| moment);
                moments.min().unwrap_or(0)
            }
        }
    }
}

impl Decision {
    /// The same, made at that time by the store's clock, in microseconds: for stores that can
    /// [undo](crate::Store::undo) what it took.
    #[must_use]
    pub fn taken_at_us(mut self, taken_us: u64) -> Self {
        if let How::Own(taken) = &mut self.how {
            *taken = Taken::At(taken_us);
        }
        self
    }

    /// When it took what it took, by the store's clock, in microseconds: for stores. None if there
    /// is nothing to undo, as it was refused, took nothing, or was not made on counters of the
    /// store alone.
    pub fn taken_us(&self) -> Option<u64> {
        match &self.how {
            // A refusal may be made of verdicts that were granted something.
            How::Own(taken) if self.allowed() && self.most_granted() > 0 => Some(taken.earliest()),
            How::Own(_)
            | How::Shared
            | How::Open
            | How::Closed { .. }
            | How::Local
            | How::Partly { .. } => None,
        }
    }

    /// When it took from the counter of that mark.
    pub(crate) fn taken_from_us(&self, mark: impl FnOnce() -> u64) -> Option<u64> {
        let earliest = self.taken_us()?;
        let How::Own(Taken::Apart(moments)) = &self.how else {
            return Some(earliest);
        };
        let mark = mark();
        let mut moments = moments.0.iter();
        let own = moments.find(|(of, _)| *of == mark);
        Some(own.map_or(earliest, |&(_, moment)| moment))
    }

    /// How many units it took of a limit that it was made for.
    pub(crate) fn took(&self, asked: &Asked<'_>) -> u32 {
        // A take grants every limit the same, which may be less than was asked.
        asked.units().min(self.most_granted())
    }

    fn most_granted(&self) -> u32 {
        let granted = self
            .inner
            .verdicts()
            .iter()
            .map(tallygate_core::Verdict::granted);
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
    fn a_decision_is_no_more_than_a_cache_line() {
        assert!(size_of::<Decision>() <= 64);
    }

    #[test]
    fn decisions_that_say_the_same_are_equal_whenever_they_were_made() {
        let earlier = Decision::one(admitted(3), 1);
        assert_eq!(earlier, Decision::one(admitted(3), 2));
        assert_ne!(earlier, Decision::one(admitted(4), 1));
        assert_ne!(earlier, earlier.clone().counted_here());
    }

    #[test]
    fn each_counter_has_its_own_moment_and_a_stranger_the_earliest() {
        let inner = || tallygate_core::Decision::from_verdicts(vec![admitted(3), admitted(3)]);
        let apart = Decision::new(inner(), Taken::of(&[9, 8], |i| 100 + i as u64));
        let of = |mark| apart.taken_from_us(|| mark);
        assert_eq!([of(100), of(101), of(7)], [Some(9), Some(8), Some(8)]);
        assert_eq!(apart.taken_us(), Some(8));
        let at_once = Decision::new(inner(), Taken::of(&[9, 9], |_| unreachable!()));
        assert_eq!(at_once.taken_from_us(|| unreachable!()), Some(9));
    }

    #[test]
    fn there_is_nothing_to_undo_where_nothing_was_taken() {
        assert_eq!(Decision::one(admitted(0), 5).taken_us(), None);
        let mut refused = admitted(0);
        refused.outcome = Outcome::Refused {
            retry: tallygate_core::Retry::Never,
        };
        let mixed = Decision::from(vec![admitted(1), refused]).taken_at_us(5);
        assert_eq!(mixed.taken_us(), None);
        assert_eq!(
            Decision::one(admitted(1), 5).counted_here().taken_us(),
            None
        );
        let inner = tallygate_core::Decision::from_verdict(admitted(1));
        assert_eq!(Decision::on_shared(inner).taken_us(), None);
        let told = Decision::from(vec![admitted(1)]).taken_at_us(5);
        assert_eq!(told.taken_us(), Some(5));
    }
}
