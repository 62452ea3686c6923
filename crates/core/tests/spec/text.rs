//! The text form of quotas: parsing, formatting, and round trips.

use std::time::Duration;

use tallygate_core::{Algorithm, Quota};

use crate::long_traces::any_quota;
use tallygate_testkit::{any, with_each_seed};

#[track_caller]
fn assert_canonical(text: &str, canonical: &str) {
    let quota: Quota = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(quota.to_string(), canonical);
    assert_eq!(canonical.parse(), Ok(quota));
}

#[test]
fn the_examples_of_the_specification_parse_and_format() {
    for (text, canonical) in [
        ("100/min", "sliding-window-counter 100/min"),
        ("fixed-window 100/min", "fixed-window 100/min"),
        ("sliding-window-log 100/min", "sliding-window-log 100/min"),
        ("sliding-window-log 10/10s", "sliding-window-log 10/10s"),
        ("token-bucket 10/s burst 50", "token-bucket 10/s burst 50"),
        ("token-bucket 10/s", "token-bucket 10/s burst 10"),
        ("gcra 10/s burst 50", "token-bucket 10/s burst 50"),
        ("leaky-bucket 10/s burst 20", "leaky-bucket 10/s burst 20"),
        ("leaky-bucket 10/s queue 20", "leaky-bucket 10/s queue 20"),
        ("leaky-bucket 10/s", "leaky-bucket 10/s burst 10"),
        ("fixed-window 5/1h30min", "fixed-window 5/1h30min"),
        ("fixed-window 5/90min", "fixed-window 5/1h30min"),
        ("7/15min", "sliding-window-counter 7/15min"),
        ("7/500ms", "sliding-window-counter 7/500ms"),
        ("1000000/day", "sliding-window-counter 1000000/d"),
        ("7/min", "sliding-window-counter 7/min"),
        (
            "token-bucket 1000000000/30d burst 1000000",
            "token-bucket 1000000000/30d burst 1000000",
        ),
    ] {
        assert_canonical(text, canonical);
    }
}

#[test]
fn shared_and_concurrent_quotas_parse_and_format() {
    for (text, canonical) in [
        (
            "token-bucket 100/s burst 100 shared 4",
            "token-bucket 100/s burst 100 shared 4",
        ),
        ("gcra 100/s shared", "token-bucket 100/s burst 100 shared 4"),
        (
            "leaky-bucket 7/min burst 9 shared 2",
            "leaky-bucket 7/min burst 9 shared 2",
        ),
        (
            "token-bucket 1/d burst 366 shared 91",
            "token-bucket 1/d burst 366 shared 91",
        ),
        ("concurrent 10 for 30s", "concurrent 10 for 30s"),
        ("concurrent 1 for 60s", "concurrent 1 for 1min"),
        ("concurrent 10000 for 24h", "concurrent 10000 for 1d"),
        ("concurrent 3 for min", "concurrent 3 for 1min"),
        ("concurrent 3 for 1h30min", "concurrent 3 for 1h30min"),
    ] {
        assert_canonical(text, canonical);
    }
    let name = |text: &str| text.parse::<Quota>().unwrap().default_name();
    assert_eq!(name("token-bucket 100/s shared"), "shared-token-bucket/s");
    assert_eq!(
        name("leaky-bucket 100/s shared"),
        "shared-leaky-bucket-policing/s"
    );
    assert_eq!(name("concurrent 3 for 30s"), "concurrent/30s");
}

#[test]
fn every_unit_has_every_name_of_the_specification() {
    for (names, us) in [
        ("ms", 1_000),
        ("s sec secs second seconds", 1_000_000),
        ("m min mins minute minutes", 60_000_000),
        ("h hour hours", 3_600_000_000),
        ("d day days", 86_400_000_000),
    ] {
        for name in names.split(' ') {
            for (text, count) in [(format!("3/{name}"), 1), (format!("3/7{name}"), 7)] {
                let quota: Quota = text.parse().unwrap();
                assert_eq!(quota.period_us(), count * us, "{text}");
            }
        }
    }
}

#[test]
fn a_period_is_written_in_days_hours_minutes_seconds_and_milliseconds() {
    for (text, canonical) in [
        ("1/24h", "d"),
        ("1/1000ms", "s"),
        ("1/60s", "min"),
        ("1/3600s", "h"),
        ("1/1d1ms", "1d1ms"),
        ("1/61min", "1h1min"),
        ("1/90061001ms", "1d1h1min1s1ms"),
        ("1/1d2h3min4s5ms", "1d2h3min4s5ms"),
        ("1/1day2hours3minutes4seconds5ms", "1d2h3min4s5ms"),
        ("1/120s", "2min"),
        ("1/366d", "366d"),
    ] {
        assert_canonical(text, &format!("sliding-window-counter 1/{canonical}"));
    }
}

