//! Several limits in one request: all or nothing, and which one binds.

use tollgate_core::{Quota, State, Verb, apply, apply_all};

use crate::long_traces::{AWKWARD, Last, VERBS, any_quota, next_cost, next_time};
use crate::side_by_side::{Pair, Step, step_all};
use tollgate_testkit::{any, with_each_seed};

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

fn run(rng: &mut fastrand::Rng, quotas: &[Quota], steps: usize) {
    let mut pairs = vec![Pair::new(); quotas.len()];
    let mut last = Last::begin(rng);
    let mut path = Vec::new();
    for _ in 0..steps {
        let i = rng.usize(..quotas.len());
        let step = Step {
            t: next_time(rng, &quotas[i], &last),
            verb: any(rng, &VERBS),
            cost: next_cost(rng, &quotas[i]),
        };
        path.push(step);
        match step_all(quotas, &mut pairs, step) {
            Ok(decision) => {
                last.answered(step.t, decision.verdict());
                last.mark = pairs[i].mark().unwrap_or(step.t);
            }
            Err(difference) => {
                let texts: Vec<String> = quotas.iter().map(Quota::to_string).collect();
                let tail = &path[path.len().saturating_sub(12)..];
                panic!("{texts:?}: {difference}\nafter {tail:?}");
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
fn requests_over_several_awkward_limits_agree() {
    with_each_seed(|rng| {
        for _ in 0..150 {
            let awkward = any(rng, &AWKWARD).parse().unwrap();
            let quotas = [awkward, any_quota(rng), any_quota(rng)];
            run(rng, &quotas, 60);
        }
    });
}

#[test]
fn one_limit_alone_is_answered_the_same_as_in_a_list_of_one() {
    with_each_seed(|rng| {
        for text in AWKWARD {
            let quota: Quota = text.parse().unwrap();
            let (mut alone, mut listed) = (State::New, State::New);
            let mut last = Last::begin(rng);
            for _ in 0..100 {
                let t = next_time(rng, &quota, &last);
                let (verb, cost) = (any(rng, &Verb::ALL), next_cost(rng, &quota));
                let verdict = apply(&quota, &mut alone, verb, cost, t);
                let decision = apply_all(&mut [(&quota, &mut listed)], verb, cost, t);
                assert_eq!(decision.verdict(), &verdict, "{quota} {verb} {cost} at {t}");
                assert_eq!(decision.verdicts(), [verdict]);
                assert_eq!(alone, listed);
                last.answered(t, &verdict);
            }
        }
    });
}

#[test]
fn no_limits_at_all_admit() {
    let decision = apply_all(&mut [], Verb::Check, 1, 0);
    assert!(decision.verdict().allowed());
    assert_eq!(decision.binding(), 0);
}

#[test]
fn a_refusal_by_the_last_limit_leaves_every_state_as_it_was() {
    let wide: Quota = "100/s".parse().unwrap();
    let narrow: Quota = "token-bucket 1/s burst 1".parse().unwrap();
    let (mut a, mut b) = (State::New, State::New);
    let mut both = |cost| {
        let decision = apply_all(
            &mut [(&wide, &mut a), (&narrow, &mut b)],
            Verb::Check,
            cost,
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
