//! An undone request against one that was never made.

use fastrand::Rng;
use tallygate_core::{Quota, State, Verb, Verdict, evaluate, undo};

use crate::long_traces::{AWKWARD, any_quota};
use tallygate_testkit::{any, with_each_seed};

const BEGIN: u64 = 1_700_000_000_000_000;

/// A counter that saw requests which were undone later, and one that never saw them.
struct Story {
    quota: Quota,
    with: State,
    without: State,
    /// What is still to be undone: when it was taken, and how much.
    open: Vec<(u64, u32)>,
    /// The latest time so far.
    latest: u64,
    /// The clock does not step back behind this: what was as new then is forgotten for good.
    floor: u64,
}

impl Story {
    fn new(rng: &mut Rng, quota: Quota) -> Self {
        Story {
            quota,
            with: State::New,
            without: State::New,
            open: Vec::new(),
            latest: BEGIN + rng.u64(..=quota.span_us()),
            floor: 0,
        }
    }

    fn cost(&self, rng: &mut Rng) -> u32 {
        let most = self.quota.capacity();
        any(rng, &[1, 1, 2, most / 2, most, rng.clone().u32(1..=most)])
    }

    /// A little later, mostly.
    fn later(&mut self, rng: &mut Rng) -> u64 {
        let (period, span) = (self.quota.period_us(), self.quota.span_us());
        self.latest += match rng.u8(..20) {
            0..5 => 0,
            5..7 => 1,
            7..11 => rng.u64(..=span / 4),
            11..13 => rng.u64(..=span / u64::from(self.quota.capacity()) + 1),
            13..15 => period - self.latest % period,
            15..18 => rng.u64(..=span),
            _ => span + rng.u64(..=span),
        };
        self.latest
    }

    /// Takes from the one what it will give back.
    fn take(&mut self, verb: Verb, cost: u32, t: u64) {
        let moment = self.with.effective_time_us(&self.quota, t);
        let granted = evaluate(&self.quota, &mut self.with, verb, cost, t).granted();
        if granted > 0 {
            self.open.push((moment, granted));
        }
    }

    /// Others take, in both the same.
    fn others(&mut self, verb: Verb, cost: u32, t: u64) {
        let granted = evaluate(&self.quota, &mut self.with, verb, cost, t).granted();
        evaluate(&self.quota, &mut self.without, Verb::Charge, granted, t);
    }

    fn undo_all(&mut self, t: u64) {
        for (taken_us, cost) in std::mem::take(&mut self.open) {
            undo(&self.quota, &mut self.with, taken_us, cost, t);
        }
        self.floor = self.latest;
    }

    /// What each would answer, changing nothing.
    fn peek(&self, cost: u32, t: u64) -> [Verdict; 2] {
        [&self.with, &self.without]
            .map(|state| evaluate(&self.quota, &mut state.clone(), Verb::Peek, cost, t))
    }
}

/// Quotas whose debts stay far from the ends of time.
fn quotas(rng: &mut Rng) -> Vec<Quota> {
    let awkward = AWKWARD.map(|text| text.parse().unwrap());
    let any = std::iter::repeat_with(|| any_quota(rng)).take(300);
    let near = |quota: &Quota| quota.span_us().max(quota.period_us()) < 1 << 42;
    awkward.into_iter().chain(any).filter(near).collect()
}

const TAKING: [Verb; 4] = [Verb::Check, Verb::Check, Verb::Take, Verb::Charge];

/// Requests, those of others between them, and an undo at some time.
fn tell(rng: &mut Rng, story: &mut Story, mut time: impl FnMut(&mut Rng, &mut Story) -> u64) {
    for _ in 0..rng.u8(1..12) {
        let (t, cost, verb) = (time(rng, story), story.cost(rng), any(rng, &TAKING));
        match rng.u8(..6) {
            0..3 => story.others(verb, cost, t),
            3..5 => story.take(verb, cost, t),
            // Late for some, and for the rest to come.
            _ if rng.bool() => story.undo_all(t),
            _ => {
                let cost = cost.min(2);
                story.take(Verb::Take, cost, t);
                story.undo_all(t);
            }
        }
    }
    let t = time(rng, story);
    story.undo_all(t);
}

#[track_caller]
fn admits_no_more(rng: &mut Rng, story: &mut Story) {
    for _ in 0..6 {
        let (cost, t) = (story.cost(rng), story.later(rng));
        let [with, without] = story.peek(cost, t);
        let what = || {
            format!(
                "{} at {t}: {:?}\n{:?}",
                story.quota, story.with, story.without
            )
        };
        assert!(with.remaining <= without.remaining, "{}", what());
        assert!(!with.allowed() || without.allowed(), "{}", what());
        if let (Some(with), Some(without)) = (with.retry_after_us(), without.retry_after_us()) {
            assert!(with >= without, "{}", what());
        }
    }
}

#[test]
fn an_undone_request_never_admits_more_than_none() {
    with_each_seed(|rng| {
        for quota in quotas(rng) {
            for _ in 0..30 {
                let mut story = Story::new(rng, quota);
                tell(rng, &mut story, |rng, story| story.later(rng));
                admits_no_more(rng, &mut story);
            }
        }
    });
}

