//! Over any time, no client is admitted more than the documented worst case.

use fastrand::Rng;
use tallygate_core::{Algorithm, Quota, State, Verb, evaluate};

use tallygate_testkit::{any, with_each_seed};

const QUOTAS: [&str; 18] = [
    "fixed-window 1/ms",
    "fixed-window 3/ms",
    "fixed-window 7/min",
    "sliding-window-log 1/ms",
    "sliding-window-log 4/ms",
    "sliding-window-log 7/min",
    "1/ms",
    "2/ms",
    "3/ms",
    "5/2ms",
    "7/min",
    "97/d",
    "token-bucket 7/min burst 3",
    "token-bucket 1000003/d burst 5",
    "token-bucket 3/ms burst 7",
    "leaky-bucket 3/ms burst 2",
    "leaky-bucket 7/ms queue 4",
    "leaky-bucket 7/min queue 3",
];

/// The maximum units in `x` microseconds, both ends included, times the period.
fn worst_case(quota: &Quota, x: u128) -> u128 {
    let (limit, period) = (u128::from(quota.limit()), u128::from(quota.period_us()));
    let capacity = u128::from(quota.capacity());
    match quota.algorithm() {
        Algorithm::FixedWindow => limit * (x.div_ceil(period) + 1) * period,
        // Exact: any half-open period contains at most the limit.
        Algorithm::SlidingWindowLog => limit * (x / period + 1) * period,
        Algorithm::SlidingWindowCounter => limit * (period + x) + period,
        Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
            capacity * period + limit * x
        }
        other => unreachable!("{other:?} is not among the basic ones"),
    }
}

/// Runs 400 requests. Returns the time, the units and the start time of each admission.
fn admissions(
    quota: &Quota,
    begin: u64,
    mut next: impl FnMut(u64, Option<u64>) -> (u64, Verb, u32),
) -> Vec<(u64, u64, u64)> {
    let mut state = State::New;
    let mut admitted = Vec::new();
    let (mut t, mut wait) = (begin, None);
    for _ in 0..400 {
        let (dt, verb, cost) = next(t, wait);
        t += dt;
        let verdict = evaluate(quota, &mut state, verb, cost, t);
        wait = verdict.retry_after_us();
        if verdict.granted() > 0 {
            admitted.push((t, u64::from(verdict.granted()), t + verdict.delay_us()));
        }
    }
    admitted
}

fn assert_within_worst_case(quota: &Quota, admitted: &[(u64, u64, u64)]) {
    for (i, &(from, ..)) in admitted.iter().enumerate() {
        let mut units = 0;
        for &(to, granted, _) in &admitted[i..] {
            units += u128::from(granted);
            let max = worst_case(quota, u128::from(to - from));
            assert!(
                units * u128::from(quota.period_us()) <= max,
                "{quota}: {units} units from {from} to {to}"
            );
        }
    }
}

#[test]
fn a_greedy_client_stays_within_the_worst_case() {
    for text in QUOTAS {
        let quota: Quota = text.parse().unwrap();
        let period = quota.period_us();
        let begin = 1_700_000_000_000_000 / period * period;
        for offset in [0, 1, period / 3, period / 2, period - 1] {
            let one_by_one = |_, wait: Option<u64>| (wait.unwrap_or(0), Verb::Check, 1);
            assert_within_worst_case(&quota, &admissions(&quota, begin + offset, one_by_one));
            let all_units = |_, wait: Option<u64>| (wait.unwrap_or(0), Verb::Take, u32::MAX);
            assert_within_worst_case(&quota, &admissions(&quota, begin + offset, all_units));
            let whole = |_, wait: Option<u64>| (wait.unwrap_or(0), Verb::Check, quota.capacity());
            assert_within_worst_case(&quota, &admissions(&quota, begin + offset, whole));
        }
    }
}

/// The worst case of aligned windows: a burst at the end of one and at the start of the next.
#[test]
fn bursts_at_window_boundaries_stay_within_the_worst_case() {
    for text in QUOTAS {
        let quota: Quota = text.parse().unwrap();
        let period = quota.period_us();
        let begin = 1_700_000_000_000_000 / period * period;
        for before in [0, 1, 2, period / 4, period / 2] {
            for quiet in 1..4 {
                let mut turn = 0;
                let at_boundaries = |t: u64, wait: Option<u64>| {
                    turn += 1;
                    let to_boundary = period - t % period;
                    let dt = match turn % (quiet + 2) {
                        0 => to_boundary + period - 1 - before.min(period - 1),
                        1 => to_boundary,
                        _ => wait.unwrap_or(0),
                    };
                    (dt, Verb::Take, u32::MAX)
                };
                assert_within_worst_case(&quota, &admissions(&quota, begin, at_boundaries));
            }
        }
    }
}

#[test]
fn random_clients_stay_within_the_worst_case() {
    with_each_seed(|rng| {
        for text in QUOTAS {
            let quota: Quota = text.parse().unwrap();
            for _ in 0..6 {
                let busy = any(rng, &[1, 3, 20]);
                let random = |t: u64, wait: Option<u64>| random_request(rng, &quota, busy, t, wait);
                let begin = 1_700_000_000_000_000;
                assert_within_worst_case(&quota, &admissions(&quota, begin, random));
            }
        }
    });
}

fn random_request(
    rng: &mut Rng,
    quota: &Quota,
    busy: u64,
    t: u64,
    wait: Option<u64>,
) -> (u64, Verb, u32) {
    let period = quota.period_us();
    let dt = match rng.u8(..6) {
        0 => rng.u64(..period / busy),
        1 => period - t % period,
        2 => period - 1 - t % period,
        3 => wait.unwrap_or(1),
        _ => 0,
    };
    let verb = any(rng, &[Verb::Check, Verb::Take]);
    (dt, verb, rng.u32(1..=quota.capacity()))
}

/// Admitted requests start at the drain rate, up to the rounding of a delay.
#[test]
fn a_shaping_bucket_releases_requests_at_its_rate() {
    with_each_seed(|rng| {
        for text in ["leaky-bucket 7/ms queue 4", "leaky-bucket 7/min queue 9"] {
            let quota: Quota = text.parse().unwrap();
            let random = |t: u64, wait: Option<u64>| random_request(rng, &quota, 3, t, wait);
            let admitted = admissions(&quota, 1_700_000_000_000_000, random);
            for (i, &(_, _, from)) in admitted.iter().enumerate() {
                let mut units = 0;
                for pair in admitted[i..].windows(2) {
                    units += pair[0].1;
                    let out = pair[1].2 - from + 1;
                    assert!(units * quota.period_us() <= out * u64::from(quota.limit()));
                }
            }
        }
    });
}
