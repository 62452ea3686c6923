//! Random traces of more than a hundred thousand steps for each algorithm. Many counters in
//! parallel, so that one round trip has a step of each.

use fastrand::Rng;
use tallygate_core::{Algorithm, Quota};
use tallygate_testkit::{any, with_each_seed};

use super::{Call, Counter, RustAndLua};
use crate::changed_quota::change_quota;
use crate::long_traces::{LastRequest, UNUSUAL_QUOTAS, VERBS, any_quota, next_cost, next_time};

/// Per seed; there are four.
const STEPS: usize = 26_000;
const COUNTERS: usize = 32;

fn quotas(rng: &mut Rng, algorithm: Algorithm) -> Vec<Quota> {
    let unusual = UNUSUAL_QUOTAS
        .iter()
        .map(|text| text.parse::<Quota>().unwrap());
    let any = std::iter::repeat_with(|| any_quota(rng));
    unusual
        .chain(any)
        .filter(|quota| quota.algorithm() == algorithm)
        .take(COUNTERS)
        .collect()
}

/// Decides a request on every counter, based on its last decision.
fn step(rng: &mut Rng, both: &mut RustAndLua, lasts: &mut [LastRequest]) {
    let counters = both.counters.iter().zip(lasts.iter()).enumerate();
    let call = |(i, (counter, last)): (usize, (&Counter, &LastRequest))| {
        let (quota, verb) = (&counter.quota, any(rng, &VERBS));
        Call::single(i, next_time(rng, quota, last), verb, next_cost(rng, quota))
    };
    let calls: Vec<Call> = counters.map(call).collect();
    let decisions = both.run(&calls);
    for ((call, decision), last) in calls.iter().zip(decisions).zip(lasts) {
        last.update(call.t, decision[0].verdict());
    }
}

fn trace(algorithm: Algorithm) {
    with_each_seed(|rng| {
        // New counters for each quarter: the clock may step back far.
        for _ in 0..4 {
            let quotas = quotas(rng, algorithm);
            let mut both = RustAndLua::new(quotas.into_iter().map(Counter::new));
            let mut lasts: Vec<LastRequest> =
                (0..COUNTERS).map(|_| LastRequest::new(rng)).collect();
            for _ in 0..STEPS / COUNTERS / 4 {
                step(rng, &mut both, &mut lasts);
            }
        }
    });
}

#[test]
fn a_fixed_window_in_lua_and_rust_agrees() {
    trace(Algorithm::FixedWindow);
}

#[test]
fn a_sliding_log_in_lua_and_rust_agrees() {
    trace(Algorithm::SlidingWindowLog);
}

#[test]
fn a_sliding_counter_in_lua_and_rust_agrees() {
    trace(Algorithm::SlidingWindowCounter);
}

#[test]
fn a_token_bucket_in_lua_and_rust_agrees() {
    trace(Algorithm::TokenBucket);
}

#[test]
fn a_policing_bucket_in_lua_and_rust_agrees() {
    trace(Algorithm::LeakyPolicing);
}

#[test]
fn a_shaping_bucket_in_lua_and_rust_agrees() {
    trace(Algorithm::LeakyShaping);
}

#[test]
fn lua_and_rust_agree_under_changing_quotas() {
    with_each_seed(|rng| {
        for _ in 0..4 {
            let quotas: Vec<Quota> = (0..COUNTERS).map(|_| any_quota(rng)).collect();
            let mut both = RustAndLua::new(quotas.into_iter().map(Counter::new));
            let mut lasts: Vec<LastRequest> =
                (0..COUNTERS).map(|_| LastRequest::new(rng)).collect();
            for _ in 0..100 {
                step(rng, &mut both, &mut lasts);
                for counter in &mut both.counters {
                    if rng.u8(..6) == 0 {
                        counter.quota = change_quota(rng, &counter.quota);
                    }
                }
            }
        }
    });
}

/// Minimum and maximum limits, and maximum levels.
#[test]
fn lua_and_rust_agree_when_the_limit_of_a_bucket_changes_by_orders_of_magnitude() {
    let texts = |period: &str| {
        let limits = [1, 2, 999_999_937, 1_000_000_000];
        limits.map(|limit| format!("token-bucket {limit}/{period} burst 1"))
    };
    with_each_seed(|rng| {
        for period in ["ms", "s", "7min", "30d", "365d23h59min59s999ms", "366d"] {
            let quotas: Vec<Quota> = texts(period).map(|text| text.parse().unwrap()).into();
            let mut both = RustAndLua::new((0..COUNTERS).map(|_| Counter::new(any(rng, &quotas))));
            let mut lasts: Vec<LastRequest> =
                (0..COUNTERS).map(|_| LastRequest::new(rng)).collect();
            for _ in 0..60 {
                step(rng, &mut both, &mut lasts);
                for counter in &mut both.counters {
                    counter.quota = any(rng, &quotas);
                }
            }
        }
    });
}
