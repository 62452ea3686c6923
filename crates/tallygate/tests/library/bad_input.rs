//! Any input gives a typed error or a defined decision, never a panic.

use tallygate::{
    Decision, Key, Limit, Limiter, MAX_LIMITS, Quota, Request, RequestError, Retry, Verb,
};

use crate::fixtures::{SECOND, Store, T0, limiter, quotas_per_minute, store};

fn unusual_keys() -> Vec<Key<'static>> {
    vec![
        Key::from(""),
        Key::from("\0"),
        Key::from("\0\0"),
        Key::from(vec![0xff, 0xfe, 0x80]),
        Key::from(vec![b'x'; 1 << 20]),
        Key::from(vec![b'x'; (1 << 20) + 1]),
        Key::from_parts([""; 0]),
        Key::from_parts(["", ""]),
        Key::from_parts(["\0", ""]),
        Key::from_parts(["", "\0"]),
        Key::from_parts(["part"; 1_000]),
        Key::from("{}"),
        Key::from("key\r\nwith lines"),
    ]
}

#[test]
fn any_bytes_are_a_separate_key() {
    for quota in quotas_per_minute(2) {
        let (_, limiter) = limiter(quota);
        for _ in 0..2 {
            for key in &unusual_keys() {
                assert!(limiter.check(key).allowed(), "{quota} {key:?}");
            }
        }
        for key in &unusual_keys() {
            assert!(!limiter.check(key).allowed(), "{quota} {key:?}");
        }
    }
}

/// Every length up to 100, and a difference at every position.
#[test]
fn keys_that_differ_in_one_byte_or_in_length_are_counted_separately() {
    let (_, limiter) = limiter("fixed-window 1/min".parse().unwrap());
    for length in 1..=100 {
        let same = vec![b'x'; length];
        assert!(limiter.check(&same[..]).allowed(), "{length}");
        for at in 0..length {
            let mut other = same.clone();
            other[at] = b'y';
            assert!(limiter.check(&other[..]).allowed(), "{at} of {length}");
        }
        assert!(!limiter.check(&same[..]).allowed(), "{length}");
    }
}

#[test]
fn a_cost_of_0_is_always_admitted_and_changes_nothing() {
    for quota in quotas_per_minute(1) {
        let (_, limiter) = limiter(quota);
        for remaining in [1, 0] {
            let before = limiter.peek("a", 1);
            for decision in [
                limiter.check_cost("a", 0),
                limiter.take("a", 0),
                limiter.charge("a", 0),
                limiter.refund("a", 0),
                limiter.peek("a", 0),
            ] {
                assert!(decision.allowed(), "{quota}");
                assert_eq!(decision.granted(), 0, "{quota}");
                assert_eq!(decision.remaining(), remaining, "{quota}");
                assert!(decision.delay().is_zero(), "{quota}");
            }
            assert_eq!(limiter.peek("a", 1), before, "{quota}");
            let _ = limiter.check("a");
        }
    }
}

#[test]
fn the_maximum_cost_never_fits_but_can_be_charged() {
    for quota in quotas_per_minute(3) {
        let (clock, limiter) = limiter(quota);
        // The debt may last until the maximum time.
        clock.set(0);
        for _ in 0..2 {
            let refused = limiter.check_cost("a", u32::MAX);
            assert_eq!(refused.retry_after(), Some(Retry::Never), "{quota}");
            assert_eq!(refused.remaining(), 3, "{quota}");
            let peeked = limiter.peek("a", u32::MAX);
            assert_eq!(peeked.retry_after(), Some(Retry::Never), "{quota}");
        }
        assert_eq!(limiter.take("a", u32::MAX).granted(), 3, "{quota}");
        assert_eq!(limiter.refund("a", u32::MAX).remaining(), 3, "{quota}");
        for _ in 0..3 {
            let charged = limiter.charge("a", u32::MAX);
            assert!(charged.allowed() && charged.remaining() == 0, "{quota}");
        }
        let refused = limiter.check("a");
        let Some(wait) = refused.retry_after().and_then(Retry::duration) else {
            panic!("{quota}: {refused:?}");
        };
        clock.advance(wait);
        assert!(limiter.check("a").allowed(), "{quota}");
    }
}

const EXTREME_TIMES: [u64; 12] = [
    0,
    1,
    T0,
    T0 - 1,
    T0 - 60 * SECOND,
    T0 - 60 * SECOND - 1,
    T0 - 365 * 86_400 * SECOND,
    T0 + 1,
    (1 << 52) - 1,
    1 << 52,
    (1 << 52) + 1,
    u64::MAX,
];

#[test]
fn no_order_of_extreme_times_panics() {
    for quota in quotas_per_minute(2) {
        let (clock, store) = store(4);
        let limiter = Limiter::with_store(store, quota);
        for first in EXTREME_TIMES {
            for second in EXTREME_TIMES {
                for (n, verb) in Verb::BASIC.into_iter().enumerate() {
                    let key = (n % 3).to_string();
                    for now in [first, second] {
                        clock.set(now);
                        let request = limiter.request(&key).verb(verb).cost(1);
                        let decision = limiter.decide_now(&request);
                        assert!(decision.remaining() <= 2);
                    }
                }
                let _ = limiter.store().live_keys();
            }
        }
    }
}

