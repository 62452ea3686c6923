//! A refusal, a peek and a cost of 0 change nothing.

use tallygate_core::{Quota, Retry, State, Verb, evaluate};

use crate::long_traces::{LastRequest, UNUSUAL_QUOTAS, VERBS, next_cost, next_time};
use tallygate_testkit::{any, with_each_seed};

#[test]
fn a_refusal_a_peek_and_a_cost_of_0_change_nothing() {
    with_each_seed(|rng| {
        for text in UNUSUAL_QUOTAS {
            let quota: Quota = text.parse().unwrap();
            let mut state = State::New;
            let mut last = LastRequest::new(rng);
            for _ in 0..300 {
                let t = next_time(rng, &quota, &last);
                let (verb, cost) = (any(rng, &VERBS), next_cost(rng, &quota));
                // Repeated full charges are tested in `debt`.
                let cost = cost.min(quota.capacity().saturating_mul(2));
                let before = state.clone();
                let verdict = evaluate(&quota, &mut state, verb, cost, t);
                let idle = verb == Verb::Peek || (cost == 0 && verb != Verb::Reset);
                if idle || !verdict.allowed() {
                    assert_eq!(state, before, "{quota}: {verb} {cost} at {t}");
                    assert_eq!(verdict.granted(), 0);
                }
                last.update(t, &verdict);
            }
        }
    });
}

#[test]
fn a_cost_of_0_is_admitted_at_the_maximum_debt() {
    for text in UNUSUAL_QUOTAS {
        let quota: Quota = text.parse().unwrap();
        let mut state = State::New;
        evaluate(&quota, &mut state, Verb::Charge, u32::MAX, 5);
        for verb in [
            Verb::Check,
            Verb::Peek,
            Verb::Take,
            Verb::Charge,
            Verb::Refund,
        ] {
            let verdict = evaluate(&quota, &mut state, verb, 0, 5);
            assert!(verdict.allowed(), "{quota} {verb}");
            let fields = (verdict.granted(), verdict.remaining, verdict.delay_us());
            assert_eq!(fields, (0, 0, 0), "{quota} {verb}");
        }
    }
}

#[test]
fn a_cost_above_the_capacity_never_fits_but_can_be_taken_in_part() {
    for text in UNUSUAL_QUOTAS {
        let quota: Quota = text.parse().unwrap();
        let more = quota.capacity() + 1;
        for verb in [Verb::Check, Verb::Peek] {
            let verdict = evaluate(&quota, &mut State::New, verb, more, 5);
            assert_eq!(verdict.retry(), Some(Retry::Never), "{quota} {verb}");
            assert_eq!(verdict.retry_after_us(), None);
            assert_eq!(verdict.remaining, quota.capacity());
        }
        let taken = evaluate(&quota, &mut State::New, Verb::Take, more, 5);
        assert_eq!(taken.granted(), quota.capacity(), "{quota}");
    }
}
