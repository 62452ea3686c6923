//! Rates are exact: years of traffic match the formula.

use tallygate_core::{Quota, State, Verb, evaluate};

const YEAR: u64 = 365 * 86_400 * 1_000_000;

/// Takes all units every `step` microseconds, before the bucket is full. Returns their sum.
fn take_all(quota: &Quota, step: u64, end: u64) -> u64 {
    let mut state = State::New;
    let begin = 1_700_000_000_000_000;
    let mut taken = 0;
    let mut t = 0;
    while t <= end {
        let verdict = evaluate(quota, &mut state, Verb::Take, u32::MAX, begin + t);
        taken += u64::from(verdict.granted());
        t += step;
    }
    let last = u128::from(t - step);
    let refilled = last * u128::from(quota.limit()) / u128::from(quota.period_us());
    assert_eq!(
        u128::from(taken),
        u128::from(quota.capacity()) + refilled,
        "{quota}"
    );
    taken
}

#[test]
fn ten_years_at_seven_per_minute_are_exact() {
    let quota: Quota = "token-bucket 7/min burst 70".parse().unwrap();
    let minutes = 10 * YEAR / 60_000_000;
    // 500 s are 58 1/3 units; the last step is at the end of the tenth year.
    assert_eq!(take_all(&quota, 500_000_000, 10 * YEAR), 70 + 7 * minutes);
}

#[test]
fn uneven_steps_and_rates_are_exact() {
    for (text, step) in [
        ("token-bucket 7/min", 51_428_569),
        ("token-bucket 97/d burst 50", 40_000_000_007),
        ("token-bucket 1000003/d burst 1000", 86_011_111),
        ("token-bucket 1000000000/30d burst 1000000", 2_500_000_003),
        ("leaky-bucket 7/min burst 11", 77_777_777),
        ("leaky-bucket 7/min queue 11", 77_777_773),
        ("token-bucket 999999937/366d burst 1000000", 30_000_000_011),
    ] {
        take_all(&text.parse().unwrap(), step, YEAR / 2);
    }
}

#[test]
fn a_month_of_single_requests_at_retry_after_is_evenly_spaced() {
    let quota: Quota = "token-bucket 7/min burst 1".parse().unwrap();
    let mut state = State::New;
    let (mut t, mut admitted) = (0, 0_u64);
    let end = 30 * 86_400_000_000;
    while t <= end {
        let verdict = evaluate(&quota, &mut state, Verb::Check, 1, t);
        match verdict.retry_after_us() {
            Some(wait) => t += wait,
            None => admitted += 1,
        }
    }
    // A bucket of 1 accumulates nothing, so each gap is 60/7 s, rounded up to a microsecond.
    let gap = 60_000_000_u64.div_ceil(7);
    assert_eq!(admitted, 1 + end / gap);
}
