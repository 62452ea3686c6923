//! Limits and bursts that change during the life of a counter: used units are kept.

use std::time::Duration;

use tallygate_core::{Algorithm, Quota, State, Verb, evaluate};

use crate::compare_with_model::{Pair, Step};
use crate::long_traces::{LastRequest, VERBS, any_quota, next_cost, next_time};
use tallygate_testkit::{any, with_each_seed};

/// A quota of the same algorithm and period with other numbers.
pub(crate) fn change_quota(rng: &mut fastrand::Rng, quota: &Quota) -> Quota {
    loop {
        let near = |rng: &mut fastrand::Rng, n: u32| match rng.u8(..6) {
            0 => n.saturating_add(1),
            1 => n - 1,
            2 => n / 2,
            3 => n.saturating_mul(3),
            4 => rng.u32(1..=1_000_000_000),
            _ => n,
        };
        let limit = near(rng, quota.limit());
        let capacity = match quota.algorithm().capacity_keyword() {
            Some(_) => near(rng, quota.capacity()),
            None => limit,
        };
        if let Ok(next) = Quota::with_capacity(quota.algorithm(), limit, quota.period(), capacity) {
            return next;
        }
    }
}

#[test]
fn core_and_model_agree_under_changing_quotas() {
    with_each_seed(|rng| {
        for _ in 0..300 {
            let mut quota = any_quota(rng);
            let mut pair = Pair::new();
            let mut last = LastRequest::new(rng);
            let mut path = Vec::new();
            for _ in 0..80 {
                if rng.u8(..8) == 0 {
                    quota = change_quota(rng, &quota);
                }
                let step = Step {
                    t: next_time(rng, &quota, &last),
                    verb: any(rng, &VERBS),
                    cost: next_cost(rng, &quota),
                };
                path.push((quota.to_string(), step));
                match pair.step(&quota, step) {
                    Ok(verdict) => {
                        last.update(step.t, &verdict);
                        last.mark = pair.mark().unwrap_or(step.t);
                    }
                    Err(difference) => {
                        let tail = &path[path.len().saturating_sub(12)..];
                        panic!("{difference}\nafter {tail:?}");
                    }
                }
            }
        }
    });
}

#[test]
fn a_lowered_limit_keeps_the_count_of_windows_and_logs() {
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
    ] {
        let quota = |limit| Quota::new(algorithm, limit, Duration::from_secs(60)).unwrap();
        let mut state = State::New;
        evaluate(&quota(10), &mut state, Verb::Check, 8, 600_000_000);
        for (limit, remaining) in [(5, 0), (8, 0), (9, 1), (20, 12)] {
            let peek = evaluate(&quota(limit), &mut state, Verb::Peek, 1, 600_000_000);
            assert_eq!(peek.remaining, remaining, "{algorithm:?} {limit}");
        }
    }
}

#[test]
fn a_changed_limit_keeps_a_buckets_used_units_rounded_up() {
    let slow: Quota = "token-bucket 1/s burst 10".parse().unwrap();
    let fast: Quota = "token-bucket 2/s burst 10".parse().unwrap();
    let mut state = State::New;
    evaluate(&slow, &mut state, Verb::Check, 4, 1_000_000);
    // 4 - 0.5 + 1 = 4.5 units used at 1.5 s; 5 in whole units.
    evaluate(&slow, &mut state, Verb::Check, 1, 1_500_000);
    let peek = evaluate(&fast, &mut state, Verb::Peek, 1, 1_500_000);
    assert_eq!((peek.remaining, peek.reset_after_us), (5, 2_500_000));
    let same = evaluate(&slow, &mut state, Verb::Peek, 1, 1_500_000);
    assert_eq!((same.remaining, same.reset_after_us), (5, 4_500_000));
}

#[test]
fn a_changed_burst_alone_keeps_the_level_exactly() {
    let small: Quota = "token-bucket 1/s burst 10".parse().unwrap();
    let large: Quota = "token-bucket 1/s burst 20".parse().unwrap();
    let mut state = State::New;
    evaluate(&small, &mut state, Verb::Check, 4, 1_000_000);
    evaluate(&small, &mut state, Verb::Check, 1, 1_500_000);
    let peek = evaluate(&large, &mut state, Verb::Peek, 1, 1_500_000);
    assert_eq!((peek.remaining, peek.reset_after_us), (15, 4_500_000));
}
