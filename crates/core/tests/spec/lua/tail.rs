//! The refund of a shaping queue's tail, Lua against Rust: only if the schedule ends as expected.

use tallygate_core::lua::Operation;
use tallygate_core::{Quota, State, Verb, evaluate, refund_tail};
use tallygate_testkit::{any, with_each_seed};

use super::{Call, Counter, Limit, RustAndLua, Scripts, stored_state, unique_key};
use crate::long_traces::{LastRequest, UNUSUAL_QUOTAS, VERBS, next_cost, next_time};

const START: u64 = 1_700_000_000_000_000;

/// Returns the tails of all counters in one request, if each ends as expected.
fn refund_tails(limits: &mut [(Quota, State, u64, u32)], t: u64) -> bool {
    let after = limits.iter().map(|(quota, state, end_us, cost)| {
        let mut state = state.clone();
        refund_tail(quota, &mut state, *end_us, *cost, t).map(|_| state)
    });
    let Some(after) = after.collect::<Option<Vec<State>>>() else {
        return false;
    };
    for ((_, state, ..), after) in limits.iter_mut().zip(after) {
        *state = after;
    }
    true
}

#[test]
fn lua_and_rust_refund_the_same_tails() {
    with_each_seed(|rng| {
        let shaping = UNUSUAL_QUOTAS
            .iter()
            .map(|text| text.parse::<Quota>().unwrap())
            .filter(|quota| quota.algorithm().is_shaping());
        let (mut refunded, mut refused) = (0, 0);
        for quota in shaping {
            let mut both = RustAndLua::new([Counter::new(quota)]);
            let mut last = LastRequest::new(rng);
            for _ in 0..300 {
                let t = next_time(rng, &quota, &last);
                let (verb, cost) = (any(rng, &VERBS), next_cost(rng, &quota));
                let decisions = both.run(&[Call::single(0, t, verb, cost)]);
                let verdict = *decisions[0][0].verdict();
                last.update(t, &verdict);

                let t = next_time(rng, &quota, &last).min(1 << 52);
                let (key, state) = (both.counters[0].key.clone(), &mut both.counters[0].state);
                let peek = evaluate(&quota, &mut state.clone(), Verb::Peek, 0, t);
                let end = t + peek.reset_after_us;
                let end_us = any(
                    rng,
                    &[
                        end,
                        end,
                        end + 1,
                        end + 2,
                        end.saturating_sub(1),
                        end.saturating_sub(2),
                        t,
                    ],
                );
                let cost = next_cost(rng, &quota).max(1);
                let operation = Operation::RefundTail { end_us };
                let mut reply = both.scripts.call(&key, &quota, operation, cost, Some(t));
                let actual = refund_tail(&quota, &mut reply.states[0], end_us, cost, t);
                let before = state.clone();
                let expected = refund_tail(&quota, state, end_us, cost, t);
                assert_eq!(actual, expected, "{quota}: {end_us} at {t} in {before:?}");
                *if expected.is_some() {
                    &mut refunded
                } else {
                    &mut refused
                } += 1;
                let value = both.scripts.command(&[&b"GET"[..], &key]);
                assert!(
                    stored_state::equals(&value, &quota, state),
                    "{quota}: {cost} of {end_us} at {t} in {before:?}\nstored {}\nnot {state:?}",
                    stored_state::format(&value, &quota)
                );
            }
        }
        assert!(refunded > 50 && refused > 50, "{refunded} {refused}");
    });
}

#[test]
fn several_tails_are_refunded_together_or_not_at_all() {
    let quotas = ["leaky-bucket 10/s queue 20", "leaky-bucket 7/min queue 9"];
    for (shifts, expected) in [([0, 0], true), ([0, 2], false), ([2, 0], false)] {
        let mut scripts = Scripts::connect();
        let mut limits: Vec<(Quota, State, u64, u32)> = Vec::new();
        let keys = [unique_key(), unique_key()];
        for ((text, shift), key) in quotas.iter().zip(shifts).zip(&keys) {
            let quota: Quota = text.parse().unwrap();
            let mut state = State::New;
            scripts.decide(key, &quota, (Verb::Check, 5), Some(START));
            let verdict = evaluate(&quota, &mut state, Verb::Check, 5, START);
            limits.push((quota, state, START + verdict.reset_after_us + shift, 2));
        }
        let each = limits.iter().zip(&keys).enumerate();
        let arguments: Vec<Limit<'_>> = each
            .map(|(i, ((quota, _, end_us, cost), key))| {
                let operation = Operation::RefundTail { end_us: *end_us };
                Limit {
                    more: i == 0,
                    ..Limit::new(key, quota, operation, *cost)
                }
            })
            .collect();
        scripts.send(&arguments, Some(START + 1));
        drop(arguments);
        scripts.receive_reply(limits.iter().map(|(quota, ..)| *quota).collect::<Vec<_>>());
        assert_eq!(refund_tails(&mut limits, START + 1), expected);
        for ((quota, state, ..), key) in limits.iter().zip(&keys) {
            let value = scripts.command(&[&b"GET"[..], key]);
            assert!(stored_state::equals(&value, quota, state), "{quota}");
        }
    }
}