#[test]
fn an_undone_request_admits_no_more_when_the_clock_steps_back() {
    with_each_seed(|rng| {
        for quota in quotas(rng) {
            for _ in 0..30 {
                let mut story = Story::new(rng, quota);
                // Within the span a counter keeps its own time.
                tell(rng, &mut story, |rng, story| {
                    let t = story.later(rng);
                    let span = story.quota.span_us();
                    let back = any(rng, &[0, 0, 1, rng.clone().u64(..=span)]);
                    (t - back).max(story.floor)
                });
                admits_no_more(rng, &mut story);
            }
        }
    });
}

#[test]
fn an_undone_request_admits_no_more_when_the_clock_steps_back_beyond_a_span() {
    with_each_seed(|rng| {
        for quota in quotas(rng) {
            for _ in 0..10 {
                let mut story = Story::new(rng, quota);
                for _ in 0..3 {
                    let (cost, t) = (story.cost(rng), story.later(rng));
                    story.take(Verb::Take, cost, t);
                }
                story.latest -= 50 * (quota.span_us() + quota.period_us());
                for _ in 0..rng.u8(..3) {
                    let (cost, t) = (story.cost(rng), story.later(rng));
                    story.others(Verb::Take, cost, t);
                }
                let t = story.later(rng);
                story.undo_all(t);
                admits_no_more(rng, &mut story);
            }
        }
    });
}

/// Windows and logs know what they counted when; of a bucket that is true while nothing drains.
#[test]
fn an_undone_request_leaves_windows_and_logs_as_if_never_made() {
    with_each_seed(|rng| {
        let drains = |quota: &Quota| quota.algorithm().capacity_keyword().is_some();
        for quota in quotas(rng).into_iter().filter(|quota| !drains(quota)) {
            for _ in 0..30 {
                let mut story = Story::new(rng, quota);
                tell(rng, &mut story, |rng, story| story.later(rng));
                for _ in 0..6 {
                    let (cost, t) = (story.cost(rng), story.later(rng));
                    let [with, without] = story.peek(cost, t);
                    assert_eq!(with, without, "{quota} at {t}");
                }
            }
        }
    });
}

#[test]
fn a_request_undone_immediately_is_as_if_never_made() {
    with_each_seed(|rng| {
        for quota in quotas(rng) {
            for _ in 0..30 {
                let mut story = Story::new(rng, quota);
                for _ in 0..rng.u8(..4) {
                    let (cost, t) = (story.cost(rng), story.later(rng));
                    story.others(any(rng, &TAKING), cost, t);
                }
                let t = story.later(rng);
                for _ in 0..rng.u8(1..4) {
                    let cost = story.cost(rng);
                    story.take(any(rng, &TAKING), cost, t);
                }
                story.undo_all(t);
                for _ in 0..6 {
                    let (cost, t) = (story.cost(rng), story.later(rng));
                    let verb = any(rng, &Verb::ALL);
                    let Story { with, without, .. } = &mut story;
                    let with = evaluate(&quota, with, verb, cost, t);
                    let without = evaluate(&quota, without, verb, cost, t);
                    assert_eq!(with, without, "{quota} at {t}");
                }
            }
        }
    });
}

#[test]
fn a_late_undo_of_a_bucket_returns_what_has_not_drained() {
    for text in [
        "token-bucket 10/s burst 20",
        "leaky-bucket 10/s burst 20",
        "leaky-bucket 10/s queue 20",
    ] {
        let quota: Quota = text.parse().unwrap();
        let mut state = State::New;
        evaluate(&quota, &mut state, Verb::Check, 10, BEGIN);
        let half_later = BEGIN + 500_000;
        evaluate(&quota, &mut state, Verb::Check, 10, half_later);
        // Of the first ten five have drained, whether or not those of others were before them.
        let undone = undo(&quota, &mut state, BEGIN, 10, half_later);
        assert_eq!(undone.remaining, 10, "{quota}");
        let undone = undo(&quota, &mut state, BEGIN, 10, BEGIN + 2_000_000);
        assert_eq!(undone.remaining, 20, "{quota}");
        assert_eq!(state, State::New, "{quota}");
    }
}

#[test]
fn undoing_nothing_changes_nothing() {
    with_each_seed(|rng| {
        for quota in quotas(rng) {
            let mut story = Story::new(rng, quota);
            let (cost, t) = (story.cost(rng), story.later(rng));
            story.others(Verb::Check, cost, t);
            let before = story.with.clone();
            let later = story.later(rng);
            let undone = undo(&quota, &mut story.with, t, 0, later);
            assert_eq!(story.with, before, "{quota}");
            assert_eq!(
                undone,
                evaluate(&quota, &mut story.with, Verb::Peek, 0, later)
            );
            let mut new = State::New;
            undo(&quota, &mut new, t, cost, later);
            assert_eq!(new, State::New, "{quota}");
        }
    });
}

/// Units beyond what is there, moments beyond the end of time: a counter goes down to new.
#[test]
fn extreme_undos_are_harmless() {
    for text in AWKWARD {
        let quota: Quota = text.parse().unwrap();
        for t in [0, 1, BEGIN, u64::MAX] {
            for taken_us in [0, 1, t, u64::MAX] {
                let mut state = State::New;
                evaluate(&quota, &mut state, Verb::Charge, u32::MAX, t);
                evaluate(&quota, &mut state, Verb::Charge, u32::MAX, t);
                let undone = undo(&quota, &mut state, taken_us, u32::MAX, t);
                assert!(undone.allowed() && undone.remaining <= quota.capacity());
                undo(&quota, &mut state, taken_us, u32::MAX, t);
                if taken_us.min(1 << 52) == t.min(1 << 52) {
                    assert_eq!(state, State::New, "{quota} at {t}");
                }
            }
        }
    }
}
