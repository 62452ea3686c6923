//! Undo of a take after a refusal in another cluster slot: returns at most what still counts.

use fastrand::Rng;
use tallygate_core::lua::Operation;
use tallygate_core::{Algorithm, FoundState, Quota, Verb};
use tallygate_testkit::{any, with_each_seed};

use super::{Scripts, stored_state, unique_key};
use crate::long_traces::any_quota;

const START: u64 = 1_700_000_000_000_000;

/// A counter with a take that is undone, and one without it.
struct UndoScenario {
    scripts: Scripts,
    quota: Quota,
    with: Vec<u8>,
    without: Vec<u8>,
}

impl UndoScenario {
    fn new(quota: Quota) -> Self {
        UndoScenario {
            scripts: Scripts::connect(),
            quota,
            with: unique_key(),
            without: unique_key(),
        }
    }

    /// Takes units that are undone later. Returns the granted units and their effective time.
    fn take(&mut self, cost: u32, t: u64) -> (u32, u64) {
        let take = (Verb::Take, cost);
        let reply = self.scripts.call(
            &self.with,
            &self.quota,
            Operation::Verb(Verb::Peek),
            0,
            Some(t),
        );
        let found = FoundState::new(
            &self.quota,
            reply.states.into_iter().next().unwrap(),
            cost,
            t,
        );
        let taken_us = found.effective_time_us();
        let taken = self.scripts.decide(&self.with, &self.quota, take, Some(t));
        (taken.verdict().granted(), taken_us)
    }

    /// Takes the same units from both.
    fn take_from_both(&mut self, cost: u32, t: u64) {
        let (granted, _) = self.take(cost, t);
        let charge = (Verb::Charge, granted);
        self.scripts
            .decide(&self.without, &self.quota, charge, Some(t));
    }

    fn undo(&mut self, cost: u32, taken_us: u64, t: u64) {
        let operation = Operation::Undo { taken_us };
        self.scripts
            .call(&self.with, &self.quota, operation, cost, Some(t));
    }

    /// The stored states of both.
    fn stored(&mut self) -> [String; 2] {
        [self.with.clone(), self.without.clone()].map(|key| {
            let raw = self.scripts.command(&[b"GET", &key[..]]);
            stored_state::format(&raw, &self.quota)
        })
    }

    /// The remaining units of both.
    fn remaining(&mut self, t: u64) -> [u32; 2] {
        [self.with.clone(), self.without.clone()].map(|key| {
            let peek = self
                .scripts
                .decide(&key, &self.quota, (Verb::Peek, 1), Some(t));
            peek.verdict().remaining
        })
    }
}

/// A later time, usually by a little; sometimes so much earlier that the counter is as new.
fn next_time(rng: &mut Rng, quota: &Quota, t: u64) -> u64 {
    let span = quota.span_us();
    match rng.u8(..20) {
        0..5 => t,
        5..7 => t + 1,
        7..14 => t + rng.u64(..=span / 4),
        14..16 => t + rng.u64(..=span),
        16..19 => t + span + rng.u64(..=span),
        _ => t.saturating_sub(20 * span),
    }
}

#[test]
fn an_undone_take_never_admits_more_than_no_take() {
    with_each_seed(|rng| {
        for _ in 0..500 {
            let quota = loop {
                let quota = any_quota(rng);
                if quota.span_us() < 1 << 44 {
                    break quota;
                }
            };
            let mut scenario = UndoScenario::new(quota);
            let mut t = START + rng.u64(..=quota.span_us());
            let cost = |rng: &mut Rng| any(rng, &[1, 1, 2, quota.capacity(), quota.capacity() / 2]);
            for _ in 0..rng.u8(..3) {
                scenario.take_from_both(cost(rng), t);
                t = next_time(rng, &quota, t);
            }
            let (granted, taken_us) = scenario.take(cost(rng), t);
            if granted == 0 {
                continue;
            }
            for _ in 0..rng.u8(..5) {
                t = next_time(rng, &quota, t);
                scenario.take_from_both(cost(rng), t);
            }
            t = next_time(rng, &quota, t);
            let path = format!("{quota}: {:?}", scenario.stored());
            scenario.undo(granted, taken_us, t);
            for _ in 0..6 {
                let [with, without] = scenario.remaining(t);
                assert!(
                    with <= without,
                    "{with} of {without} left at {t} after {path}, {granted} at {taken_us} undone"
                );
                t = next_time(rng, &quota, t);
            }
        }
    });
}

/// While the window or the log entry exists.
#[test]
fn an_undone_take_leaves_no_trace_in_windows_and_logs() {
    with_each_seed(|rng| {
        for text in ["fixed-window 50/min", "50/min", "sliding-window-log 50/min"] {
            for _ in 0..100 {
                let quota: Quota = text.parse().unwrap();
                let mut scenario = UndoScenario::new(quota);
                let minute = 60_000_000;
                let mut t = START / minute * minute;
                let mut later = |rng: &mut Rng| {
                    t += any(rng, &[0, 1, 1_000, rng.clone().u64(..6_000_000)]);
                    t
                };
                for _ in 0..rng.u8(..3) {
                    scenario.take_from_both(rng.u32(1..10), later(rng));
                }
                let (granted, taken_us) = scenario.take(rng.u32(1..10), later(rng));
                for _ in 0..rng.u8(..4) {
                    scenario.take_from_both(rng.u32(1..10), later(rng));
                }
                scenario.undo(granted, taken_us, later(rng));
                let [with, without] = scenario.stored();
                assert_eq!(with, without, "{quota}");
            }
        }
    });
}

#[test]
fn a_take_in_the_previous_window_is_undone_there() {
    let quota: Quota = "50/min".parse().unwrap();
    let minute = 60_000_000;
    let start = START / minute * minute;
    let mut scenario = UndoScenario::new(quota);
    scenario.take_from_both(7, start + 1);
    let (granted, taken_us) = scenario.take(20, start + 2);
    scenario.take_from_both(3, start + minute + 5);
    scenario.undo(granted, taken_us, start + minute + 6);
    let [with, without] = scenario.stored();
    assert_eq!(with, without);
}

#[test]
fn a_take_before_both_windows_is_not_undone() {
    for text in ["fixed-window 50/min", "50/min"] {
        let quota: Quota = text.parse().unwrap();
        let mut scenario = UndoScenario::new(quota);
        let (granted, taken_us) = scenario.take(20, START);
        let later = START + 180_000_000;
        scenario.take_from_both(5, later);
        scenario.undo(granted, taken_us, later);
        let [with, without] = scenario.stored();
        assert_eq!(with, without, "{quota}");
    }
}

#[test]
fn an_immediate_undo_leaves_no_trace_in_a_bucket() {
    for algorithm in [
        Algorithm::TokenBucket,
        Algorithm::LeakyPolicing,
        Algorithm::LeakyShaping,
    ] {
        let period = std::time::Duration::from_secs(7);
        let quota = Quota::new(algorithm, 30, period).unwrap();
        let mut scenario = UndoScenario::new(quota);
        scenario.take_from_both(5, START);
        let (granted, taken_us) = scenario.take(20, START + 3);
        scenario.undo(granted, taken_us, START + 3);
        assert_eq!(scenario.remaining(START + 3), [25, 25]);
        let (granted, taken_us) = scenario.take(20, START + 3);
        scenario.undo(granted, taken_us, START + 1_000_000);
        let [with, without] = scenario.remaining(START + 1_000_000);
        // Units that drained meanwhile are not returned.
        assert!(with <= without && with + 5 >= without, "{with} {without}");
    }
}
