//! A request that was undone, compared with one that was never made.

use fastrand::Rng;
use tallygate_core::{Quota, State, Verb, Verdict, evaluate, undo};

use crate::long_traces::{UNUSUAL_QUOTAS, any_quota};
use tallygate_testkit::{any, with_each_seed};

const START: u64 = 1_700_000_000_000_000;

/// A counter with requests that are undone, and one without them.
struct UndoScenario {
    quota: Quota,
    with: State,
    without: State,
    /// The times and units to undo.
    pending: Vec<(u64, u32)>,
    /// The latest time so far.
    latest: u64,
    /// The clock does not step back before this time: counters that were as new then are deleted.
    floor: u64,
}

impl UndoScenario {
    fn new(rng: &mut Rng, quota: Quota) -> Self {
        UndoScenario {
            quota,
            with: State::New,
            without: State::New,
            pending: Vec::new(),
            latest: START + rng.u64(..=quota.span_us()),
            floor: 0,
        }
    }

    fn cost(&self, rng: &mut Rng) -> u32 {
        let max = self.quota.capacity();
        any(rng, &[1, 1, 2, max / 2, max, rng.clone().u32(1..=max)])
    }

    /// A later time, usually by a little.
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

    /// Takes units that are undone later.
    fn take(&mut self, verb: Verb, cost: u32, t: u64) {
        let taken_us = self.with.effective_time_us(&self.quota, t);
        let granted = evaluate(&self.quota, &mut self.with, verb, cost, t).granted();
        if granted > 0 {
            self.pending.push((taken_us, granted));
        }
    }

    /// Takes the same units from both.
    fn take_from_both(&mut self, verb: Verb, cost: u32, t: u64) {
        let granted = evaluate(&self.quota, &mut self.with, verb, cost, t).granted();
        evaluate(&self.quota, &mut self.without, Verb::Charge, granted, t);
    }

    fn undo_all(&mut self, t: u64) {
        for (taken_us, cost) in std::mem::take(&mut self.pending) {
            undo(&self.quota, &mut self.with, taken_us, cost, t);
        }
        self.floor = self.latest;
    }

    /// The verdicts of both, without changing them.
    fn peek(&self, cost: u32, t: u64) -> [Verdict; 2] {
        [&self.with, &self.without]
            .map(|state| evaluate(&self.quota, &mut state.clone(), Verb::Peek, cost, t))
    }
}

/// Quotas whose debts end long before the maximum time.
fn quotas(rng: &mut Rng) -> Vec<Quota> {
    let unusual = UNUSUAL_QUOTAS.map(|text| text.parse().unwrap());
    let any = std::iter::repeat_with(|| any_quota(rng)).take(300);
    let is_short = |quota: &Quota| quota.span_us().max(quota.period_us()) < 1 << 42;
    unusual.into_iter().chain(any).filter(is_short).collect()
}

const TAKING_VERBS: [Verb; 4] = [Verb::Check, Verb::Check, Verb::Take, Verb::Charge];

/// Runs requests and undoes some of them.
fn run(
    rng: &mut Rng,
    scenario: &mut UndoScenario,
    mut time: impl FnMut(&mut Rng, &mut UndoScenario) -> u64,
) {
    for _ in 0..rng.u8(1..12) {
        let (t, cost, verb) = (
            time(rng, scenario),
            scenario.cost(rng),
            any(rng, &TAKING_VERBS),
        );
        match rng.u8(..6) {
            0..3 => scenario.take_from_both(verb, cost, t),
            3..5 => scenario.take(verb, cost, t),
            _ if rng.bool() => scenario.undo_all(t),
            _ => {
                let cost = cost.min(2);
                scenario.take(Verb::Take, cost, t);
                scenario.undo_all(t);
            }
        }
    }
    let t = time(rng, scenario);
    scenario.undo_all(t);
}

