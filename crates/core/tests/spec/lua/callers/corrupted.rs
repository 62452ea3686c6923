//! Values of other types, and random bytes, under the keys of shares and concurrency limits.

use tallygate_core::lua::{NamedCaller, Operation, key_suffixes};
use tallygate_core::{Caller, Decision, FoundState, Quota, Verb, Weight, evaluate_found};
use tallygate_testkit::resp::Reply;
use tallygate_testkit::{any, with_each_seed};

use super::super::{Limit, Scripts, unique_key};
use super::{CONCURRENT, NAMES, SHARED, any_cost};

const NOW: u64 = 1_700_000_000_000_000;

fn keys(key: &[u8], quota: &Quota) -> Vec<Vec<u8>> {
    let suffixes = key_suffixes(quota).iter();
    let further = suffixes.map(|suffix| [key, suffix.as_bytes()].concat());
    [key.to_vec()].into_iter().chain(further).collect()
}

/// Decides by the server's clock, or a supplied one.
fn decide(
    scripts: &mut Scripts,
    key: &[u8],
    quota: &Quota,
    (verb, cost): (Verb, u32),
    name: &'static [u8],
    t: Option<u64>,
) -> Decision {
    let operation = Operation::Verb(verb);
    let limit = Limit {
        caller: NamedCaller {
            member: name,
            owner: name,
            ..NamedCaller::default()
        },
        ..Limit::new(key, quota, operation, cost)
    };
    scripts.send(&[limit], t);
    let (now, mut found) = scripts.receive_found([(*quota, operation)]);
    let (state, _) = found.remove(0);
    let caller = Caller {
        weight: Weight::ONE,
        ..Caller::default()
    };
    let mut found = [FoundState {
        caller,
        ..FoundState::new(quota, state, cost, now)
    }];
    evaluate_found(&mut found, verb)
}

#[test]
fn a_value_of_another_type_is_replaced() {
    let mut scripts = Scripts::connect();
    for text in [SHARED[1], CONCURRENT[1]] {
        let quota: Quota = text.parse().unwrap();
        for other in [
            vec!["SET", "a"],
            vec!["RPUSH", "a"],
            vec!["ZADD", "1", "a"],
            vec!["HSET", "a", "b"],
        ] {
            for at in 0..keys(b"", &quota).len() {
                let key = unique_key();
                for _ in 0..2 {
                    decide(&mut scripts, &key, &quota, (Verb::Check, 1), b"a", None);
                }
                let keys = keys(&key, &quota);
                scripts.command(&[b"DEL", &*keys[at]]);
                let mut command = vec![other[0].as_bytes(), &*keys[at]];
                command.extend(other[1..].iter().map(|word| word.as_bytes()));
                scripts.command(&command);
                for name in [b"b", b"c", b"a"] {
                    decide(&mut scripts, &key, &quota, (Verb::Peek, 9), name, None);
                    decide(&mut scripts, &key, &quota, (Verb::Check, 2), name, None);
                }
                decide(&mut scripts, &key, &quota, (Verb::Refund, 1), b"b", None);
                let last = decide(&mut scripts, &key, &quota, (Verb::Check, 1), b"b", None);
                assert!(
                    last.verdict().allowed(),
                    "{text}: {other:?} in place of {at}"
                );
                let first = scripts.command(&[b"PTTL", &*keys[0]]).integer();
                assert!(first > 0, "{text}: {other:?} in place of {at}");
            }
        }
    }
}

#[test]
fn random_bytes_are_harmless() {
    with_each_seed(|rng| {
        let mut scripts = Scripts::connect();
        for _ in 0..100 {
            let quota: Quota = any(rng, &[&SHARED[..], &CONCURRENT[..]].map(|list| list[0]))
                .parse()
                .unwrap();
            let key = unique_key();
            let t = rng.bool().then_some(NOW);
            for (i, name) in (0..).zip(NAMES[1..].iter().cycle().take(9)) {
                let t = t.map(|t| t + i * 700_000);
                decide(&mut scripts, &key, &quota, (Verb::Check, 1), name, t);
            }
            for key in keys(&key, &quota) {
                corrupt(rng, &mut scripts, &key);
            }
            for i in 0..30 {
                let verb = any(
                    rng,
                    &[
                        Verb::Check,
                        Verb::Peek,
                        Verb::Take,
                        Verb::Charge,
                        Verb::Refund,
                        Verb::Renew,
                        Verb::Release,
                    ],
                );
                let step = (verb, any_cost(rng, &quota));
                let t = t.map(|t| t + i * 1_000_000);
                decide(&mut scripts, &key, &quota, step, any(rng, &NAMES[1..]), t);
            }
            for key in keys(&key, &quota) {
                let ttl = scripts.command(&[b"PTTL", &*key]).integer();
                assert_ne!(ttl, -1, "{quota}");
            }
        }
    });
}

/// Changes some bytes of a value, and of the values of a hash, keeping the lengths and kinds.
fn corrupt(rng: &mut fastrand::Rng, scripts: &mut Scripts, key: &[u8]) {
    let kind = scripts.command(&[b"TYPE", key]);
    let mut change = |value: &[u8]| -> Vec<u8> {
        let fill = any(rng, &[0, 1, 255]);
        let mut value = value.to_vec();
        for byte in &mut value[1..] {
            match rng.u8(..4) {
                0 => *byte = rng.u8(..),
                1 => *byte = fill,
                _ => {}
            }
        }
        value
    };
    match kind.text() {
        "string" => {
            let Reply::Bulk(value) = scripts.command(&[b"GET", key]) else {
                return;
            };
            scripts.command(&[b"SET", key, &change(&value), b"KEEPTTL"]);
        }
        "hash" => {
            for (name, value) in super::fields(scripts, key) {
                scripts.command(&[b"HSET", key, &name, &change(&value)]);
            }
        }
        _ => {}
    }
}
