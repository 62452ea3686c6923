//! Equal checks that a script decides in one step, compared with Rust one by one.

use fastrand::Rng;
use tallygate_core::{Quota, Verb};
use tallygate_testkit::{any, with_each_seed};

use super::{Call, Counter, Request, RustAndLua};
use crate::changed_quota::change_quota;
use crate::long_traces::{LastRequest, UNUSUAL_QUOTAS, VERBS, any_quota, next_cost, next_time};

const SMALL: [&str; 8] = [
    "fixed-window 9/s",
    "sliding-window-log 8/s",
    "9/s",
    "token-bucket 5/s burst 9",
    "leaky-bucket 7/s burst 8",
    "leaky-bucket 7/s queue 9",
    "token-bucket 1000000000/s burst 12",
    "sliding-window-log 3/min",
];

/// Checks several times, or any verb once.
fn any_request(
    rng: &mut Rng,
    counters: Vec<usize>,
    mut cost: impl FnMut(&mut Rng) -> u32,
) -> Request {
    let times = any(rng, &[1, 1, 2, 3, 5, 20, 1_000]);
    Request {
        verb: if times > 1 {
            Verb::Check
        } else {
            any(rng, &VERBS)
        },
        costs: counters.iter().map(|_| cost(rng)).collect(),
        counters,
        times,
    }
}

/// One request on each counter in each step.
fn trace(
    rng: &mut Rng,
    quotas: impl Iterator<Item = Quota>,
    steps: usize,
    cost: fn(&mut Rng, &Quota) -> u32,
) {
    let mut both = RustAndLua::new(quotas.map(Counter::new));
    let mut lasts: Vec<LastRequest> = both
        .counters
        .iter()
        .map(|_| LastRequest::new(rng))
        .collect();
    for _ in 0..steps {
        let counters = both.counters.iter().zip(&lasts).enumerate();
        let call = |(i, (counter, last)): (usize, (&Counter, &LastRequest))| {
            let quota = counter.quota;
            let cost = cost(rng, &quota);
            Call {
                t: next_time(rng, &quota, last).min(1 << 52),
                requests: vec![any_request(rng, vec![i], |_| cost)],
            }
        };
        let calls: Vec<Call> = counters.map(call).collect();
        let decisions = both.run(&calls);
        for ((call, decision), last) in calls.iter().zip(decisions).zip(&mut lasts) {
            last.update(call.t, decision[0].verdict());
        }
        for counter in &mut both.counters {
            if rng.u8(..40) == 0 {
                counter.quota = change_quota(rng, &counter.quota);
            }
        }
    }
}

#[test]
fn repeated_checks_are_decided_as_single_ones() {
    with_each_seed(|rng| {
        let unusual = UNUSUAL_QUOTAS.iter().map(|text| text.parse().unwrap());
        let any: Vec<Quota> = (0..24).map(|_| any_quota(rng)).collect();
        trace(rng, unusual.chain(any), 150, next_cost);
    });
}

/// Some of the checks fit and the others do not.
#[test]
fn repeated_checks_that_partly_fit_are_decided_as_single_ones() {
    with_each_seed(|rng| {
        let quotas = SMALL.iter().cycle().take(32);
        let quotas = quotas.map(|text| text.parse().unwrap());
        trace(rng, quotas, 300, |rng, _| rng.u32(..5));
    });
}

#[test]
fn repeated_checks_of_several_limits_are_all_or_nothing_each() {
    with_each_seed(|rng| {
        for _ in 0..4 {
            let mut both = RustAndLua::new(SMALL.map(Counter::parse));
            let mut last = LastRequest::new(rng);
            for _ in 0..200 {
                let mut counters: Vec<usize> = (0..both.counters.len()).collect();
                rng.shuffle(&mut counters);
                counters.truncate(rng.usize(2..5));
                let quota = both.counters[counters[0]].quota;
                let call = Call {
                    t: next_time(rng, &quota, &last).min(1 << 52),
                    requests: vec![any_request(rng, counters, |rng| rng.u32(..4))],
                };
                let decisions = both.run(std::slice::from_ref(&call));
                last.update(call.t, decisions[0][0].verdict());
            }
        }
    });
}

/// Between requests on the same and on other counters.
#[test]
fn repeated_checks_in_batches_are_decided_in_order() {
    with_each_seed(|rng| {
        let mut both = RustAndLua::new(SMALL.map(Counter::parse));
        let mut last = LastRequest::new(rng);
        for _ in 0..200 {
            let requests = (0..rng.usize(1..12)).map(|_| {
                let counter = rng.usize(..SMALL.len());
                let cost = rng.u32(..4);
                any_request(rng, vec![counter], |_| cost)
            });
            let requests: Vec<Request> = requests.collect();
            let quota = both.counters[requests[0].counters[0]].quota;
            let call = Call {
                t: next_time(rng, &quota, &last).min(1 << 52),
                requests,
            };
            let decisions = both.run(std::slice::from_ref(&call));
            last.update(call.t, decisions[0][0].verdict());
        }
    });
}
