//! Every short history over tiny quotas, core against model.

use tallygate_core::{Quota, State, Verb, evaluate};

use crate::model::{Memory, Terms, decide};
use crate::side_by_side::{Pair, Step};

/// A whole window number for every period below, so that edges are edges.
const BEGIN: u64 = 1_700_000_000_000_000 / 6_000 * 6_000;

/// The next request: how much later (or earlier), what, how much.
type Letter = (i64, Verb, u32);

/// Every history of four requests that matter, at the edges of the period.
#[track_caller]
fn every_history_of_four_over(quotas: &[&str]) {
    for text in quotas {
        let quota: Quota = text.parse().unwrap();
        let span = i64::try_from(quota.span_us()).unwrap();
        let period = i64::try_from(quota.period_us()).unwrap();
        let most = quota.capacity();
        let mut letters = Vec::new();
        for dt in [0, 1, period - 1, span, -1] {
            letters.push((dt, Verb::Check, 1));
            letters.push((dt, Verb::Charge, most + 1));
            letters.push((dt, Verb::Refund, 1));
        }
        letters.extend([
            (0, Verb::Take, most),
            (period, Verb::Check, most),
            (span + 1, Verb::Charge, 1),
            (-span, Verb::Check, 1),
            (-span - 1, Verb::Refund, 1),
        ]);
        explore(&quota, &letters, 4);
    }
}

/// Every history of three requests over a wider alphabet, with all verbs and awkward costs.
#[track_caller]
fn every_history_of_three_over(quotas: &[&str]) {
    for text in quotas {
        let quota: Quota = text.parse().unwrap();
        let span = i64::try_from(quota.span_us()).unwrap();
        let period = i64::try_from(quota.period_us()).unwrap();
        let most = quota.capacity();
        let mut letters = Vec::new();
        for verb in Verb::ALL {
            letters.push((1, verb, 0));
            for dt in [0, 1, period - 1, period + 1, -1, -period] {
                letters.push((dt, verb, 1));
            }
        }
        for dt in [0, span - 1, span, 2 * period, -span, -span - 1] {
            letters.push((dt, Verb::Take, most + 1));
            letters.push((dt, Verb::Charge, 2 * most + 1));
        }
        letters.extend([
            (0, Verb::Check, most),
            (0, Verb::Check, most + 1),
            (span, Verb::Refund, most),
        ]);
        explore(&quota, &letters, 3);
    }
}

fn explore(quota: &Quota, letters: &[Letter], length: usize) {
    let mut path = Vec::new();
    go_on(quota, letters, length, &Pair::new(), BEGIN, &mut path);
}

fn go_on(
    quota: &Quota,
    letters: &[Letter],
    length: usize,
    pair: &Pair,
    now: u64,
    path: &mut Vec<Step>,
) {
    for &(dt, verb, cost) in letters {
        let mut pair = pair.clone();
        let t = now.checked_add_signed(dt).unwrap();
        let step = Step { t, verb, cost };
        path.push(step);
        if let Err(difference) = pair.step(quota, step) {
            panic!("{quota}: {difference}\nafter {path:?}");
        }
        if path.len() < length {
            go_on(quota, letters, length, &pair, t, path);
        }
        path.pop();
    }
}

macro_rules! every_short_history {
    ($four:ident, $three:ident, $quotas:expr) => {
        #[test]
        fn $four() {
            every_history_of_four_over(&$quotas);
        }

        #[test]
        fn $three() {
            every_history_of_three_over(&$quotas);
        }
    };
}

every_short_history!(
    every_history_of_four_on_a_fixed_window_agrees,
    every_history_of_three_on_a_fixed_window_agrees,
    ["fixed-window 1/ms", "fixed-window 3/2ms"]
);
every_short_history!(
    every_history_of_four_on_a_sliding_log_agrees,
    every_history_of_three_on_a_sliding_log_agrees,
    ["sliding-window-log 1/ms", "sliding-window-log 3/2ms"]
);
every_short_history!(
    every_history_of_four_on_a_sliding_counter_agrees,
    every_history_of_three_on_a_sliding_counter_agrees,
    ["1/2ms", "2/ms", "3/3ms"]
);
every_short_history!(
    every_history_of_four_on_a_token_bucket_agrees,
    every_history_of_three_on_a_token_bucket_agrees,
    ["token-bucket 3/ms burst 2", "gcra 1/3ms burst 1"]
);
every_short_history!(
    every_history_of_four_on_a_policing_bucket_agrees,
    every_history_of_three_on_a_policing_bucket_agrees,
    ["leaky-bucket 3/2ms burst 3"]
);
every_short_history!(
    every_history_of_four_on_a_shaping_bucket_agrees,
    every_history_of_three_on_a_shaping_bucket_agrees,
    ["leaky-bucket 3/ms queue 2", "leaky-bucket 2/3ms queue 1"]
);

#[test]
fn times_near_zero_agree() {
    for text in TINY {
        let quota: Quota = text.parse().unwrap();
        for times in [[0, 1, 0], [0, 999, 1_000], [1_000, 0, 999], [5_000, 0, 1]] {
            for verb in Verb::ALL {
                for cost in 0..4 {
                    let mut pair = Pair::new();
                    for t in times {
                        let step = Step { t, verb, cost };
                        if let Err(difference) = pair.step(&quota, step) {
                            panic!("{quota}: {difference}\nat {step:?} of {times:?}");
                        }
                    }
                }
            }
        }
    }
}

const TINY: [&str; 6] = [
    "fixed-window 2/ms",
    "sliding-window-log 2/ms",
    "2/ms",
    "token-bucket 3/2ms burst 2",
    "leaky-bucket 3/2ms burst 2",
    "leaky-bucket 3/2ms queue 2",
];

/// The model searches for its waits; here is every microsecond tried, one by one.
#[test]
fn the_models_waits_are_those_of_trying_every_microsecond() {
    for text in TINY {
        let quota: Quota = text.parse().unwrap();
        let terms = Terms::from(&quota);
        for (charged, again) in [(1, 1), (2, 1), (3, 0), (5, 2), (4, 7)] {
            let mut memory = Memory::New;
            decide(
                &mut [(terms, &mut memory, charged)],
                Verb::Charge,
                BEGIN + 300,
            );
            decide(
                &mut [(terms, &mut memory, again)],
                Verb::Charge,
                BEGIN + 977,
            );
            let mut state = State::New;
            evaluate(&quota, &mut state, Verb::Charge, charged, BEGIN + 300);
            evaluate(&quota, &mut state, Verb::Charge, again, BEGIN + 977);
            for cost in 1..=2 {
                let verdict = evaluate(&quota, &mut state, Verb::Peek, cost, BEGIN + 977);
                let fits = |d: &u64| {
                    let t = BEGIN + 977 + d;
                    let peek = decide(&mut [(terms, &mut memory.clone(), cost)], Verb::Peek, t);
                    peek[0].retry.is_none()
                };
                let first = (0..).find(fits).unwrap();
                assert_eq!(verdict.retry_after_us().unwrap_or(0), first, "{quota}");
                let new = |d: &u64| {
                    let t = u128::from(BEGIN + 977 + d);
                    memory.as_new(&terms, t)
                };
                assert_eq!(verdict.reset_after_us, (0..).find(new).unwrap(), "{quota}");
            }
        }
    }
}
