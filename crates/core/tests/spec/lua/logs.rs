//! Logs that fill, drain, wrap around, widen, shrink and go into debt.

use fastrand::Rng;
use tallygate_core::{Quota, Verb};
use tallygate_testkit::{any, with_each_seed};

use super::{Call, Counter, RustAndLua};
use crate::long_traces::VERBS;

const START: u64 = 1_700_000_000_000_000;

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

/// Runs the calls in pipelines of 16.
fn run(both: &mut RustAndLua, calls: &[Call]) {
    for calls in calls.chunks(16) {
        both.run(calls);
    }
}

#[test]
fn lua_and_rust_agree_over_busy_logs() {
    with_each_seed(|rng| {
        for text in [
            "sliding-window-log 40/s",
            "sliding-window-log 9/366d",
            "sliding-window-log 300/20d",
        ] {
            let mut both = RustAndLua::new([Counter::parse(text)]);
            let mut t = START;
            let mut call = || {
                let gap = quota(text).period_us() / any(rng, &[2, 20, 40, 400, 1_000]);
                t += rng.u64(..2 * gap);
                let at = t - any(rng, &[0, 0, 0, 1, gap]);
                let cost = any(rng, &[1, 1, 1, 2, 5, 60, u32::MAX]);
                Call::single(0, at, any(rng, &VERBS[..11]), cost)
            };
            let calls: Vec<Call> = (0..1_500).map(|_| call()).collect();
            run(&mut both, &calls);
        }
    });
}

/// Single requests over many periods at different rates, with pauses.
#[test]
fn lua_and_rust_agree_over_logs_that_wrap_around() {
    with_each_seed(|rng| {
        for limit in [1, 2, 3, 17, 100, 250] {
            let quota = quota(&format!("sliding-window-log {limit}/s"));
            let mut both = RustAndLua::new([Counter::new(quota)]);
            let mut t = START + rng.u64(..1_000_000);
            let mut calls = Vec::new();
            for pace in [1, 1, 3, 1, 2, 5] {
                for _ in 0..limit * 2 {
                    t += pace * rng.u64(..=2_000_000 / limit);
                    let verb = any(rng, &[Verb::Check, Verb::Check, Verb::Take, Verb::Peek]);
                    calls.push(Call::single(0, t, verb, any(rng, &[1, 1, 1, 2])));
                }
                t += any(rng, &[0, 400_000, 999_999, 1_000_000, 5_000_000]);
            }
            run(&mut both, &calls);
        }
    });
}

/// Sums wrap at 2^24 while the used units are below that, and are widened otherwise.
#[test]
fn lua_and_rust_agree_over_logs_whose_sums_overflow() {
    with_each_seed(|rng| {
        for text in ["sliding-window-log 100000/s", "sliding-window-log 5/20d"] {
            let quota = quota(text);
            let mut both = RustAndLua::new([Counter::new(quota)]);
            let mut t = START;
            let mut calls = Vec::new();
            for _ in 0..1_500 {
                t += rng.u64(..quota.period_us() / 20);
                let cost = match rng.u8(..100) {
                    0 => any(rng, &[1 << 24, (1 << 24) - 1, u32::MAX]),
                    1..90 => rng.u32(..=5_000),
                    _ => rng.u32(..1 << 21),
                };
                let verb = any(rng, &[Verb::Check, Verb::Take, Verb::Charge, Verb::Refund]);
                calls.push(Call::single(0, t, verb, cost));
                if rng.u8(..100) == 0 {
                    t += quota.period_us();
                }
            }
            run(&mut both, &calls);
        }
    });
}

/// With more than a thousand entries above its limit, a log merges its oldest.
#[test]
fn lua_and_rust_agree_over_logs_deep_in_debt() {
    let mut rng = Rng::with_seed(3);
    let mut both = RustAndLua::new([Counter::parse("sliding-window-log 3/h")]);
    let charge = |i: u64| Call::single(0, START + 10 * i, Verb::Charge, 1);
    let mut calls: Vec<Call> = (0..1_150).map(charge).collect();
    for i in 1_150..1_250 {
        let verb = any(&mut rng, &VERBS[..11]);
        let cost = any(&mut rng, &[1, 2, 20, 300]);
        calls.push(Call::single(0, START + 10 * i, verb, cost));
    }
    // Until all entries expire.
    let hour = 3_600_000_000;
    for i in (0..1_300).step_by(13) {
        calls.push(Call::single(0, START + hour + 10 * i, Verb::Peek, 1));
        calls.push(Call::single(0, START + hour + 10 * i, Verb::Take, 2));
    }
    run(&mut both, &calls);
}

/// After a refund or with a lower limit, the stored log is larger than necessary.
#[test]
fn lua_and_rust_agree_over_logs_that_shrink() {
    with_each_seed(|rng| {
        let mut both = RustAndLua::new([Counter::parse("sliding-window-log 600/min")]);
        let mut t = START;
        for limit in [600, 30, 600, 2] {
            both.counters[0].quota = quota(&format!("sliding-window-log {limit}/min"));
            let mut calls = Vec::new();
            for _ in 0..limit {
                t += rng.u64(..50_000);
                calls.push(Call::single(0, t, Verb::Charge, 1));
            }
            calls.push(Call::single(0, t, Verb::Refund, rng.u32(..=limit)));
            for _ in 0..20 {
                t += rng.u64(..5_000_000);
                let verb = any(rng, &VERBS[..11]);
                calls.push(Call::single(0, t, verb, any(rng, &[1, 3, 200])));
            }
            run(&mut both, &calls);
        }
    });
}
