//! Long random traces, a hundred thousand steps and more for each behaviour: many counters side
//! by side, so that a round trip carries a step of each.

use fastrand::Rng;
use tallygate_core::{Algorithm, Quota};
use tallygate_testkit::{any, with_each_seed};

use super::{Both, Call, Counter};
use crate::changed_quota::changed;
use crate::long_traces::{AWKWARD, Last, VERBS, any_quota, next_cost, next_time};

/// Steps that four seeds make into more than a hundred thousand.
const STEPS: usize = 26_000;
const LANES: usize = 32;

fn quotas(rng: &mut Rng, algorithm: Algorithm) -> Vec<Quota> {
    let awkward = AWKWARD.iter().map(|text| text.parse::<Quota>().unwrap());
    let any = std::iter::repeat_with(|| any_quota(rng));
    awkward
        .chain(any)
        .filter(|quota| quota.algorithm() == algorithm)
        .take(LANES)
        .collect()
}

/// Walks all counters on, each from what it was last answered.
fn walk(rng: &mut Rng, both: &mut Both, lasts: &mut [Last]) {
    let lanes = both.counters.iter().zip(lasts.iter()).enumerate();
    let call = |(i, (counter, last)): (usize, (&Counter, &Last))| {
        let (quota, verb) = (&counter.quota, any(rng, &VERBS));
        Call::one(i, next_time(rng, quota, last), verb, next_cost(rng, quota))
    };
    let calls: Vec<Call> = lanes.map(call).collect();
    let answers = both.make(&calls);
    for ((call, answer), last) in calls.iter().zip(answers).zip(lasts) {
        last.answered(call.t, answer[0].verdict());
    }
}

fn trace(algorithm: Algorithm) {
    with_each_seed(|rng| {
        // New counters now and then: time goes back in every trace, but not everything.
        for _ in 0..4 {
            let quotas = quotas(rng, algorithm);
            let mut both = Both::new(quotas.into_iter().map(Counter::new));
            let mut lasts: Vec<Last> = (0..LANES).map(|_| Last::begin(rng)).collect();
            for _ in 0..STEPS / LANES / 4 {
                walk(rng, &mut both, &mut lasts);
            }
        }
    });
}

#[test]
fn a_fixed_window_and_its_twin_agree() {
    trace(Algorithm::FixedWindow);
}

#[test]
fn a_sliding_log_and_its_twin_agree() {
    trace(Algorithm::SlidingWindowLog);
}

#[test]
fn a_sliding_counter_and_its_twin_agree() {
    trace(Algorithm::SlidingWindowCounter);
}

#[test]
fn a_token_bucket_and_its_twin_agree() {
    trace(Algorithm::TokenBucket);
}

#[test]
fn a_policing_bucket_and_its_twin_agree() {
    trace(Algorithm::LeakyPolicing);
}

#[test]
fn a_shaping_bucket_and_its_twin_agree() {
    trace(Algorithm::LeakyShaping);
}

#[test]
fn twins_agree_under_changing_quotas() {
    with_each_seed(|rng| {
        for _ in 0..4 {
            let quotas: Vec<Quota> = (0..LANES).map(|_| any_quota(rng)).collect();
            let mut both = Both::new(quotas.into_iter().map(Counter::new));
            let mut lasts: Vec<Last> = (0..LANES).map(|_| Last::begin(rng)).collect();
            for _ in 0..100 {
                walk(rng, &mut both, &mut lasts);
                for counter in &mut both.counters {
                    if rng.u8(..6) == 0 {
                        counter.quota = changed(rng, &counter.quota);
                    }
                }
            }
        }
    });
}

/// The least and the most that a limit can be, and levels as deep as they go.
#[test]
fn twins_agree_when_a_buckets_limit_leaps() {
    let texts = |period: &str| {
        let limits = [1, 2, 999_999_937, 1_000_000_000];
        limits.map(|limit| format!("token-bucket {limit}/{period} burst 1"))
    };
    with_each_seed(|rng| {
        for period in ["ms", "s", "7min", "30d", "365d23h59min59s999ms", "366d"] {
            let quotas: Vec<Quota> = texts(period).map(|text| text.parse().unwrap()).into();
            let mut both = Both::new((0..LANES).map(|_| Counter::new(any(rng, &quotas))));
            let mut lasts: Vec<Last> = (0..LANES).map(|_| Last::begin(rng)).collect();
            for _ in 0..60 {
                walk(rng, &mut both, &mut lasts);
                for counter in &mut both.counters {
                    counter.quota = any(rng, &quotas);
                }
            }
        }
    });
}
