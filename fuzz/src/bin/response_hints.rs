//! Parses any lines as the headers of a remote's response. Checks that the order of different
//! headers does not matter, that the pause is the longest of all headers, and that plain numbers
//! are exact.
#![no_main]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, header};
use libfuzzer_sys::fuzz_target;
use tallygate::outbound::requested_pause;

/// The header names, selected by the first byte of a line.
const FIELDS: [&str; 9] = [
    "retry-after",
    "ratelimit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-rate-limit-remaining",
    "x-rate-limit-reset",
    "ratelimit-remaining",
    "ratelimit-reset",
    "date",
];

/// Tue, 14 Nov 2023 22:13:20 GMT.
const NOW: u64 = 1_700_000_000;

type Line = (HeaderName, HeaderValue);

fuzz_target!(|bytes: &[u8]| {
    let lines: Vec<Line> = bytes
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let (&field, value) = line.split_first()?;
            // Seeds are easier to read with digits.
            let field = usize::from(field.wrapping_sub(b'0')) % FIELDS.len();
            let name = HeaderName::from_static(FIELDS[field]);
            Some((name, HeaderValue::from_bytes(value).ok()?))
        })
        .collect();

    let refused = pause(StatusCode::TOO_MANY_REQUESTS, &lines);
    let served = pause(StatusCode::OK, &lines);
    assert!(served <= refused, "{served:?} for 200, {refused:?} for 429");
    assert!(refused != Some(Duration::ZERO), "a pause of zero");
    let busy = pause(StatusCode::SERVICE_UNAVAILABLE, &lines);
    assert_eq!(busy, refused, "503 and 429 differ");
    check_order_does_not_matter(&lines, refused);
    check_longest_family_wins(&lines, refused);
    check_numbers_are_exact(&lines, refused);
});

fn pause(status: StatusCode, lines: &[Line]) -> Option<Duration> {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(name, value.clone());
    }
    let now: SystemTime = UNIX_EPOCH + Duration::from_secs(NOW);
    requested_pause(status, &headers, now)
}

/// Sorts by name; lines of the same name keep their order.
fn check_order_does_not_matter(lines: &[Line], wait: Option<Duration>) {
    let mut sorted = lines.to_vec();
    sorted.sort_by(|a, b| b.0.as_str().cmp(a.0.as_str()));
    assert_eq!(pause(StatusCode::TOO_MANY_REQUESTS, &sorted), wait);
}

/// The pause is the longest pause of any header family alone.
fn check_longest_family_wins(lines: &[Line], wait: Option<Duration>) {
    let families: [&[usize]; 5] = [&[0], &[1], &[2, 3], &[4, 5], &[6, 7]];
    let pauses = families.iter().map(|family| {
        let of_family = |line: &&Line| {
            let names = family.iter().map(|&field| FIELDS[field]);
            line.0 == header::DATE || names.into_iter().any(|name| line.0 == name)
        };
        let lines: Vec<Line> = lines.iter().filter(of_family).cloned().collect();
        pause(StatusCode::TOO_MANY_REQUESTS, &lines)
    });
    assert_eq!(pauses.max().flatten(), wait);
}

/// A plain number of seconds is used as it is.
fn check_numbers_are_exact(lines: &[Line], wait: Option<Duration>) {
    for (name, value) in lines.iter().take(16) {
        let digits = value.to_str().unwrap_or_default();
        let plain = digits.len() <= 9 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let Some(seconds) = digits.parse::<u64>().ok().filter(|_| plain) else {
            continue;
        };
        let expected = (seconds > 0).then(|| Duration::from_secs(seconds));
        if *name == header::RETRY_AFTER {
            assert!(wait >= expected, "{wait:?} is less than {expected:?}");
        }
        for text in [
            format!("\"a\";r=0;t={seconds}"),
            format!("limit=1, remaining=0, reset={seconds}"),
        ] {
            let value = HeaderValue::from_str(&text).expect("the value is valid");
            let field = (HeaderName::from_static("ratelimit"), value);
            assert_eq!(pause(StatusCode::OK, &[field]), expected, "{text}");
        }
    }
}
