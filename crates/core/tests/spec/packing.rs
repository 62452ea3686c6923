//! Packed states: lossless, within their bits, with the right expiry, evaluated like unpacked ones.

use tallygate_core::{
    Change, Entry, MAX_TIME_US, Quota, State, Verb, evaluate, evaluate_all, evaluate_packed,
};

use crate::long_traces::{LastRequest, UNUSUAL_QUOTAS, VERBS, any_quota, next_cost, next_time};
use tallygate_testkit::{any, with_each_seed};

/// Calls the test with the state and the verdict's reset after every request that changed the
/// state.
fn for_every_write(test: impl Fn(&Quota, &State, u64, u64)) {
    with_each_seed(|rng| {
        let unusual = UNUSUAL_QUOTAS.map(|text| text.parse().unwrap());
        let random: [Quota; 100] = std::array::from_fn(|_| any_quota(rng));
        for quota in unusual.iter().chain(&random) {
            let mut state = State::New;
            let mut last = LastRequest::new(rng);
            for _ in 0..100 {
                let t = next_time(rng, quota, &last).min(MAX_TIME_US);
                let (verb, cost) = (any(rng, &VERBS), next_cost(rng, quota));
                let cost = cost.min(quota.capacity().saturating_mul(3));
                let before = state.clone();
                let verdict = evaluate(quota, &mut state, verb, cost, t);
                last.update(t, &verdict);
                if state != before && state != State::New {
                    test(quota, &state, t, verdict.reset_after_us);
                }
            }
        }
    });
}

#[test]
fn a_packed_state_unpacks_to_itself() {
    for_every_write(|quota, state, _, _| {
        let packed = state.pack(quota);
        assert_eq!(packed.is_none(), quota.algorithm().is_log());
        if let Some(packed) = packed {
            assert_eq!(&State::unpack(quota, packed), state, "{quota}");
        }
    });
}

#[test]
fn packed_numbers_stay_within_their_bits() {
    for_every_write(|quota, state, _, _| {
        if let Some(packed) = state.pack(quota) {
            assert!(packed.expires_at_us < 1 << 54, "{quota} {packed:?}");
            assert!(packed.a < 1 << 53, "{quota} {packed:?}");
            assert!(packed.b < 1 << 60, "{quota} {packed:?}");
        }
    });
}

#[test]
fn a_new_state_is_not_packed() {
    for text in UNUSUAL_QUOTAS {
        assert_eq!(State::New.pack(&text.parse().unwrap()), None);
    }
}

#[test]
fn the_largest_debt_at_the_latest_time_packs() {
    for text in UNUSUAL_QUOTAS {
        let quota: Quota = text.parse().unwrap();
        let mut state = State::New;
        evaluate(&quota, &mut state, Verb::Charge, u32::MAX, u64::MAX);
        if let Some(packed) = state.pack(&quota) {
            assert_eq!(State::unpack(&quota, packed), state, "{quota}");
            assert!(packed.expires_at_us < 1 << 54);
        }
    }
}

fn expires_at(quota: &Quota, state: &State) -> u64 {
    match state {
        State::Log(log) => log.expires_at_us(),
        other => other.pack(quota).unwrap().expires_at_us,
    }
}

#[test]
fn a_stored_counter_lives_until_it_is_as_new() {
    for_every_write(|quota, state, t, reset| {
        assert!(
            expires_at(quota, state) >= t + reset,
            "{quota} {state:?} at {t}"
        );
    });
}

#[test]
fn a_stored_counter_expires_at_most_one_span_late() {
    for_every_write(|quota, state, t, reset| {
        let max = t + reset + quota.span_us();
        let until = expires_at(quota, state);
        assert!(
            until <= max,
            "{quota} {state:?} written at {t}: kept until {until}, as new at {} + a span of {}",
            t + reset,
            quota.span_us()
        );
    });
}

#[test]
fn packed_and_unpacked_states_are_evaluated_alike() {
    with_each_seed(|rng| {
        let unusual = UNUSUAL_QUOTAS.map(|text| text.parse().unwrap());
        let random: [Quota; 200] = std::array::from_fn(|_| any_quota(rng));
        let packable = |quota: &&Quota| !quota.algorithm().is_log();
        for quota in unusual.iter().chain(&random).filter(packable) {
            let mut state = State::New;
            let mut last = LastRequest::new(rng);
            for _ in 0..100 {
                let t = next_time(rng, quota, &last);
                let (verb, cost) = (any(rng, &VERBS), next_cost(rng, quota));
                let before = state.pack(quota);
                let effective_time_us = state.effective_time_us(quota, t);
                let verdict = evaluate(quota, &mut state, verb, cost, t);
                last.update(t, &verdict);
                let Some(before) = before else { continue };
                let request = format!("{quota}: {verb} {cost} at {t}");
                let packed = evaluate_packed(quota, before, verb, cost, t).unwrap();
                let after = match packed.change {
                    Change::None => Some(before),
                    Change::Write(packed) => Some(packed),
                    Change::Delete => None,
                };
                assert_eq!(packed.verdict, verdict, "{request}");
                assert_eq!(packed.effective_time_us, effective_time_us, "{request}");
                assert_eq!(after, state.pack(quota), "{request}");
            }
        }
    });
}

/// A single log may take the fast path; `evaluate_all` never does.
#[test]
fn the_fast_and_the_general_path_of_a_log_agree() {
    with_each_seed(|rng| {
        let periods = ["10ms", "1s", "1h", "30d"];
        let limits = [1, 2, 7, 40, 1_000];
        for (period, limit) in periods.iter().flat_map(|p| limits.map(|limit| (p, limit))) {
            let text = format!("sliding-window-log {limit}/{period}");
            let quota: Quota = text.parse().unwrap();
            let (mut state, mut general) = (State::New, State::New);
            let mut t = any(rng, &[0, 1_700_000_000_000_000, MAX_TIME_US - 1]);
            // Up to twice the limit per period: entries are added and expire one by one, some
            // share a time, some are refused.
            let pace = 2 * quota.period_us() / u64::from(limit) / rng.u64(1..=4);
            for _ in 0..1_000 {
                t += rng.u64(..=pace);
                let (verb, cost) = match rng.u8(..100) {
                    0 => (Verb::Refund, rng.u32(..3)),
                    1 => (Verb::Charge, rng.u32(..=limit)),
                    2 => (Verb::Check, rng.u32(..=limit + 1)),
                    3.. => (Verb::Check, 1),
                };
                let request = format!("{quota}: {verb} {cost} at {t}");
                let verdict = evaluate(&quota, &mut state, verb, cost, t);
                let decision = evaluate_all(&mut [Entry::new(&quota, &mut general, cost)], verb, t);
                assert_eq!(verdict, *decision.verdict(), "{request}");
                assert_eq!(state, general, "{request}");
            }
        }
    });
}
