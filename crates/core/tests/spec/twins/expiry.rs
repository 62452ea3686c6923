//! The expiry of keys on the server's own clock.

use tallygate_core::lua::Operation;
use tallygate_core::{Quota, Verb};
use tallygate_testkit::{any, with_each_seed};

use super::{Scripts, any_key};
use crate::changed_quota::changed;
use crate::long_traces::{VERBS, any_quota, next_cost};

/// The microsecond a key expires at; none if it is not there.
fn expires_at(scripts: &mut Scripts, key: &[u8]) -> Option<u64> {
    match scripts.command(&[b"PEXPIRETIME", key]).integer() {
        -2 => None,
        -1 => panic!("a key lives for ever"),
        at => Some(u64::try_from(at).unwrap() * 1_000),
    }
}

/// Long enough that nothing is over before it is looked at.
fn any_long_quota(rng: &mut fastrand::Rng) -> Quota {
    loop {
        let quota = any_quota(rng);
        if quota.period_us() > 60_000_000 && quota.drain_us(1) > 60_000_000 {
            return quota;
        }
    }
}

#[test]
fn a_key_lives_until_it_is_as_new_and_at_most_a_span_longer() {
    with_each_seed(|rng| {
        let mut scripts = Scripts::connect();
        for _ in 0..150 {
            let (key, mut quota) = (any_key(), any_long_quota(rng));
            let mut span = quota.span_us();
            let mut path = Vec::new();
            for _ in 0..30 {
                if rng.u8(..10) == 0 {
                    quota = changed(rng, &quota);
                    // Only what is written again lives by the new quota.
                    scripts.decide(&key, &quota, (Verb::Charge, 1), None);
                    span = span.max(quota.span_us());
                }
                let (verb, cost) = (any(rng, &VERBS), next_cost(rng, &quota));
                let answer = scripts.ask(&key, &quota, Operation::Verb(verb), cost, None);
                path.push((quota.to_string(), verb, cost));
                let at = expires_at(&mut scripts, &key);
                let peek = scripts.decide(&key, &quota, (Verb::Peek, 1), None);
                let reset = peek.verdict().reset_after_us;
                match at {
                    None => assert_eq!(reset, 0, "{path:?}"),
                    Some(at) => {
                        // The peek was later than the call by the time between them.
                        let end = answer.t + reset;
                        let short = end.saturating_sub(at);
                        assert!(reset == 0 || short == 0, "{short} too short after {path:?}");
                        let most = end + span + 10_000_000;
                        assert!(at <= most, "{} too long after {path:?}", at - most);
                    }
                }
            }
        }
    });
}

/// Exactly: between the end of what counts and one span after it.
#[test]
fn a_key_in_constant_use_lives_until_it_is_as_new() {
    for text in [
        "fixed-window 50/h",
        "50/h",
        "sliding-window-log 50/h",
        "token-bucket 50/h burst 20",
        "leaky-bucket 50/h burst 20",
        "leaky-bucket 50/h queue 20",
    ] {
        let (mut scripts, key) = (Scripts::connect(), any_key());
        let quota: Quota = text.parse().unwrap();
        for i in 0..60 {
            let verb = any(&mut fastrand::Rng::with_seed(i), &VERBS[..11]);
            let limit = (verb, 1);
            let before = scripts.command(&["TIME"]);
            let seconds = before.array()[0].integer();
            let answer = scripts.decide(&key, &quota, limit, None);
            let Some(at) = expires_at(&mut scripts, &key) else {
                assert_eq!(answer.verdict().reset_after_us, 0, "{quota}");
                continue;
            };
            let least = u64::try_from(seconds).unwrap() * 1_000_000;
            let reset = answer.verdict().reset_after_us;
            assert!(at >= least + reset, "{quota} {limit:?}");
            let most = least + 10_000_000 + reset + quota.span_us();
            assert!(at <= most, "{quota} {limit:?}");
        }
    }
}

/// Spans of milliseconds: keys go while they are looked at, and none of them stays.
#[test]
fn every_key_expires() {
    with_each_seed(|rng| {
        let mut scripts = Scripts::connect();
        for _ in 0..60 {
            let (key, quota) = (any_key(), any_quota(rng));
            for _ in 0..30 {
                let step = (any(rng, &VERBS), next_cost(rng, &quota));
                scripts.decide(&key, &quota, step, None);
                expires_at(&mut scripts, &key);
            }
        }
    });
}

#[test]
fn a_key_written_on_supplied_time_expires_after_a_day() {
    with_each_seed(|rng| {
        let mut scripts = Scripts::connect();
        let day = 86_400_000;
        for _ in 0..60 {
            let (key, quota) = (any_key(), any_quota(rng));
            for _ in 0..20 {
                let t = any(rng, &[0, 1_700_000_000_000_000, 1 << 52, 5]);
                let step = (any(rng, &VERBS), next_cost(rng, &quota));
                scripts.decide(&key, &quota, step, Some(t));
                let left = scripts.command(&[b"PTTL", &key[..]]).integer();
                assert!(
                    left == -2 || left > day - 600_000,
                    "{quota} {step:?} {left}"
                );
                assert!(left <= day, "{quota} {step:?} {left}");
            }
        }
    });
}