#[test]
fn the_bounds_of_every_range_are_valid() {
    for text in [
        "1/ms",
        "1000000000/ms",
        "1000000000/366d",
        "1/366d",
        "sliding-window-log 100000/366d",
        "token-bucket 1000000000/ms burst 1",
        "token-bucket 1/ms burst 1000000000",
        "leaky-bucket 1000000000/366d queue 1000000000",
        // A full drain of 2^52 microseconds is 4503599627370.496 milliseconds.
        "token-bucket 1000000000/4503599627ms burst 1000000000",
        "token-bucket 1/4503599ms burst 1000000",
        "token-bucket 1/4503599627ms burst 1000",
    ] {
        let quota: Quota = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(quota.to_string().parse(), Ok(quota));
    }
}

#[test]
fn a_full_drain_takes_at_most_2_to_the_52_microseconds() {
    let drain = |limit, ms, burst| {
        Quota::with_capacity(
            Algorithm::TokenBucket,
            limit,
            Duration::from_millis(ms),
            burst,
        )
    };
    // 2^16 units x 2^33 ms x 1000 us / 125 = 2^52 us.
    assert_eq!(
        drain(125, 8_589_934_592, 65_536).unwrap().span_us(),
        1 << 52
    );
    assert!(drain(125, 8_589_934_592, 65_537).is_err());
    assert!(drain(124, 8_589_934_592, 65_536).is_err());
    assert!(drain(125, 8_589_934_593, 65_536).is_err());
}

#[test]
fn any_quota_parses_from_its_own_text() {
    with_each_seed(|rng| {
        for _ in 0..2_000 {
            let quota = any_quota(rng);
            let text = quota.to_string();
            assert_eq!(text.parse(), Ok(quota), "{text}");
            let again: Quota = text.parse().unwrap();
            assert_eq!(again.to_string(), text);
        }
    });
}

#[test]
fn the_default_name_is_the_algorithm_and_the_period() {
    let name = |text: &str| text.parse::<Quota>().unwrap().default_name();
    assert_eq!(name("10/min"), name("20/60s"));
    assert_eq!(name("gcra 1/s burst 9"), name("token-bucket 5/s"));
    assert_ne!(
        name("leaky-bucket 1/s burst 2"),
        name("leaky-bucket 1/s queue 2")
    );
    assert_ne!(name("10/min"), name("10/h"));
    assert_ne!(name("10/min"), name("fixed-window 10/min"));
}

#[test]
fn built_and_parsed_quotas_are_equal() {
    assert_eq!(Ok(Quota::per_second(3)), "3/s".parse());
    assert_eq!(Ok(Quota::per_minute(3)), "3/min".parse());
    assert_eq!(Ok(Quota::per_hour(3)), "3/h".parse());
    assert_eq!(Ok(Quota::per_day(3)), "3/d".parse());
    let built = |period| Quota::new(Algorithm::LeakyShaping, 3, period);
    assert_eq!(
        built(Duration::from_secs(1)),
        "leaky-bucket 3/s queue 3".parse()
    );
    assert!(built(Duration::from_micros(1_500)).is_err());
    assert!(built(Duration::from_nanos(1_000_001)).is_err());
    assert!(built(Duration::ZERO).is_err());
    assert!(built(Duration::MAX).is_err());
}

/// Parts of quotas, combined at random.
const FRAGMENTS: [&str; 30] = [
    "token-bucket",
    "leaky-bucket",
    "fixed-window",
    "gcra",
    "burst",
    "queue",
    " ",
    " ",
    " ",
    "/",
    "/",
    "10",
    "0",
    "007",
    "1000000000",
    "18446744073709551616",
    "s",
    "min",
    "ms",
    "d",
    "1h",
    "30min",
    "-",
    "S",
    "\t",
    "\0",
    "é",
    "\u{1F980}",
    "9999999999999",
    "x",
];

#[test]
fn any_text_is_parsed_or_rejected_without_a_panic() {
    with_each_seed(|rng| {
        for _ in 0..20_000 {
            let n = rng.usize(..9);
            let text: String = (0..n).map(|_| any(rng, &FRAGMENTS)).collect();
            match text.parse::<Quota>() {
                Ok(quota) => assert_eq!(quota.to_string().parse(), Ok(quota), "{text:?}"),
                Err(error) => {
                    let span = error.span().unwrap();
                    assert!(text.get(span).is_some(), "{text:?}: {error}");
                    assert!(error.picture().is_some());
                    assert!(error.to_string().ends_with(&error.advice()));
                    let meant = error.suggestion().unwrap_or(error.example_text());
                    assert!(error.advice().contains(meant));
                    assert!(meant.parse::<Quota>().is_ok(), "{text:?}: {meant}");
                    assert!(error.example_text().parse::<Quota>().is_ok());
                }
            }
        }
    });
}

#[test]
fn every_truncated_or_changed_quota_is_parsed_or_rejected() {
    let good = "leaky-bucket 1000003/1d2h30min4s5ms queue 20";
    for at in 0..good.len() {
        let _ = good[..at].parse::<Quota>();
        let _ = good[at..].parse::<Quota>();
        for byte in 0..=127_u8 {
            let mut bytes = good.as_bytes().to_vec();
            bytes[at] = byte;
            let text = String::from_utf8(bytes).unwrap();
            if let Ok(quota) = text.parse::<Quota>() {
                assert_eq!(quota.to_string().parse(), Ok(quota), "{text}");
            }
        }
    }
}
