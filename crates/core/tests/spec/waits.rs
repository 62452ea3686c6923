//! `retry_after` is sufficient and minimal, `reset_after` is exact, and deleting the key then changes
//! nothing.

use fastrand::Rng;
use tallygate_core::{MAX_TIME_US, Quota, Retry, State, Verb, evaluate};

use crate::long_traces::{AWKWARD, Last, VERBS, any_quota, next_cost, next_time};
use tallygate_testkit::{any, with_each_seed};

/// Drives a counter through a random past and shows it, with the time, after every request.
fn for_many_states(test: impl Fn(&mut Rng, &Quota, &State, u64)) {
    with_each_seed(|rng| {
        let awkward = AWKWARD.map(|text| text.parse().unwrap());
        let random: [Quota; 60] = std::array::from_fn(|_| any_quota(rng));
        for quota in awkward.iter().chain(&random) {
            let mut state = State::New;
            let mut last = Last::begin(rng);
            for _ in 0..60 {
                // Leaves room for the wait below the end of time.
                let t = next_time(rng, quota, &last).min(MAX_TIME_US / 2);
                let (verb, cost) = (any(rng, &VERBS), next_cost(rng, quota));
                // A debt of a century would end beyond the end of time.
                let cost = cost.min(quota.capacity().saturating_mul(2));
                let verdict = evaluate(quota, &mut state, verb, cost, t);
                last.answered(t, &verdict);
                if verdict.reset_after_us < MAX_TIME_US / 2 {
                    test(rng, quota, &state, t);
                }
            }
        }
    });
}

/// What a key in this state would be told, without changing it.
fn ask(quota: &Quota, state: &State, verb: Verb, cost: u32, t: u64) -> tallygate_core::Verdict {
    evaluate(quota, &mut state.clone(), verb, cost, t)
}

#[test]
fn retry_after_is_enough_and_least() {
    for_many_states(|rng, quota, state, t| {
        for cost in [1, quota.capacity(), rng.u32(1..=quota.capacity())] {
            let refused = ask(quota, state, Verb::Check, cost, t);
            let Some(retry) = refused.retry() else {
                continue;
            };
            let Retry::After(d) = retry else {
                panic!("{quota}: a cost of {cost} is within the capacity");
            };
            let d = d.get();
            let then = ask(quota, state, Verb::Check, cost, t + d);
            assert!(then.allowed(), "{quota} {state:?}: {cost} at {t} + {d}");
            let early = ask(quota, state, Verb::Check, cost, t + d - 1);
            assert_eq!(early.retry(), Some(Retry::after_us(1)), "{quota} {state:?}");
        }
    });
}

#[test]
fn a_take_that_gets_nothing_waits_for_one_unit() {
    for_many_states(|_, quota, state, t| {
        let check = ask(quota, state, Verb::Check, 1, t);
        let take = ask(quota, state, Verb::Take, u32::MAX, t);
        assert_eq!(take.retry(), check.retry(), "{quota} {state:?} at {t}");
    });
}

#[test]
fn reset_after_is_when_the_key_is_as_new_and_not_one_microsecond_earlier() {
    for_many_states(|rng, quota, state, t| {
        let d = ask(quota, state, Verb::Peek, 1, t).reset_after_us;
        let costs = [0, 1, quota.capacity(), u32::MAX, next_cost(rng, quota)];
        for verb in Verb::ALL {
            for cost in costs {
                let kept = ask(quota, state, verb, cost, t + d);
                let new = ask(quota, &State::New, verb, cost, t + d);
                assert_eq!(kept, new, "{quota} {state:?}: {verb} {cost} at {t} + {d}");
            }
        }
        if d > 0 {
            let early = ask(quota, state, Verb::Check, quota.capacity(), t + d - 1);
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
        let d = ask(quota, state, Verb::Peek, 1, t).reset_after_us;
        // A clock more than a span behind sees a new key, and the old one again as it catches up.
        if d == 0 {
            return;
        }
        let (mut kept, mut forgotten) = (state.clone(), State::New);
        let mut now = t + d;
        for _ in 0..6 {
            let (verb, cost) = (any(rng, &VERBS), next_cost(rng, quota));
            let a = evaluate(quota, &mut kept, verb, cost, now);
            let b = evaluate(quota, &mut forgotten, verb, cost, now);
            assert_eq!(a, b, "{quota} {state:?}: {verb} {cost} at {now}");
            let wait = a.retry_after_us().unwrap_or(a.delay_us());
            now += any(rng, &[0, 1, wait, a.reset_after_us / 2, quota.period_us()]);
        }
    });
}

#[test]
fn a_shaping_delay_is_when_the_queue_ahead_has_drained() {
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
