//! A changed limit or burst keeps the counter. Another name, algorithm or period is another
//! counter.

use tallygate::{Limit, Limiter, Quota, Request, RequestError, Retry};

use crate::fixtures::{Store, T0, limiter, quotas_per_minute, store};
use std::time::Duration;

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn remaining(limiter: &Limiter<std::sync::Arc<Store>>) -> u32 {
    limiter.peek("k", 1).remaining()
}

#[test]
fn windows_and_logs_keep_their_counts_when_the_limit_changes() {
    for text in [
        "fixed-window",
        "sliding-window-counter",
        "sliding-window-log",
    ] {
        let (_, small) = limiter(quota(&format!("{text} 10/min")));
        assert!(small.check_cost("k", 8).allowed());
        let large = small.with_limit(quota(&format!("{text} 100/min")));
        assert_eq!(remaining(&large), 92, "{text}");
        assert!(large.check_cost("k", 42).allowed());
        // 50 of 10 are used; the count is kept.
        assert_eq!(remaining(&small), 0, "{text}");
        assert!(!small.check("k").allowed());
        assert_eq!(remaining(&large), 50, "{text}");
        assert_eq!(
            remaining(&small.with_limit(quota(&format!("{text} 51/min")))),
            1,
            "{text}"
        );
    }
}

#[test]
fn buckets_keep_their_used_units_when_limit_and_burst_change() {
    for (text, word) in [
        ("token-bucket", "burst"),
        ("leaky-bucket", "burst"),
        ("leaky-bucket", "queue"),
    ] {
        let (_, first) = limiter(quota(&format!("{text} 10/s {word} 20")));
        assert!(first.check_cost("k", 12).allowed());
        let with = |rest: &str| first.with_limit(quota(&format!("{text} {rest}")));
        assert_eq!(
            remaining(&with(&format!("10/s {word} 30"))),
            18,
            "{text} {word}"
        );
        assert_eq!(
            remaining(&with(&format!("100/s {word} 20"))),
            8,
            "{text} {word}"
        );
        assert_eq!(
            remaining(&with(&format!("1/s {word} 13"))),
            1,
            "{text} {word}"
        );
        assert_eq!(
            remaining(&with(&format!("1/s {word} 5"))),
            0,
            "{text} {word}"
        );
        assert_eq!(remaining(&first), 8, "{text} {word}");
    }
}

#[test]
fn used_units_of_a_bucket_are_rounded_up() {
    let (clock, first) = limiter(quota("token-bucket 10/s burst 20"));
    assert!(first.check_cost("k", 12).allowed());
    // A change at 50 ms leaves 11.5 + 1 used.
    clock.set(T0 + 50_000);
    assert!(first.check("k").allowed());
    assert_eq!(remaining(&first), 7);
    let slower = first.with_limit(quota("token-bucket 5/s burst 20"));
    assert_eq!(remaining(&slower), 20 - 13);
    let same_rate = first.with_limit(quota("token-bucket 10/s burst 40"));
    assert_eq!(remaining(&same_rate), 27);
}

#[test]
fn a_changed_limit_has_an_exact_retry_after() {
    for old in quotas_per_minute(10) {
        for new in quotas_per_minute(4) {
            if new.algorithm() != old.algorithm() {
                continue;
            }
            let (clock, before) = limiter(old);
            assert!(before.check_cost("k", 7).allowed());
            let after = before.with_limit(new);
            let Some(wait) = after.check("k").retry_after().and_then(Retry::duration) else {
                panic!("{old} to {new}: 7 of 4 were used");
            };
            clock.set(T0 + wait.as_micros() as u64 - 1);
            assert!(!after.peek("k", 1).allowed(), "{old} to {new}");
            clock.set(T0 + wait.as_micros() as u64);
            assert!(after.check("k").allowed(), "{old} to {new}");
        }
    }
}

