//! Headers of real services, and malformed ones.

use ::http::HeaderName;

use super::*;

/// Tue, 14 Nov 2023 22:13:20 GMT.
const NOW: u64 = 1_700_000_000;

type Fields<'a> = &'a [(&'a str, &'a [u8])];

/// The requested pause of a response with these headers at [`NOW`].
fn pause_millis(status: u16, fields: Fields<'_>) -> Option<u64> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_bytes(value).unwrap());
    }
    let now = UNIX_EPOCH + Duration::from_secs(NOW);
    let wait = requested_pause(StatusCode::from_u16(status).unwrap(), &headers, now);
    wait.map(|wait| u64::try_from(wait.as_millis()).unwrap())
}

fn retry(value: &str) -> Option<u64> {
    pause_millis(429, &[("retry-after", value.as_bytes())])
}

fn rate_limit(value: &str) -> Option<u64> {
    pause_millis(200, &[("ratelimit", value.as_bytes())])
}

fn pair(remaining: &str, reset: &str) -> Option<u64> {
    pause_millis(
        200,
        &[
            ("x-ratelimit-remaining", remaining.as_bytes()),
            ("x-ratelimit-reset", reset.as_bytes()),
        ],
    )
}

#[test]
fn retry_after_counts_seconds() {
    assert_eq!(retry("1"), Some(1_000));
    assert_eq!(retry("120"), Some(120_000));
    assert_eq!(retry(" 007\t"), Some(7_000));
    assert_eq!(retry("0"), None);
    assert_eq!(retry("999999999"), Some(999_999_999_000));
}

#[test]
fn retry_after_may_be_a_date_in_each_of_its_forms() {
    for date in [
        "Tue, 14 Nov 2023 22:13:50 GMT",
        "Tuesday, 14-Nov-23 22:13:50 GMT",
        "Tue Nov 14 22:13:50 2023",
    ] {
        assert_eq!(retry(date), Some(30_000), "{date}");
    }
    assert_eq!(retry("Tue, 14 Nov 2023 22:13:20 GMT"), None);
    assert_eq!(retry("Mon, 13 Nov 2023 22:13:20 GMT"), None);
}

#[test]
fn dates_are_compared_with_the_date_header() {
    // The remote's clock is a day behind.
    let date: (&str, &[u8]) = ("date", b"Mon, 13 Nov 2023 22:13:20 GMT");
    let retry: (&str, &[u8]) = ("retry-after", b"Mon, 13 Nov 2023 22:13:25 GMT");
    assert_eq!(pause_millis(503, &[date, retry]), Some(5_000));
    assert_eq!(pause_millis(503, &[retry]), None);
    let reset: Fields<'_> = &[
        date,
        ("x-ratelimit-remaining", b"0"),
        ("x-ratelimit-reset", b"1699913602"),
    ];
    assert_eq!(pause_millis(200, reset), Some(2_000));
    let garbage: (&str, &[u8]) = ("date", b"yesterday");
    let later: (&str, &[u8]) = ("retry-after", b"Tue, 14 Nov 2023 22:13:21 GMT");
    assert_eq!(pause_millis(503, &[garbage, later]), Some(1_000));
}

#[test]
fn retry_after_counts_only_with_a_refusal() {
    let fields: Fields<'_> = &[("retry-after", b"5")];
    for status in [429, 503] {
        assert_eq!(pause_millis(status, fields), Some(5_000), "{status}");
    }
    for status in [200, 202, 301, 304, 400, 403, 413, 500, 502, 504] {
        assert_eq!(pause_millis(status, fields), None, "{status}");
    }
}

