//! Leases, Lua against Rust: a part of what is available, or nothing.

use tallygate_core::lua::Operation;
use tallygate_core::{Quota, evaluate_lease};
use tallygate_testkit::{any, with_each_seed};

use super::{Call, Counter, RustAndLua, stored_state};
use crate::long_traces::{LastRequest, UNUSUAL_QUOTAS, VERBS, any_quota, next_cost, next_time};

#[test]
fn lua_and_rust_grant_the_same_leases() {
    with_each_seed(|rng| {
        let (mut granted, mut refused) = (0, 0);
        let unusual = UNUSUAL_QUOTAS.iter().map(|text| text.parse().unwrap());
        let any_quotas: Vec<Quota> = (0..20).map(|_| any_quota(rng)).collect();
        for quota in unusual.chain(any_quotas) {
            let mut both = RustAndLua::new([Counter::new(quota)]);
            let mut last = LastRequest::new(rng);
            for _ in 0..60 {
                let t = next_time(rng, &quota, &last);
                let (verb, cost) = (any(rng, &VERBS), next_cost(rng, &quota));
                let decisions = both.run(&[Call::single(0, t, verb, cost)]);
                last.update(t, decisions[0][0].verdict());

                let t = next_time(rng, &quota, &last).min(1 << 52);
                let (key, state) = (both.counters[0].key.clone(), &mut both.counters[0].state);
                let max = next_cost(rng, &quota).max(1);
                let divisor = any(rng, &[1, 2, 4, 40, 4_000, 4_000_000]);
                let operation = Operation::Lease { divisor };
                let mut reply = both.scripts.call(&key, &quota, operation, max, Some(t));
                let actual = evaluate_lease(&quota, &mut reply.states[0], max, divisor, t);
                let before = state.clone();
                let expected = evaluate_lease(&quota, state, max, divisor, t);
                assert_eq!(actual, expected, "{quota}: {max} at {t} in {before:?}");
                assert_ne!(expected.granted(), 1);
                assert!(expected.granted() <= max);
                *if expected.granted() > 0 {
                    &mut granted
                } else {
                    &mut refused
                } += 1;
                let value = both.scripts.command(&[&b"GET"[..], &key]);
                assert!(
                    stored_state::equals(&value, &quota, state),
                    "{quota}: {max} at {t} in {before:?}\nstored {}\nnot {state:?}",
                    stored_state::format(&value, &quota)
                );
            }
        }
        assert!(granted > 50 && refused > 50, "{granted} {refused}");
    });
}
