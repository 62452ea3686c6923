//! Undoing a take when another cluster slot refused: never more than still counts.

use fastrand::Rng;
use tallygate_core::lua::Operation;
use tallygate_core::{Algorithm, FoundState, Quota, Verb};
use tallygate_testkit::{any, with_each_seed};

use super::{Scripts, any_key, stored};
use crate::long_traces::any_quota;

const BEGIN: u64 = 1_700_000_000_000_000;

/// The same history twice: once with a take that is taken back, once without.
struct Story {
    scripts: Scripts,
    quota: Quota,
    with: Vec<u8>,
    without: Vec<u8>,
}

impl Story {
    fn new(quota: Quota) -> Self {
        Story {
            scripts: Scripts::connect(),
            quota,
            with: any_key(),
            without: any_key(),
        }
    }

    /// Takes in the one; answers what was granted and the moment it counts at.
    fn take(&mut self, cost: u32, t: u64) -> (u32, u64) {
        let take = (Verb::Take, cost);
        let answer = self.scripts.ask(
            &self.with,
            &self.quota,
            Operation::Verb(Verb::Peek),
            0,
            Some(t),
        );
        let found = FoundState {
            quota: &self.quota,
            state: answer.states.into_iter().next().unwrap(),
            cost,
            now_us: t,
        };
        let moment = found.effective_time_us();
        let taken = self.scripts.decide(&self.with, &self.quota, take, Some(t));
        (taken.verdict().granted(), moment)
    }

    /// Others take in the one, and the same in the other.
    fn others(&mut self, cost: u32, t: u64) {
        let (granted, _) = self.take(cost, t);
        let charge = (Verb::Charge, granted);
        self.scripts
            .decide(&self.without, &self.quota, charge, Some(t));
    }

    fn undo(&mut self, cost: u32, taken_us: u64, t: u64) {
        let ask = Operation::Undo { taken_us };
        self.scripts
            .ask(&self.with, &self.quota, ask, cost, Some(t));
    }

    /// What is stored, with and without.
    fn stored(&mut self) -> [String; 2] {
        [self.with.clone(), self.without.clone()].map(|key| {
            let raw = self.scripts.command(&[b"GET", &key[..]]);
            stored::shown(&raw, &self.quota)
        })
    }

    /// What is left, with and without.
    fn left(&mut self, t: u64) -> [u32; 2] {
        [self.with.clone(), self.without.clone()].map(|key| {
            let peek = self
                .scripts
                .decide(&key, &self.quota, (Verb::Peek, 1), Some(t));
            peek.verdict().remaining
        })
    }
}

/// A little later, mostly; now and then so much earlier that all is as new.
fn next(rng: &mut Rng, quota: &Quota, t: u64) -> u64 {
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
            let mut story = Story::new(quota);
            let mut t = BEGIN + rng.u64(..=quota.span_us());
            let cost = |rng: &mut Rng| any(rng, &[1, 1, 2, quota.capacity(), quota.capacity() / 2]);
            for _ in 0..rng.u8(..3) {
                story.others(cost(rng), t);
                t = next(rng, &quota, t);
            }
            let (granted, moment) = story.take(cost(rng), t);
            if granted == 0 {
                continue;
            }
            for _ in 0..rng.u8(..5) {
                t = next(rng, &quota, t);
                story.others(cost(rng), t);
            }
            t = next(rng, &quota, t);
            let path = format!("{quota}: {:?}", story.stored());
            story.undo(granted, moment, t);
            for _ in 0..6 {
                let [with, without] = story.left(t);
                assert!(
                    with <= without,
                    "{with} of {without} left at {t} after {path}, {granted} at {moment} undone"
                );
                t = next(rng, &quota, t);
            }
        }
    });
}

/// Within the window it was taken in, and in a log as long as it counts, nothing is left of it.
#[test]
fn an_undone_take_leaves_windows_and_logs_as_without_it() {
    with_each_seed(|rng| {
        for text in ["fixed-window 50/min", "50/min", "sliding-window-log 50/min"] {
            for _ in 0..100 {
                let quota: Quota = text.parse().unwrap();
                let mut story = Story::new(quota);
                let minute = 60_000_000;
                let mut t = BEGIN / minute * minute;
                let mut later = |rng: &mut Rng| {
                    t += any(rng, &[0, 1, 1_000, rng.clone().u64(..6_000_000)]);
                    t
                };
                for _ in 0..rng.u8(..3) {
                    story.others(rng.u32(1..10), later(rng));
                }
                let (granted, moment) = story.take(rng.u32(1..10), later(rng));
                for _ in 0..rng.u8(..4) {
                    story.others(rng.u32(1..10), later(rng));
                }
                story.undo(granted, moment, later(rng));
                let [with, without] = story.stored();
                assert_eq!(with, without, "{quota}");
            }
        }
    });
}

#[test]
fn a_take_in_the_previous_window_is_undone_there() {
    let quota: Quota = "50/min".parse().unwrap();
    let minute = 60_000_000;
    let start = BEGIN / minute * minute;
    let mut story = Story::new(quota);
    story.others(7, start + 1);
    let (granted, moment) = story.take(20, start + 2);
    story.others(3, start + minute + 5);
    story.undo(granted, moment, start + minute + 6);
    let [with, without] = story.stored();
    assert_eq!(with, without);
}

#[test]
fn a_take_before_any_of_the_windows_is_not_undone() {
    for text in ["fixed-window 50/min", "50/min"] {
        let quota: Quota = text.parse().unwrap();
        let mut story = Story::new(quota);
        let (granted, moment) = story.take(20, BEGIN);
        let later = BEGIN + 180_000_000;
        story.others(5, later);
        story.undo(granted, moment, later);
        let [with, without] = story.stored();
        assert_eq!(with, without, "{quota}");
    }
}

#[test]
fn an_immediate_undo_leaves_a_bucket_as_without_the_take() {
    for algorithm in [
        Algorithm::TokenBucket,
        Algorithm::LeakyPolicing,
        Algorithm::LeakyShaping,
    ] {
        let period = std::time::Duration::from_secs(7);
        let quota = Quota::new(algorithm, 30, period).unwrap();
        let mut story = Story::new(quota);
        story.others(5, BEGIN);
        let (granted, moment) = story.take(20, BEGIN + 3);
        story.undo(granted, moment, BEGIN + 3);
        assert_eq!(story.left(BEGIN + 3), [25, 25]);
        let (granted, moment) = story.take(20, BEGIN + 3);
        story.undo(granted, moment, BEGIN + 1_000_000);
        let [with, without] = story.left(BEGIN + 1_000_000);
        // What has drained meanwhile is not given back twice.
        assert!(with <= without && with + 5 >= without, "{with} {without}");
    }
}