#[track_caller]
fn assert_admits_no_more(rng: &mut Rng, scenario: &mut UndoScenario) {
    for _ in 0..6 {
        let (cost, t) = (scenario.cost(rng), scenario.later(rng));
        let [with, without] = scenario.peek(cost, t);
        let what = || {
            format!(
                "{} at {t}: {:?}\n{:?}",
                scenario.quota, scenario.with, scenario.without
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
fn an_undone_request_never_admits_more_than_no_request() {
    with_each_seed(|rng| {
        for quota in quotas(rng) {
            for _ in 0..30 {
                let mut scenario = UndoScenario::new(rng, quota);
                run(rng, &mut scenario, |rng, scenario| scenario.later(rng));
                assert_admits_no_more(rng, &mut scenario);
            }
        }
    });
}

#[test]
fn an_undone_request_admits_no_more_when_the_clock_steps_back() {
    with_each_seed(|rng| {
        for quota in quotas(rng) {
            for _ in 0..30 {
                let mut scenario = UndoScenario::new(rng, quota);
                // By at most a span: the counter keeps its time.
                run(rng, &mut scenario, |rng, scenario| {
                    let t = scenario.later(rng);
                    let span = scenario.quota.span_us();
                    let back = any(rng, &[0, 0, 1, rng.clone().u64(..=span)]);
                    (t - back).max(scenario.floor)
                });
                assert_admits_no_more(rng, &mut scenario);
            }
        }
    });
}

#[test]
fn an_undone_request_admits_no_more_when_the_clock_steps_back_beyond_a_span() {
    with_each_seed(|rng| {
        for quota in quotas(rng) {
            for _ in 0..10 {
                let mut scenario = UndoScenario::new(rng, quota);
                for _ in 0..3 {
                    let (cost, t) = (scenario.cost(rng), scenario.later(rng));
                    scenario.take(Verb::Take, cost, t);
                }
                scenario.latest -= 50 * (quota.span_us() + quota.period_us());
                for _ in 0..rng.u8(..3) {
                    let (cost, t) = (scenario.cost(rng), scenario.later(rng));
                    scenario.take_from_both(Verb::Take, cost, t);
                }
                let t = scenario.later(rng);
                scenario.undo_all(t);
                assert_admits_no_more(rng, &mut scenario);
            }
        }
    });
}

/// Not buckets: they drain.
#[test]
fn an_undone_request_leaves_windows_and_logs_as_if_never_made() {
    with_each_seed(|rng| {
        let drains = |quota: &Quota| quota.algorithm().capacity_keyword().is_some();
        for quota in quotas(rng).into_iter().filter(|quota| !drains(quota)) {
            for _ in 0..30 {
                let mut scenario = UndoScenario::new(rng, quota);
                run(rng, &mut scenario, |rng, scenario| scenario.later(rng));
                for _ in 0..6 {
                    let (cost, t) = (scenario.cost(rng), scenario.later(rng));
                    let [with, without] = scenario.peek(cost, t);
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
                let mut scenario = UndoScenario::new(rng, quota);
                for _ in 0..rng.u8(..4) {
                    let (cost, t) = (scenario.cost(rng), scenario.later(rng));
                    scenario.take_from_both(any(rng, &TAKING_VERBS), cost, t);
                }
                let t = scenario.later(rng);
                for _ in 0..rng.u8(1..4) {
                    let cost = scenario.cost(rng);
                    scenario.take(any(rng, &TAKING_VERBS), cost, t);
                }
                scenario.undo_all(t);
                for _ in 0..6 {
                    let (cost, t) = (scenario.cost(rng), scenario.later(rng));
                    let verb = any(rng, &Verb::BASIC);
                    let UndoScenario { with, without, .. } = &mut scenario;
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
        evaluate(&quota, &mut state, Verb::Check, 10, START);
        let half_later = START + 500_000;
        evaluate(&quota, &mut state, Verb::Check, 10, half_later);
        // Five of the first ten units have drained.
        let undone = undo(&quota, &mut state, START, 10, half_later);
        assert_eq!(undone.remaining, 10, "{quota}");
        // All have drained: nothing is left to return, and the state stays as it is.
        let before = state.clone();
        let undone = undo(&quota, &mut state, START, 10, START + 2_000_000);
        assert_eq!(undone.remaining, 20, "{quota}");
        assert_eq!(state, before, "{quota}");
    }
}

#[test]
fn undoing_nothing_changes_nothing() {
    with_each_seed(|rng| {
        for quota in quotas(rng) {
            let mut scenario = UndoScenario::new(rng, quota);
            let (cost, t) = (scenario.cost(rng), scenario.later(rng));
            scenario.take_from_both(Verb::Check, cost, t);
            let before = scenario.with.clone();
            let later = scenario.later(rng);
            let undone = undo(&quota, &mut scenario.with, t, 0, later);
            assert_eq!(scenario.with, before, "{quota}");
            assert_eq!(
                undone,
                evaluate(&quota, &mut scenario.with, Verb::Peek, 0, later)
            );
            let mut new = State::New;
            undo(&quota, &mut new, t, cost, later);
            assert_eq!(new, State::New, "{quota}");
        }
    });
}

/// An undo on a log reaches its newest 256 entries.
#[test]
fn an_entry_older_than_the_newest_256_stays_charged() {
    let quota: Quota = "sliding-window-log 2000/h".parse().unwrap();
    for (depth, reached) in [(1, true), (255, true), (256, true), (257, false)] {
        for older in [0, 300] {
            let mut state = State::New;
            let entries = depth + older;
            for i in 0..entries {
                evaluate(&quota, &mut state, Verb::Check, 2, START + i);
            }
            let (before, now) = (state.clone(), START + entries);
            let taken_us = START + older;
            let left = undo(&quota, &mut state, taken_us, 1, now).remaining;
            let used = 2 * u32::try_from(entries).unwrap() - u32::from(reached);
            assert_eq!(2_000 - left, used, "depth {depth} of {entries}");
            assert_eq!(state == before, !reached, "depth {depth} of {entries}");
        }
    }
}

/// A refund or an undo that finds nothing to return leaves also a state that could be forgotten.
#[test]
fn a_refund_of_nothing_does_not_forget_the_key() {
    let quota: Quota = "fixed-window 3/7ms".parse().unwrap();
    let t = START / 7_000 * 7_000;
    let mut state = State::New;
    evaluate(&quota, &mut state, Verb::Check, 1, t);
    let before = state.clone();
    // More than a span before the window: as new there.
    let refund = evaluate(&quota, &mut state, Verb::Refund, 1, t - 13_999);
    assert_eq!(refund.remaining, 3);
    undo(&quota, &mut state, t - 13_999, 1, t - 13_999);
    assert_eq!(state, before);
    let charge = evaluate(&quota, &mut state, Verb::Charge, 1, t - 6_999);
    assert_eq!(charge.remaining, 1);
}

/// Every algorithm: a state that has expired stays until it is overwritten.
#[test]
fn a_refund_of_expired_units_changes_nothing() {
    with_each_seed(|rng| {
        for quota in quotas(rng) {
            let mut scenario = UndoScenario::new(rng, quota);
            let (cost, t) = (scenario.cost(rng), scenario.later(rng));
            let verdict = evaluate(&quota, &mut scenario.with, Verb::Check, cost.max(1), t);
            let before = scenario.with.clone();
            let new = t + verdict.reset_after_us + any(rng, &[0, 1, 3 * quota.span_us()]);
            let old = t.saturating_sub(3 * (quota.span_us() + quota.period_us()));
            for now in [new, old] {
                evaluate(&quota, &mut scenario.with, Verb::Refund, cost, now);
                undo(&quota, &mut scenario.with, now, cost, now);
                assert_eq!(scenario.with, before, "{quota} at {now}");
            }
        }
    });
}

/// More units than were taken, and times above the maximum: the counter becomes new.
#[test]
fn extreme_undos_are_harmless() {
    for text in UNUSUAL_QUOTAS {
        let quota: Quota = text.parse().unwrap();
        for t in [0, 1, START, u64::MAX] {
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
