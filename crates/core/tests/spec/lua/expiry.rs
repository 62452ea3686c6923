//! The expiry of keys, by the server's clock.

use tallygate_core::lua::Operation;
use tallygate_core::{Quota, Verb};
use tallygate_testkit::{any, with_each_seed};

use super::{Scripts, unique_key};
use crate::changed_quota::change_quota;
use crate::long_traces::{VERBS, any_quota, next_cost};

/// When a key expires, in microseconds; `None` if it does not exist.
fn expires_at(scripts: &mut Scripts, key: &[u8]) -> Option<u64> {
    match scripts.command(&[b"PEXPIRETIME", key]).integer() {
        -2 => None,
        -1 => panic!("a key without expiry"),
        at => Some(u64::try_from(at).unwrap() * 1_000),
    }
}

/// Long enough that nothing expires during a test.
fn any_long_quota(rng: &mut fastrand::Rng) -> Quota {
    loop {
        let quota = any_quota(rng);
        if quota.period_us() > 60_000_000 && quota.drain_us(1) > 60_000_000 {
            return quota;
        }
    }
}

#[test]
fn a_key_expires_when_it_is_as_new_or_at_most_a_span_later() {
    with_each_seed(|rng| {
        let mut scripts = Scripts::connect();
        for _ in 0..150 {
            let (key, mut quota) = (unique_key(), any_long_quota(rng));
            let mut span = quota.span_us();
            let mut path = Vec::new();
            for _ in 0..30 {
                if rng.u8(..10) == 0 {
                    quota = change_quota(rng, &quota);
                    // The new quota applies from the next write.
                    scripts.decide(&key, &quota, (Verb::Charge, 1), None);
                    span = span.max(quota.span_us());
                }
                let (verb, cost) = (any(rng, &VERBS), next_cost(rng, &quota));
                let reply = scripts.call(&key, &quota, Operation::Verb(verb), cost, None);
                path.push((quota.to_string(), verb, cost));
                let at = expires_at(&mut scripts, &key);
                let peek = scripts.decide(&key, &quota, (Verb::Peek, 1), None);
                let reset = peek.verdict().reset_after_us;
                match at {
                    None => assert_eq!(reset, 0, "{path:?}"),
                    Some(at) => {
                        // The peek was later than the call.
                        let end = reply.t + reset;
                        let early = end.saturating_sub(at);
                        assert!(reset == 0 || early == 0, "{early} too early after {path:?}");
                        let max = end + span + 10_000_000;
                        assert!(at <= max, "{} too late after {path:?}", at - max);
                    }
                }
            }
        }
    });
}

#[test]
fn a_key_in_constant_use_expires_when_it_is_as_new_or_at_most_a_span_later() {
    for text in [
        "fixed-window 50/h",
        "50/h",
        "sliding-window-log 50/h",
        "token-bucket 50/h burst 20",
        "leaky-bucket 50/h burst 20",
        "leaky-bucket 50/h queue 20",
    ] {
        let (mut scripts, key) = (Scripts::connect(), unique_key());
        let quota: Quota = text.parse().unwrap();
        for i in 0..60 {
            let verb = any(&mut fastrand::Rng::with_seed(i), &VERBS[..11]);
            let limit = (verb, 1);
            let before = scripts.command(&["TIME"]);
            let seconds = before.array()[0].integer();
            let reply = scripts.decide(&key, &quota, limit, None);
            let Some(at) = expires_at(&mut scripts, &key) else {
                assert_eq!(reply.verdict().reset_after_us, 0, "{quota}");
                continue;
            };
            let min = u64::try_from(seconds).unwrap() * 1_000_000;
            let reset = reply.verdict().reset_after_us;
            assert!(at >= min + reset, "{quota} {limit:?}");
            let max = min + 10_000_000 + reset + quota.span_us();
            assert!(at <= max, "{quota} {limit:?}");
        }
    }
}

/// With spans of milliseconds, keys expire during the test.
#[test]
fn every_key_expires() {
    with_each_seed(|rng| {
        let mut scripts = Scripts::connect();
        for _ in 0..60 {
            let (key, quota) = (unique_key(), any_quota(rng));
            for _ in 0..30 {
                let step = (any(rng, &VERBS), next_cost(rng, &quota));
                scripts.decide(&key, &quota, step, None);
                expires_at(&mut scripts, &key);
            }
        }
    });
}

#[test]
fn a_key_written_with_a_supplied_time_expires_after_a_day() {
    with_each_seed(|rng| {
        let mut scripts = Scripts::connect();
        let day = 86_400_000;
        for _ in 0..60 {
            let (key, quota) = (unique_key(), any_quota(rng));
            for _ in 0..20 {
                let t = any(rng, &[0, 1_700_000_000_000_000, 1 << 52, 5]);
                let step = (any(rng, &VERBS), next_cost(rng, &quota));
                scripts.decide(&key, &quota, step, Some(t));
                let ttl = scripts.command(&[b"PTTL", &key[..]]).integer();
                assert!(ttl == -2 || ttl > day - 600_000, "{quota} {step:?} {ttl}");
                assert!(ttl <= day, "{quota} {step:?} {ttl}");
            }
        }
    });
}
