//! Requests with several limits of different algorithms, and calls with several requests.

use fastrand::Rng;
use tallygate_core::{Quota, Verb};
use tallygate_testkit::{any, with_each_seed};

use super::{Call, Counter, Request, RustAndLua};
use crate::changed_quota::change_quota;
use crate::long_traces::{LastRequest, VERBS, any_quota, next_time};
use crate::multi_limit::any_costs;

/// A request over some of the counters, each at most once.
fn any_request(rng: &mut Rng, both: &RustAndLua, counters: usize) -> Request {
    let mut all: Vec<usize> = (0..both.counters.len()).collect();
    rng.shuffle(&mut all);
    all.truncate(counters);
    let quotas: Vec<Quota> = all.iter().map(|&i| both.counters[i].quota).collect();
    Request {
        verb: any(rng, &VERBS),
        costs: any_costs(rng, &quotas, 0),
        counters: all,
        times: 1,
    }
}

fn run(
    rng: &mut Rng,
    both: &mut RustAndLua,
    steps: usize,
    call: impl Fn(&mut Rng, &RustAndLua) -> Vec<Request>,
) {
    let mut last = LastRequest::new(rng);
    for _ in 0..steps {
        let requests = call(rng, both);
        let quota = both.counters[requests[0].counters[0]].quota;
        let call = Call {
            t: next_time(rng, &quota, &last).min(1 << 52),
            requests,
        };
        let decisions = both.run(std::slice::from_ref(&call));
        last.update(call.t, decisions[0][0].verdict());
        for counter in &mut both.counters {
            if rng.u8(..40) == 0 {
                counter.quota = change_quota(rng, &counter.quota);
            }
        }
    }
}

#[test]
fn lua_and_rust_agree_over_several_limits() {
    with_each_seed(|rng| {
        for _ in 0..40 {
            let quotas: Vec<Quota> = (0..rng.usize(2..6)).map(|_| any_quota(rng)).collect();
            let mut both = RustAndLua::new(quotas.into_iter().map(Counter::new));
            let several = |rng: &mut Rng, both: &RustAndLua| {
                let counters = rng.usize(1..=both.counters.len());
                vec![any_request(rng, both, counters)]
            };
            run(rng, &mut both, 100, several);
        }
    });
}

/// Small quotas: one limit refuses, another reduces a grant.
#[test]
fn lua_and_rust_agree_over_limits_that_often_refuse() {
    let texts = [
        "fixed-window 5/s",
        "sliding-window-log 4/s",
        "6/s",
        "token-bucket 5/s burst 4",
        "leaky-bucket 5/s burst 3",
        "leaky-bucket 5/s queue 6",
    ];
    with_each_seed(|rng| {
        for _ in 0..10 {
            let mut both = RustAndLua::new(texts.map(Counter::parse));
            let some = |rng: &mut Rng, both: &RustAndLua| {
                let counters = rng.usize(2..=both.counters.len());
                let mut request = any_request(rng, both, counters);
                // Half the time the same for all, otherwise some are 0.
                let same = rng.bool().then(|| rng.u32(..7));
                let cost = |_| same.unwrap_or_else(|| rng.u32(..7).saturating_sub(1));
                request.costs = (0..counters).map(cost).collect();
                vec![request]
            };
            run(rng, &mut both, 200, some);
        }
    });
}

/// A counter may occur in several requests of a call; each sees the result of the one before.
#[test]
fn lua_and_rust_agree_over_batches() {
    with_each_seed(|rng| {
        for _ in 0..40 {
            let quotas: Vec<Quota> = (0..rng.usize(2..12)).map(|_| any_quota(rng)).collect();
            let mut both = RustAndLua::new(quotas.into_iter().map(Counter::new));
            let batch = |rng: &mut Rng, both: &RustAndLua| {
                let requests = any(rng, &[1, 2, 5, 16]);
                let request = |_| {
                    let counters = any(rng, &[1, 1, 1, 1, 2, 3]);
                    any_request(rng, both, counters)
                };
                (0..requests).map(request).collect()
            };
            run(rng, &mut both, 60, batch);
        }
    });
}

/// Consecutive equal requests share an argument; others are mixed in.
#[test]
fn lua_and_rust_agree_over_batches_of_equal_requests() {
    with_each_seed(|rng| {
        for _ in 0..40 {
            let quotas = [any_quota(rng), any_quota(rng)];
            let counters = (0..rng.usize(3..8)).map(|i| Counter::new(quotas[i % 5 / 4]));
            let mut both = RustAndLua::new(counters);
            let batch = |rng: &mut Rng, both: &RustAndLua| {
                let mut requests: Vec<Request> = Vec::new();
                for _ in 0..any(rng, &[2, 5, 16]) {
                    let counters = any(rng, &[1, 1, 1, 1, 1, 2]);
                    let mut request = any_request(rng, both, counters);
                    if let Some(last) = requests.last()
                        && rng.u8(..4) > 0
                    {
                        request.verb = last.verb;
                        request.costs.fill(last.costs[0]);
                    }
                    requests.push(request);
                }
                requests
            };
            run(rng, &mut both, 60, batch);
        }
    });
}

/// Three limits per request, so that a call has hundreds of keys, which occur repeatedly.
#[test]
fn lua_and_rust_agree_over_calls_of_hundreds_of_keys() {
    let kinds: [&[&str]; 3] = [
        &["fixed-window 5/s", "6/s", "token-bucket 5/s burst 4"],
        &["leaky-bucket 5/s queue 6"],
        &["fixed-window 5/s", "sliding-window-log 4/s"],
    ];
    with_each_seed(|rng| {
        for (texts, counters) in kinds.iter().zip([400, 100, 6]) {
            let counters = texts.iter().cycle().take(counters);
            let mut both = RustAndLua::new(counters.map(|text| Counter::parse(text)));
            let many = |rng: &mut Rng, both: &RustAndLua| {
                (0..128).map(|_| any_request(rng, both, 3)).collect()
            };
            run(rng, &mut both, 4, many);
        }
    });
}

#[test]
fn requests_for_one_key_in_a_call_are_decided_in_order() {
    for text in [
        "fixed-window 20/h",
        "20/h",
        "token-bucket 20/h",
        "leaky-bucket 20/h queue 20",
        "sliding-window-log 20/h",
    ] {
        let mut both = RustAndLua::new([Counter::parse(text), Counter::parse(text)]);
        let request = |counter: usize| Request {
            counters: vec![counter],
            verb: Verb::Check,
            costs: vec![1],
            times: 1,
        };
        let call = Call {
            t: 1_700_000_000_000_000,
            requests: (0..300).map(|i| request(usize::from(i % 7 == 0))).collect(),
        };
        let decisions = &both.run(&[call])[0];
        let admitted = decisions.iter().filter(|one| one.verdict().allowed());
        assert_eq!(admitted.count(), 40, "{text}");
    }
}