/// Under a slower quota used units last longer; a full store must not reuse the slot meanwhile.
#[test]
fn a_count_converted_to_a_slower_quota_keeps_its_slot() {
    let (clock, store) = store(10);
    let fast = Limiter::with_store(store, quota("token-bucket 10/s burst 10"));
    let slow = fast.with_limit(quota("token-bucket 1/s burst 10"));
    assert!(fast.check_cost("k", 9).allowed());
    // Converted: 10 units used, 10 s until they have drained.
    assert!(slow.check("k").allowed());
    clock.advance(Duration::from_secs(2));
    for n in 0..100 {
        let _ = fast.check(n.to_string());
    }
    assert_eq!(remaining(&slow), 2);
}

#[test]
fn another_period_algorithm_or_name_is_another_counter() {
    let (_, first) = limiter(quota("fixed-window 2/min"));
    assert!(first.check_cost("k", 2).allowed());
    let others = [
        Limit::from(quota("fixed-window 2/h")),
        Limit::from(quota("2/min")),
        Limit::from(quota("sliding-window-log 2/min")),
        Limit::from(quota("token-bucket 2/min")),
        Limit::from(quota("leaky-bucket 2/min burst 2")),
        Limit::from(quota("leaky-bucket 2/min queue 2")),
        Limit::named("mine", quota("fixed-window 2/min")),
        Limit::named("yours", quota("fixed-window 2/min")),
        // The same name with another algorithm or period is another counter.
        Limit::named("mine", quota("fixed-window 2/h")),
        Limit::named("mine", quota("2/min")),
    ];
    for limit in others {
        let other = first.with_limit(limit.clone());
        assert_eq!(other.check_cost("k", 2).remaining(), 0, "{limit:?}");
        assert!(!other.check("k").allowed(), "{limit:?}");
    }
    assert!(!first.check("k").allowed());
}

#[test]
fn a_named_limit_keeps_its_count_when_the_limit_changes() {
    let (_, first) = limiter(quota("fixed-window 1/min"));
    let mine = first.with_limit(Limit::named("mine", quota("fixed-window 5/min")));
    assert!(mine.check_cost("k", 3).allowed());
    let more = first.with_limit(Limit::named("mine", quota("fixed-window 10/min")));
    assert_eq!(remaining(&more), 7);
    let default_name = first.with_limit(Limit::named(
        "fixed-window/min",
        quota("fixed-window 9/min"),
    ));
    assert!(first.check("k").allowed());
    assert_eq!(remaining(&default_name), 8);
}

#[test]
fn a_request_with_the_same_counter_twice_is_an_error() {
    let (small, large) = (Limit::from(quota("5/min")), Limit::from(quota("9/min")));
    let twice = |error: RequestError| matches!(error, RequestError::SameCounterTwice { .. });
    assert!(twice(
        Request::with_limits("k", [&small, &large]).unwrap_err()
    ));
    assert!(twice(
        Request::new("k", &small).and("k", &small).unwrap_err()
    ));
    let (_, one) = limiter(quota("5/min"));
    assert!(twice(one.and(quota("9/min")).unwrap_err()));

    // Another key or another name is another counter.
    assert!(Request::new("k", &small).and("l", &small).is_ok());
    let named = Limit::named("burst", quota("5/min"));
    assert!(Request::with_limits("k", [&small, &named]).is_ok());
    // Policing and shaping are different algorithms.
    let both = [
        quota("leaky-bucket 5/s burst 5"),
        quota("leaky-bucket 5/s queue 5"),
    ];
    let both = both.map(Limit::from);
    assert!(Request::with_limits("k", &both).is_ok());
    // Equal parts are the same key, however it was built.
    let parts = tallygate::Key::from_parts(["a", "b"]);
    let again = tallygate::Key::from("a").and("b");
    assert!(twice(
        Request::new(parts, &small).and(again, &small).unwrap_err()
    ));
}

#[test]
fn limiters_over_one_store_share_counters() {
    let (_, store) = store(10);
    let one = Limiter::with_store(store.clone(), quota("5/min"));
    let two = Limiter::with_store(store, quota("5/min"));
    assert!(one.check_cost("k", 2).allowed());
    assert!(two.check_cost("k", 2).allowed());
    assert!(one.clone().check("k").allowed());
    assert!(!two.check("k").allowed());
}
