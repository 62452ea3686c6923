//! Every short history over tiny quotas, core against model.

use tallygate_core::{Quota, State, Verb, evaluate};

use crate::compare_with_model::{Pair, Step};
use crate::model::{ModelState, WideQuota, decide};

/// A window boundary of every period below.
const START: u64 = 1_700_000_000_000_000 / 6_000 * 6_000;

/// A request: the time since the one before (may be negative), the verb and the cost.
type RelativeStep = (i64, Verb, u32);

/// Every history of four requests at the boundaries of the period.
#[track_caller]
fn every_history_of_four_over(quotas: &[&str]) {
    for text in quotas {
        let quota: Quota = text.parse().unwrap();
        let span = i64::try_from(quota.span_us()).unwrap();
        let period = i64::try_from(quota.period_us()).unwrap();
        let capacity = quota.capacity();
        let mut steps = Vec::new();
        for dt in [0, 1, period - 1, span, -1] {
            steps.push((dt, Verb::Check, 1));
            steps.push((dt, Verb::Charge, capacity + 1));
            steps.push((dt, Verb::Refund, 1));
        }
        steps.extend([
            (0, Verb::Take, capacity),
            (period, Verb::Check, capacity),
            (span + 1, Verb::Charge, 1),
            (-span, Verb::Check, 1),
            (-span - 1, Verb::Refund, 1),
        ]);
        explore(&quota, &steps, 4);
    }
}

/// Every history of three requests with all verbs and more costs.
#[track_caller]
fn every_history_of_three_over(quotas: &[&str]) {
    for text in quotas {
        let quota: Quota = text.parse().unwrap();
        let span = i64::try_from(quota.span_us()).unwrap();
        let period = i64::try_from(quota.period_us()).unwrap();
        let capacity = quota.capacity();
        let mut steps = Vec::new();
        for verb in Verb::BASIC {
            steps.push((1, verb, 0));
            for dt in [0, 1, period - 1, period + 1, -1, -period] {
                steps.push((dt, verb, 1));
            }
        }
        for dt in [0, span - 1, span, 2 * period, -span, -span - 1] {
            steps.push((dt, Verb::Take, capacity + 1));
            steps.push((dt, Verb::Charge, 2 * capacity + 1));
        }
        steps.extend([
            (0, Verb::Check, capacity),
            (0, Verb::Check, capacity + 1),
            (span, Verb::Refund, capacity),
        ]);
        explore(&quota, &steps, 3);
    }
}

fn explore(quota: &Quota, steps: &[RelativeStep], length: usize) {
    let mut path = Vec::new();
    explore_from(quota, steps, length, &Pair::new(), START, &mut path);
}

fn explore_from(
    quota: &Quota,
    steps: &[RelativeStep],
    length: usize,
    pair: &Pair,
    now: u64,
    path: &mut Vec<Step>,
) {
    for &(dt, verb, cost) in steps {
        let mut pair = pair.clone();
        let t = now.checked_add_signed(dt).unwrap();
        let step = Step { t, verb, cost };
        path.push(step);
        if let Err(difference) = pair.step(quota, step) {
            panic!("{quota}: {difference}\nafter {path:?}");
        }
        if path.len() < length {
            explore_from(quota, steps, length, &pair, t, path);
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
            for verb in Verb::BASIC {
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

/// The model finds waits by binary search; this test tries every microsecond.
#[test]
fn the_waits_of_the_model_equal_a_linear_search() {
    for text in TINY {
        let quota: Quota = text.parse().unwrap();
        let wide_quota = WideQuota::from(&quota);
        for (charged, again) in [(1, 1), (2, 1), (3, 0), (5, 2), (4, 7)] {
            let mut model_state = ModelState::New;
            decide(
                &mut [(wide_quota, &mut model_state, charged)],
                Verb::Charge,
                START + 300,
            );
            decide(
                &mut [(wide_quota, &mut model_state, again)],
                Verb::Charge,
                START + 977,
            );
            let mut state = State::New;
            evaluate(&quota, &mut state, Verb::Charge, charged, START + 300);
            evaluate(&quota, &mut state, Verb::Charge, again, START + 977);
            for cost in 1..=2 {
                let verdict = evaluate(&quota, &mut state, Verb::Peek, cost, START + 977);
                let fits = |d: &u64| {
                    let t = START + 977 + d;
                    let peek = decide(
                        &mut [(wide_quota, &mut model_state.clone(), cost)],
                        Verb::Peek,
                        t,
                    );
                    peek[0].retry.is_none()
                };
                let first = (0..).find(fits).unwrap();
                assert_eq!(verdict.retry_after_us().unwrap_or(0), first, "{quota}");
                let new = |d: &u64| {
                    let t = u128::from(START + 977 + d);
                    model_state.as_new(&wide_quota, t)
                };
                assert_eq!(verdict.reset_after_us, (0..).find(new).unwrap(), "{quota}");
            }
        }
    }
}
