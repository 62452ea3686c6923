//! Logs that fill, empty, wrap round, widen, shrink and go into debt.

use fastrand::Rng;
use tallygate_core::{Quota, Verb};
use tallygate_testkit::{any, with_each_seed};

use super::{Both, Call, Counter};
use crate::long_traces::VERBS;

const BEGIN: u64 = 1_700_000_000_000_000;

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

/// Runs as many calls of one counter together as a round trip takes.
fn run(both: &mut Both, calls: &[Call]) {
    for calls in calls.chunks(16) {
        both.make(calls);
    }
}

#[test]
fn twins_agree_over_busy_logs() {
    with_each_seed(|rng| {
        for text in [
            "sliding-window-log 40/s",
            "sliding-window-log 9/366d",
            "sliding-window-log 300/20d",
        ] {
            let mut both = Both::new([Counter::under(text)]);
            let mut t = BEGIN;
            let mut call = || {
                let gap = quota(text).period_us() / any(rng, &[2, 20, 40, 400, 1_000]);
                t += rng.u64(..2 * gap);
                let at = t - any(rng, &[0, 0, 0, 1, gap]);
                let cost = any(rng, &[1, 1, 1, 2, 5, 60, u32::MAX]);
                Call::one(0, at, any(rng, &VERBS[..11]), cost)
            };
            let calls: Vec<Call> = (0..1_500).map(|_| call()).collect();
            run(&mut both, &calls);
        }
    });
}

/// Admitted one by one for many periods, now full, now half empty, and empty after a pause.
#[test]
fn twins_agree_over_logs_that_wrap_round() {
    with_each_seed(|rng| {
        for limit in [1, 2, 3, 17, 100, 250] {
            let quota = quota(&format!("sliding-window-log {limit}/s"));
            let mut both = Both::new([Counter::new(quota)]);
            let mut t = BEGIN + rng.u64(..1_000_000);
            let mut calls = Vec::new();
            for pace in [1, 1, 3, 1, 2, 5] {
                for _ in 0..limit * 2 {
                    t += pace * rng.u64(..=2_000_000 / limit);
                    let verb = any(rng, &[Verb::Check, Verb::Check, Verb::Take, Verb::Peek]);
                    calls.push(Call::one(0, t, verb, any(rng, &[1, 1, 1, 2])));
                }
                t += any(rng, &[0, 400_000, 999_999, 1_000_000, 5_000_000]);
            }
            run(&mut both, &calls);
        }
    });
}

/// Sums wrap at 2^24 as long as what counts is below that, and widen when it is not.
#[test]
fn twins_agree_over_logs_whose_sums_pass_their_bytes() {
    with_each_seed(|rng| {
        for text in ["sliding-window-log 100000/s", "sliding-window-log 5/20d"] {
            let quota = quota(text);
            let mut both = Both::new([Counter::new(quota)]);
            let mut t = BEGIN;
            let mut calls = Vec::new();
            for _ in 0..1_500 {
                t += rng.u64(..quota.period_us() / 20);
                let cost = match rng.u8(..100) {
                    0 => any(rng, &[1 << 24, (1 << 24) - 1, u32::MAX]),
                    1..90 => rng.u32(..=5_000),
                    _ => rng.u32(..1 << 21),
                };
                let verb = any(rng, &[Verb::Check, Verb::Take, Verb::Charge, Verb::Refund]);
                calls.push(Call::one(0, t, verb, cost));
                if rng.u8(..100) == 0 {
                    t += quota.period_us();
                }
            }
            run(&mut both, &calls);
        }
    });
}

/// Beyond a thousand instants more than its limit a log merges its oldest.
#[test]
fn twins_agree_over_logs_deep_in_debt() {
    let mut rng = Rng::with_seed(3);
    let mut both = Both::new([Counter::under("sliding-window-log 3/h")]);
    let charge = |i: u64| Call::one(0, BEGIN + 10 * i, Verb::Charge, 1);
    let mut calls: Vec<Call> = (0..1_150).map(charge).collect();
    for i in 1_150..1_250 {
        let verb = any(&mut rng, &VERBS[..11]);
        let cost = any(&mut rng, &[1, 2, 20, 300]);
        calls.push(Call::one(0, BEGIN + 10 * i, verb, cost));
    }
    // Until they all come to their end.
    let hour = 3_600_000_000;
    for i in (0..1_300).step_by(13) {
        calls.push(Call::one(0, BEGIN + hour + 10 * i, Verb::Peek, 1));
        calls.push(Call::one(0, BEGIN + hour + 10 * i, Verb::Take, 2));
    }
    run(&mut both, &calls);
}

/// A refund or a lowered limit leaves a log that is too large for what is in it.
#[test]
fn twins_agree_over_logs_that_shrink() {
    with_each_seed(|rng| {
        let mut both = Both::new([Counter::under("sliding-window-log 600/min")]);
        let mut t = BEGIN;
        for limit in [600, 30, 600, 2] {
            both.counters[0].quota = quota(&format!("sliding-window-log {limit}/min"));
            let mut calls = Vec::new();
            for _ in 0..limit {
                t += rng.u64(..50_000);
                calls.push(Call::one(0, t, Verb::Charge, 1));
            }
            calls.push(Call::one(0, t, Verb::Refund, rng.u32(..=limit)));
            for _ in 0..20 {
                t += rng.u64(..5_000_000);
                let verb = any(rng, &VERBS[..11]);
                calls.push(Call::one(0, t, verb, any(rng, &[1, 3, 200])));
            }
            run(&mut both, &calls);
        }
    });
}