#[test]
fn the_latest_form_of_ratelimit_pauses_when_nothing_remains() {
    assert_eq!(rate_limit(r#""default";r=0;t=30"#), Some(30_000));
    assert_eq!(rate_limit(r#""default";r=50;t=30"#), None);
    assert_eq!(rate_limit(r#""default";r=0"#), None);
    assert_eq!(rate_limit(r#""default";r=0;t=0"#), None);
    assert_eq!(rate_limit(r#""default";t=30"#), None);
    assert_eq!(rate_limit("token;r=0;t=30"), Some(30_000));
    assert_eq!(
        rate_limit(r#""a";r=0;t=30;pk=:Y2RuLTE=:;other"#),
        Some(30_000)
    );
    // The last of two parameters of one name counts.
    assert_eq!(rate_limit(r#""a";r=5;r=0;t=1;t=2"#), Some(2_000));
    // The longest of several exhausted policies.
    let several = r#""burst";r=0;t=1, "hour";r=0;t=90, "day";r=7;t=9000"#;
    assert_eq!(rate_limit(several), Some(90_000));
}

#[test]
fn version_07_of_ratelimit_pauses_when_nothing_remains() {
    assert_eq!(rate_limit("limit=100, remaining=0, reset=30"), Some(30_000));
    assert_eq!(rate_limit("reset=30,remaining=0"), Some(30_000));
    assert_eq!(
        rate_limit("limit=9;w=1, remaining=0;x, reset=3"),
        Some(3_000)
    );
    assert_eq!(rate_limit("limit=100, remaining=50, reset=30"), None);
    assert_eq!(rate_limit("limit=100, remaining=0"), None);
    assert_eq!(rate_limit("limit=100, reset=30"), None);
    assert_eq!(rate_limit("remaining=(0), reset=(30)"), None);
}

#[test]
fn several_values_are_one_field() {
    let list: Fields<'_> = &[
        ("ratelimit", b"\"a\";r=0;t=5"),
        ("ratelimit", b"\"b\";r=0;t=8"),
    ];
    assert_eq!(pause_millis(200, list), Some(8_000));
    let dictionary: Fields<'_> = &[
        ("ratelimit", b"limit=1, remaining=0"),
        ("ratelimit", b"reset=6"),
    ];
    assert_eq!(pause_millis(200, dictionary), Some(6_000));
}

#[test]
fn an_invalid_value_does_not_hide_the_others() {
    let broken: Fields<'_> = &[
        ("ratelimit", b"\"a;r=0;t=50"),
        ("ratelimit", b"\"b\";r=0;t=8"),
        ("ratelimit", b"limit=1, remaining=0, reset=9"),
        ("ratelimit", b"\xc3\xa9"),
    ];
    assert_eq!(pause_millis(200, broken), Some(9_000));
}

#[test]
fn an_invalid_structured_field_is_ignored() {
    for value in [
        "",
        ",",
        "\"a\";r=0;t=30,",
        "\"a\";r=0; t",
        "\"a;r=0;t=30",
        "\"a\";r=0;t=-30",
        "\"a\";r=-1;t=30",
        "\"a\";r=0;t=\"30\"",
        "\"a\";r=?0;t=30",
        "(\"a\";r=0;t=30)",
        "\"a\";R=0;T=30",
        "\"a\";r=0;t=1234567890123456",
        "limit=100 remaining=0 reset=30",
        "limit=100; remaining=0; reset=30",
        "Remaining=0, Reset=30",
        "remaining=0, reset=3 0",
        "remaining=00000000000000000, reset=30",
        "0;30",
    ] {
        assert_eq!(rate_limit(value), None, "{value}");
    }
    assert_eq!(
        pause_millis(200, &[("ratelimit", b"\"\xff\";r=0;t=30")]),
        None
    );
}

#[test]
fn remaining_and_reset_may_be_separate_headers() {
    assert_eq!(pair("0", "30"), Some(30_000));
    assert_eq!(pair("1", "30"), None);
    assert_eq!(pair("0", "0"), None);
    for [remaining, reset] in PAIRS {
        let fields = [(remaining, &b"0"[..]), (reset, b"3")];
        assert_eq!(pause_millis(200, &fields), Some(3_000), "{remaining}");
    }
    assert_eq!(pause_millis(200, &[("x-ratelimit-remaining", b"0")]), None);
    assert_eq!(pause_millis(200, &[("x-ratelimit-reset", b"3")]), None);
    // Halves of different pairs are ignored.
    let mixed: Fields<'_> = &[("x-ratelimit-remaining", b"0"), ("ratelimit-reset", b"3")];
    assert_eq!(pause_millis(200, mixed), None);
}

#[test]
fn a_large_number_is_a_unix_time() {
    assert_eq!(pair("0", "999999999"), Some(999_999_999_000));
    assert_eq!(pair("0", "1000000000"), None);
    assert_eq!(pair("0", "1700000000"), None);
    assert_eq!(pair("0", "1700000045"), Some(45_000));
    assert_eq!(pair("0", "1700000045.25"), Some(45_250));
    assert_eq!(
        pair("0", "99999999999"),
        Some((99_999_999_999 - NOW) * 1_000)
    );
    // Larger still: milliseconds.
    assert_eq!(pair("0", "100000000000"), None);
    assert_eq!(pair("0", "1700000045678"), Some(45_678));
    assert_eq!(retry("1700000045"), Some(45_000));
    // Huge numbers saturate.
    let nines = "9".repeat(4_000);
    assert!(pair("0", &nines).unwrap() > 1_000_000_000_000);
    assert!(retry(&nines).unwrap() > 1_000_000_000_000);
}

#[test]
fn fractions_are_rounded_up() {
    assert_eq!(retry("1.5"), Some(1_500));
    assert_eq!(retry("0.0001"), Some(1));
    assert_eq!(retry("0.000"), None);
    assert_eq!(retry("1.0010000000000000000000000000001"), Some(1_002));
    assert_eq!(retry("0.9999"), Some(1_000));
    assert_eq!(rate_limit("\"a\";r=0;t=1.5"), Some(1_500));
    assert_eq!(rate_limit("\"a\";r=0.9;t=1"), Some(1_000));
    assert_eq!(pair("0.5", "0.25"), Some(250));
    assert_eq!(pair("1.0", "1"), None);
}

#[test]
fn anything_but_a_number_is_ignored() {
    for value in [
        "", "-1", "+1", "- 1", "1e3", "0x10", "1_000", "1 000", ".5", "1.", "1.2.3", "١٢", "soon",
        "NaN", "inf", "1s", "\"1\"", "--", "1;2",
    ] {
        assert_eq!(retry(value), None, "{value}");
        assert_eq!(pair(value, "30"), None, "{value}");
        assert_eq!(pair("0", value), None, "{value}");
    }
    for bytes in [&b"\xff\xfe\x80"[..], b"1\xa0", "\u{a0}1".as_bytes()] {
        assert_eq!(
            pause_millis(429, &[("retry-after", bytes)]),
            None,
            "{bytes:?}"
        );
    }
}

#[test]
fn the_longest_wait_and_the_least_remaining_count() {
    let lines: Fields<'_> = &[
        ("retry-after", b"5"),
        ("retry-after", b"nonsense"),
        ("retry-after", b"Tue, 14 Nov 2023 22:13:27 GMT"),
        ("retry-after", b"6"),
    ];
    assert_eq!(pause_millis(429, lines), Some(7_000));
    assert_eq!(retry("3, 9, x"), Some(9_000));
    assert_eq!(pair("7, 0", "4, 2"), Some(4_000));
}

#[test]
fn the_longest_wait_of_several_headers_counts() {
    let mut fields = vec![
        ("retry-after", &b"1"[..]),
        ("ratelimit", b"\"a\";r=0;t=2"),
        ("x-ratelimit-remaining", b"0"),
        ("x-ratelimit-reset", b"3"),
        ("ratelimit-remaining", b"0"),
        ("ratelimit-reset", b"4"),
    ];
    assert_eq!(pause_millis(429, &fields), Some(4_000));
    fields[1].1 = b"\"a\";r=0;t=9";
    assert_eq!(pause_millis(429, &fields), Some(9_000));
    fields[0].1 = b"11";
    assert_eq!(pause_millis(429, &fields), Some(11_000));
    assert_eq!(pause_millis(200, &fields), Some(9_000));
}

#[test]
fn values_that_are_too_long_or_too_many_are_ignored() {
    let long = |len: usize| format!("{}1", " ".repeat(len - 1));
    assert_eq!(retry(&long(MAX_LINE_BYTES)), Some(1_000));
    assert_eq!(retry(&long(MAX_LINE_BYTES + 1)), None);
    let huge = "9".repeat(64 * 1024);
    assert_eq!(retry(&huge), None);
    assert_eq!(pair("0", &huge), None);
    assert_eq!(rate_limit(&format!("\"{huge}\";r=0;t=30")), None);
    let mut lines = vec![("retry-after", &b"x"[..]); MAX_LINES - 1];
    lines.push(("retry-after", b"1"));
    assert_eq!(pause_millis(429, &lines), Some(1_000));
    lines.insert(0, ("retry-after", b"x"));
    assert_eq!(pause_millis(429, &lines), None);
}