/// With more keys than slots, so that counters are moved and share budgets.
#[test]
fn a_full_store_survives_extreme_times() {
    for quota in quotas_per_minute(2) {
        let (_, store) = store(1);
        let limit = Limit::from(quota);
        for now in EXTREME_TIMES {
            for n in 0..200 {
                let key = n.to_string();
                let request = Request::new(&key, &limit).and("x", &limit).unwrap();
                let decision = store.decide_at(&request, now);
                assert_eq!(decision.verdicts().len(), 2);
            }
        }
    }
}

fn admitted(store: &Store, key: &str, limit: &Limit, now: u64) -> u32 {
    let check = Request::new(key, limit);
    let check = || store.decide_at(&check, now);
    std::iter::repeat_with(check)
        .take_while(Decision::allowed)
        .take(10)
        .map(|decision| decision.granted())
        .sum()
}

/// Times above 2^52 µs count as the maximum time.
#[test]
fn above_the_maximum_time_limits_are_exact() {
    for quota in quotas_per_minute(2) {
        let limit = Limit::from(quota);
        for now in [1 << 52, (1 << 52) + 600 * SECOND, 1 << 54, u64::MAX] {
            let (_, store) = store(1_000);
            let keys: Vec<String> = (0..300).map(|n| n.to_string()).collect();
            for key in &keys {
                assert_eq!(admitted(&store, key, &limit, now), 2, "{quota} at {now}");
            }
            for key in &keys {
                assert_eq!(admitted(&store, key, &limit, now), 0, "{quota} at {now}");
            }
        }
    }
}

#[test]
fn above_the_maximum_time_a_request_over_several_keys_charges_each() {
    for quota in quotas_per_minute(2) {
        let limit = Limit::from(quota);
        let (_, store) = store(100);
        let keys: Vec<String> = (0..MAX_LIMITS).map(|n| n.to_string()).collect();
        let mut request = Request::new(&keys[0], &limit);
        for key in &keys[1..] {
            request = request.and(key, &limit).unwrap();
        }
        assert!(store.decide_at(&request, u64::MAX).allowed());
        assert!(store.decide_at(&request, u64::MAX).allowed());
        for key in &keys {
            assert_eq!(admitted(&store, key, &limit, u64::MAX), 0, "{quota}");
        }
    }
}

#[test]
fn a_request_has_at_most_64_limits() {
    let named = |n: usize| Limit::named(n.to_string(), Quota::per_minute(3));
    let limits: Vec<Limit> = (0..=MAX_LIMITS).map(named).collect();
    let request = Request::with_limits("a", &limits[..MAX_LIMITS]).unwrap();
    let (_, store) = store(100);
    for remaining in [2, 1, 0] {
        let decision = store.decide(&request);
        assert!(decision.allowed());
        assert_eq!(decision.verdicts().len(), MAX_LIMITS);
        assert!(decision.verdicts().iter().all(|v| v.remaining == remaining));
    }
    assert!(!store.decide(&request).allowed());

    let one_more = request.and("a", &limits[MAX_LIMITS]);
    assert_eq!(one_more.unwrap_err(), RequestError::TooManyLimits);
    let all = Request::with_limits("a", &limits);
    assert_eq!(all.unwrap_err(), RequestError::TooManyLimits);
    assert_eq!(
        Request::with_limits("a", []).unwrap_err(),
        RequestError::NoLimit
    );

    let first = Limiter::with_store(store, limits[0].clone());
    let full = limits[1..MAX_LIMITS]
        .iter()
        .fold(first, |limiter, limit| limiter.and(limit.clone()).unwrap());
    assert!(!full.check("a").allowed());
    assert!(full.check("b").allowed());
    let refused = full.and(limits[MAX_LIMITS].clone());
    assert_eq!(refused.unwrap_err(), RequestError::TooManyLimits);
}

#[test]
fn a_capacity_of_0_becomes_1() {
    let (_, store) = store(0);
    assert_eq!(store.capacity(), 1);
    let limiter = Limiter::with_store(store, Quota::per_minute(1));
    assert!(limiter.check("a").allowed());
    assert!(!limiter.check("a").allowed());
}

#[test]
fn any_text_is_a_limit_name() {
    let (_, store) = store(100);
    let names = ["", "\0", "a", "a ", &"x".repeat(1 << 20), "\u{1f980}"];
    for name in names {
        let limit = Limit::named(name, Quota::per_minute(1));
        assert_eq!(limit.name(), name);
        assert!(store.decide(&Request::new("k", &limit)).allowed());
        assert!(!store.decide(&Request::new("k", &limit)).allowed());
    }
}
