//! Requests with several limits: all or nothing, and the binding limit.

use tallygate_core::{Entry, Quota, State, Verb, evaluate, evaluate_all};

use crate::compare_with_model::{Pair, step_all};
use crate::long_traces::{LastRequest, UNUSUAL_QUOTAS, VERBS, any_quota, next_cost, next_time};
use tallygate_testkit::{any, with_each_seed};

const TINY: [&str; 8] = [
    "fixed-window 3/ms",
    "sliding-window-log 2/2ms",
    "3/ms",
    "4/2ms",
    "token-bucket 5/ms burst 3",
    "leaky-bucket 2/ms burst 4",
    "leaky-bucket 3/ms queue 3",
    "leaky-bucket 7/2ms queue 5",
];

/// A cost per limit: half the time the same for all, chosen for the quota at `i`; otherwise
/// different ones, some of them 0.
pub(crate) fn any_costs(rng: &mut fastrand::Rng, quotas: &[Quota], i: usize) -> Vec<u32> {
    if rng.bool() {
        return vec![next_cost(rng, &quotas[i]); quotas.len()];
    }
    let cost = |quota| match rng.u8(..3) {
        0 => 0,
        1 => rng.u32(1..4),
        _ => next_cost(rng, quota),
    };
    quotas.iter().map(cost).collect()
}

fn run(rng: &mut fastrand::Rng, quotas: &[Quota], steps: usize) {
    let mut pairs = vec![Pair::new(); quotas.len()];
    let mut last = LastRequest::new(rng);
    let mut path = Vec::new();
    for _ in 0..steps {
        let i = rng.usize(..quotas.len());
        let t = next_time(rng, &quotas[i], &last);
        let verb = any(rng, &VERBS);
        let costs = any_costs(rng, quotas, i);
        path.push(format!("t={t} {verb} {costs:?}"));
        match step_all(quotas, &mut pairs, &costs, verb, t) {
            Ok(decision) => {
                last.update(t, decision.verdict());
                last.mark = pairs[i].mark().unwrap_or(t);
            }
            Err(difference) => {
                let texts: Vec<String> = quotas.iter().map(Quota::to_string).collect();
                let tail = &path[path.len().saturating_sub(12)..];
                panic!("{texts:?}: {difference}\nafter {tail:#?}");
            }
        }
    }
}

#[test]
fn requests_over_several_tiny_limits_agree() {
    with_each_seed(|rng| {
        for _ in 0..150 {
            let n = rng.usize(1..=4);
            let quotas = (0..n).map(|_| any(rng, &TINY).parse().unwrap());
            let quotas: Vec<Quota> = quotas.collect();
            run(rng, &quotas, 60);
        }
    });
}

#[test]
fn requests_over_several_unusual_limits_agree() {
    with_each_seed(|rng| {
        for _ in 0..150 {
            let unusual = any(rng, &UNUSUAL_QUOTAS).parse().unwrap();
            let quotas = [unusual, any_quota(rng), any_quota(rng)];
            run(rng, &quotas, 60);
        }
    });
}

#[test]
fn evaluate_and_evaluate_all_agree_for_one_limit() {
    with_each_seed(|rng| {
        for text in UNUSUAL_QUOTAS {
            let quota: Quota = text.parse().unwrap();
            let (mut alone, mut listed) = (State::New, State::New);
            let mut last = LastRequest::new(rng);
            for _ in 0..100 {
                let t = next_time(rng, &quota, &last);
                let (verb, cost) = (any(rng, &Verb::BASIC), next_cost(rng, &quota));
                let verdict = evaluate(&quota, &mut alone, verb, cost, t);
                let decision = evaluate_all(&mut [Entry::new(&quota, &mut listed, cost)], verb, t);
                assert_eq!(decision.verdict(), &verdict, "{quota} {verb} {cost} at {t}");
                assert_eq!(decision.verdicts(), [verdict]);
                assert_eq!(alone, listed);
                last.update(t, &verdict);
            }
        }
    });
}

#[test]
fn a_request_without_limits_is_admitted() {
    let decision = evaluate_all(&mut [], Verb::Check, 0);
    assert!(decision.verdict().allowed());
    assert_eq!(decision.binding(), 0);
}

#[test]
fn a_refusal_by_the_last_limit_changes_no_state() {
    let wide: Quota = "100/s".parse().unwrap();
    let narrow: Quota = "token-bucket 1/s burst 1".parse().unwrap();
    let (mut a, mut b) = (State::New, State::New);
    let mut both = |cost| {
        let decision = evaluate_all(
            &mut [
                Entry::new(&wide, &mut a, cost),
                Entry::new(&narrow, &mut b, cost),
            ],
            Verb::Check,
            5_000_000,
        );
        (decision, a.clone(), b.clone())
    };
    let (first, a1, b1) = both(1);
    assert!(first.verdict().allowed());
    let (second, a2, b2) = both(1);
    assert!(!second.verdict().allowed());
    assert_eq!(second.binding(), 1);
    assert_eq!((a1, b1), (a2, b2));
}

/// Decides a request over limits of 5 and 3: the remaining units, the granted units, the states.
fn decide_two(verb: Verb, costs: [u32; 2]) -> (Vec<u32>, u32, [State; 2]) {
    let wide: Quota = "fixed-window 5/s".parse().unwrap();
    let narrow: Quota = "token-bucket 1/s burst 3".parse().unwrap();
    let (mut a, mut b) = (State::New, State::New);
    let mut limits = [
        Entry::new(&wide, &mut a, costs[0]),
        Entry::new(&narrow, &mut b, costs[1]),
    ];
    let decision = evaluate_all(&mut limits, verb, 5_000_000);
    let remaining = decision.verdicts().iter().map(|v| v.remaining).collect();
    (remaining, decision.verdict().granted(), [a, b])
}

#[test]
fn each_limit_is_charged_its_own_cost() {
    assert_eq!(decide_two(Verb::Check, [4, 1]).0, [1, 2]);
    assert_eq!(decide_two(Verb::Check, [4, 1]).1, 1);
    assert_eq!(decide_two(Verb::Charge, [7, 3]).0, [0, 0]);
    assert_eq!(decide_two(Verb::Charge, [7, 3]).1, 3);
}

#[test]
fn a_limit_of_cost_0_is_unchanged() {
    let (remaining, granted, [_, narrow]) = decide_two(Verb::Check, [4, 0]);
    assert_eq!((remaining, granted), (vec![1, 3], 4));
    assert_eq!(narrow, State::New);
    let (remaining, granted, [wide, _]) = decide_two(Verb::Take, [0, 9]);
    assert_eq!((remaining, granted), (vec![5, 0], 3));
    assert_eq!(wide, State::New);
    assert_eq!(decide_two(Verb::Take, [0, 0]).1, 0);
}

#[test]
fn a_take_grants_the_same_to_every_limit() {
    assert_eq!(decide_two(Verb::Take, [9, 9]).0, [2, 0]);
    assert_eq!(decide_two(Verb::Take, [2, 9]).0, [3, 1]);
    assert_eq!(decide_two(Verb::Take, [9, 1]).0, [4, 2]);
}

#[test]
fn a_limit_that_its_cost_does_not_fit_refuses_the_request() {
    let (remaining, granted, states) = decide_two(Verb::Check, [1, 4]);
    assert_eq!((remaining, granted), (vec![5, 3], 0));
    assert_eq!(states, [State::New, State::New]);
}
