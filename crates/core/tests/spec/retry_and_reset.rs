//! `retry_after` is sufficient and minimal, `reset_after` is exact, and deleting the key then changes
//! nothing.

use fastrand::Rng;
use tallygate_core::{MAX_TIME_US, Quota, Retry, State, Verb, evaluate};

use crate::long_traces::{LastRequest, UNUSUAL_QUOTAS, VERBS, any_quota, next_cost, next_time};
use tallygate_testkit::{any, with_each_seed};

/// Calls the test with the state of a counter after every request of a random trace.
fn for_many_states(test: impl Fn(&mut Rng, &Quota, &State, u64)) {
    with_each_seed(|rng| {
        let unusual = UNUSUAL_QUOTAS.map(|text| text.parse().unwrap());
        let random: [Quota; 60] = std::array::from_fn(|_| any_quota(rng));
        for quota in unusual.iter().chain(&random) {
            let mut state = State::New;
            let mut last = LastRequest::new(rng);
            for _ in 0..60 {
                // The wait must end before the maximum time.
                let t = next_time(rng, quota, &last).min(MAX_TIME_US / 2);
                let (verb, cost) = (any(rng, &VERBS), next_cost(rng, quota));
                // A large debt would end after the maximum time.
                let cost = cost.min(quota.capacity().saturating_mul(2));
                let verdict = evaluate(quota, &mut state, verb, cost, t);
                last.update(t, &verdict);
                if verdict.reset_after_us < MAX_TIME_US / 2 {
                    test(rng, quota, &state, t);
                }
            }
        }
    });
}

/// The verdict in this state, without changing it.
fn preview(quota: &Quota, state: &State, verb: Verb, cost: u32, t: u64) -> tallygate_core::Verdict {
    evaluate(quota, &mut state.clone(), verb, cost, t)
}

#[test]
fn retry_after_is_sufficient_and_minimal() {
    for_many_states(|rng, quota, state, t| {
        for cost in [1, quota.capacity(), rng.u32(1..=quota.capacity())] {
            let refused = preview(quota, state, Verb::Check, cost, t);
            let Some(retry) = refused.retry() else {
                continue;
            };
            let Retry::After(d) = retry else {
                panic!("{quota}: a cost of {cost} is within the capacity");
            };
            let d = d.get();
            let then = preview(quota, state, Verb::Check, cost, t + d);
            assert!(then.allowed(), "{quota} {state:?}: {cost} at {t} + {d}");
            let early = preview(quota, state, Verb::Check, cost, t + d - 1);
            assert_eq!(early.retry(), Some(Retry::after_us(1)), "{quota} {state:?}");
        }
    });
}

#[test]
fn the_retry_after_of_a_take_is_for_one_unit() {
    for_many_states(|_, quota, state, t| {
        let check = preview(quota, state, Verb::Check, 1, t);
        let take = preview(quota, state, Verb::Take, u32::MAX, t);
        assert_eq!(take.retry(), check.retry(), "{quota} {state:?} at {t}");
    });
}

#[test]
fn reset_after_is_exactly_when_the_key_is_as_new() {
    for_many_states(|rng, quota, state, t| {
        let d = preview(quota, state, Verb::Peek, 1, t).reset_after_us;
        let costs = [0, 1, quota.capacity(), u32::MAX, next_cost(rng, quota)];
        for verb in Verb::BASIC {
            for cost in costs {
                let kept = preview(quota, state, verb, cost, t + d);
                let new = preview(quota, &State::New, verb, cost, t + d);
                assert_eq!(kept, new, "{quota} {state:?}: {verb} {cost} at {t} + {d}");
            }
        }
        if d > 0 {
            let early = preview(quota, state, Verb::Check, quota.capacity(), t + d - 1);
            assert!(
                !early.allowed(),
                "{quota} {state:?}: as new before {t} + {d}"
            );
        }
    });
}

#[test]
fn deleting_a_key_at_its_reset_changes_nothing() {
    for_many_states(|rng, quota, state, t| {
        let d = preview(quota, state, Verb::Peek, 1, t).reset_after_us;
        // With a clock more than a span behind, the key is as new now but not later.
        if d == 0 {
            return;
        }
        let (mut kept, mut deleted) = (state.clone(), State::New);
        let mut now = t + d;
        for _ in 0..6 {
            let (verb, cost) = (any(rng, &VERBS), next_cost(rng, quota));
            let a = evaluate(quota, &mut kept, verb, cost, now);
            let b = evaluate(quota, &mut deleted, verb, cost, now);
            assert_eq!(a, b, "{quota} {state:?}: {verb} {cost} at {now}");
            let wait = a.retry_after_us().unwrap_or(a.delay_us());
            now += any(rng, &[0, 1, wait, a.reset_after_us / 2, quota.period_us()]);
        }
    });
}

#[test]
fn a_shaping_delay_is_the_drain_time_of_the_queue_ahead() {
    let quota: Quota = "leaky-bucket 7/s queue 4".parse().unwrap();
    let mut state = State::New;
    // One unit takes 142857 1/7 microseconds; the fraction is kept and the delay rounded up.
    for delay in [0, 142_858, 285_715, 428_572] {
        let verdict = evaluate(&quota, &mut state, Verb::Check, 1, 1_000_000);
        assert_eq!(verdict.delay_us(), delay);
    }
    let refused = evaluate(&quota, &mut state, Verb::Check, 1, 1_000_000);
    assert_eq!(refused.retry_after_us(), Some(142_858));
}
