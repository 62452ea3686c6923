//! Corrupted values: never an error, and the key still expires.

use fastrand::Rng;
use tallygate_core::lua::Operation;
use tallygate_core::{Quota, Verb};
use tallygate_testkit::resp::Reply;
use tallygate_testkit::{any, with_each_seed};

use super::{Scripts, unique_key};
use crate::long_traces::{VERBS, any_quota, next_cost};

const QUOTAS: [&str; 9] = [
    "fixed-window 5/h",
    "5/h",
    "1000000000/366d",
    "token-bucket 5/h burst 7",
    "token-bucket 999999937/366d burst 1000000000",
    "leaky-bucket 5/h queue 7",
    "sliding-window-log 5/h",
    "sliding-window-log 300/h",
    "sliding-window-log 100000/366d",
];

/// Calls every operation repeatedly. Any reply that parses is accepted.
fn run_random_calls(
    rng: &mut Rng,
    scripts: &mut Scripts,
    key: &[u8],
    quota: &Quota,
    t: Option<u64>,
) {
    for _ in 0..12 {
        let cost = next_cost(rng, quota);
        let operation = match rng.u8(..8) {
            0 => Operation::Undo {
                taken_us: t.unwrap_or(1_700_000_000_000_000),
            },
            1 if quota.algorithm().is_shaping() => Operation::RefundTail {
                end_us: t.unwrap_or(1_700_000_000_000_000),
            },
            2 => Operation::RepeatedCheck {
                times: rng.u16(1..9),
            },
            3 => Operation::Lease {
                divisor: rng.u32(1..9),
            },
            _ => Operation::Verb(any(rng, &VERBS)),
        };
        match operation {
            Operation::Verb(verb) => drop(scripts.decide(key, quota, (verb, cost), t)),
            Operation::Undo { .. }
            | Operation::Restore { .. }
            | Operation::RefundTail { .. }
            | Operation::RepeatedCheck { .. }
            | Operation::Lease { .. } => drop(scripts.call(key, quota, operation, cost, t)),
        }
    }
}

#[test]
fn a_value_of_another_type_is_as_new() {
    for text in QUOTAS {
        let quota: Quota = text.parse().unwrap();
        let mut scripts = Scripts::connect();
        for other in [
            vec!["RPUSH", "a", "b"],
            vec!["SADD", "a"],
            vec!["ZADD", "1", "a"],
            vec!["HSET", "a", "b"],
        ] {
            let key = unique_key();
            let mut command = vec![other[0].as_bytes(), &key[..]];
            command.extend(other[1..].iter().map(|word| word.as_bytes()));
            scripts.command(&command);
            let peek = scripts.decide(&key, &quota, (Verb::Peek, 1), None);
            assert_eq!(peek.verdict().remaining, quota.capacity());
            scripts.decide(&key, &quota, (Verb::Check, 1), None);
            let peek = scripts.decide(&key, &quota, (Verb::Peek, 1), None);
            assert_eq!(peek.verdict().remaining, quota.capacity() - 1);
            assert!(scripts.command(&[b"PTTL", &key[..]]).integer() > 0);
        }
    }
}

#[test]
fn a_value_of_another_length_or_kind_is_as_new() {
    with_each_seed(|rng| {
        let mut scripts = Scripts::connect();
        for text in QUOTAS {
            let quota: Quota = text.parse().unwrap();
            for length in (0..60).chain([100, 1_000]) {
                let key = unique_key();
                let mut raw: Vec<u8> = (0..length).map(|_| rng.u8(..)).collect();
                if let Some(kind) = raw.first_mut() {
                    *kind = any(rng, &[0, 5, b'{', 255]);
                }
                scripts.command(&[b"SET", &key[..], &raw]);
                let peek = scripts.decide(&key, &quota, (Verb::Peek, 1), None);
                assert_eq!(peek.verdict().remaining, quota.capacity());
                scripts.decide(&key, &quota, (Verb::Check, 1), None);
                assert!(scripts.command(&[b"PTTL", &key[..]]).integer() > 0);
            }
        }
    });
}

/// A valid value with some bytes changed, appended or removed.
#[test]
fn a_corrupted_value_is_harmless() {
    with_each_seed(|rng| {
        let mut scripts = Scripts::connect();
        for round in 0..400 {
            let quota = match rng.bool() {
                true => any(rng, &QUOTAS).parse().unwrap(),
                false => any_quota(rng),
            };
            let key = unique_key();
            let t = (round % 2 == 0).then_some(1_700_000_000_000_000);
            for i in 0..rng.u64(1..40) {
                scripts.decide(&key, &quota, (Verb::Charge, 1), t.map(|t| t + i));
            }
            let Reply::Bulk(mut raw) = scripts.command(&[b"GET", &key[..]]) else {
                continue;
            };
            for _ in 0..rng.usize(1..5) {
                let at = rng.usize(..raw.len());
                match rng.u8(..8) {
                    0 => raw.truncate(at + 1),
                    1 => raw.push(rng.u8(..)),
                    2 => raw[at..].fill(255),
                    3 => raw[at..].fill(0),
                    // In the header.
                    4..6 => raw[at % 46 % at.max(1)] = rng.u8(..),
                    _ => raw[at] = any(rng, &[0, 1, 127, 128, 255]),
                }
            }
            scripts.command(&[b"SET", &key[..], &raw, b"KEEPTTL"]);
            run_random_calls(rng, &mut scripts, &key, &quota, t);
            let ttl = scripts.command(&[b"PTTL", &key[..]]).integer();
            assert_ne!(ttl, -1, "{quota} from {raw:?}");
            let size = scripts.command(&[b"STRLEN", &key[..]]).integer();
            assert!(size < 2_000_000, "{size} bytes under {quota} from {raw:?}");
        }
    });
}

/// A valid length and kind with random content.
#[test]
fn random_bytes_are_harmless() {
    with_each_seed(|rng| {
        let mut scripts = Scripts::connect();
        for _ in 0..400 {
            let (key, quota) = (unique_key(), any_quota(rng));
            scripts.decide(&key, &quota, (Verb::Charge, 1), None);
            let Reply::Bulk(mut raw) = scripts.command(&[b"GET", &key[..]]) else {
                continue;
            };
            raw[1..].fill_with(|| match rng.bool() {
                true => rng.u8(..),
                false => 0,
            });
            scripts.command(&[b"SET", &key[..], &raw, b"PX", b"60000"]);
            run_random_calls(rng, &mut scripts, &key, &quota, None);
            let ttl = scripts.command(&[b"PTTL", &key[..]]).integer();
            assert_ne!(ttl, -1, "{quota} from {raw:?}");
        }
    });
}
