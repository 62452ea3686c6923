//! Any lines as the head of a remote's response: read without a panic, whatever the order of
//! different fields, never longer than its fields say apart, and exact where it is simple.
#![no_main]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, header};
use libfuzzer_sys::fuzz_target;
use tallygate::outbound::requested_pause;

/// The fields that are read; a line's first byte says which one it is.
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

    let refused = asked(StatusCode::TOO_MANY_REQUESTS, &lines);
    let served = asked(StatusCode::OK, &lines);
    assert!(served <= refused, "{served:?} of a success, {refused:?}");
    assert!(refused != Some(Duration::ZERO), "a wait of nothing");
    let busy = asked(StatusCode::SERVICE_UNAVAILABLE, &lines);
    assert_eq!(busy, refused, "503 is read as 429");
    order_of_fields_plays_no_part(&lines, refused);
    fields_apart_say_the_same(&lines, refused);
    numbers_are_exact(&lines, refused);
});

fn asked(status: StatusCode, lines: &[Line]) -> Option<Duration> {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(name, value.clone());
    }
    let now: SystemTime = UNIX_EPOCH + Duration::from_secs(NOW);
    requested_pause(status, &headers, now)
}

/// Lines of one name keep their order, those of different names are told apart anyway.
fn order_of_fields_plays_no_part(lines: &[Line], wait: Option<Duration>) {
    let mut sorted = lines.to_vec();
    sorted.sort_by(|a, b| b.0.as_str().cmp(a.0.as_str()));
    assert_eq!(asked(StatusCode::TOO_MANY_REQUESTS, &sorted), wait);
}

/// The longest wait of each family by itself is the wait of all.
fn fields_apart_say_the_same(lines: &[Line], wait: Option<Duration>) {
    let families: [&[usize]; 5] = [&[0], &[1], &[2, 3], &[4, 5], &[6, 7]];
    let apart = families.iter().map(|family| {
        let of_family = |line: &&Line| {
            let names = family.iter().map(|&field| FIELDS[field]);
            line.0 == header::DATE || names.into_iter().any(|name| line.0 == name)
        };
        let lines: Vec<Line> = lines.iter().filter(of_family).cloned().collect();
        asked(StatusCode::TOO_MANY_REQUESTS, &lines)
    });
    assert_eq!(apart.max().flatten(), wait);
}

/// A few plain digits mean what they say.
fn numbers_are_exact(lines: &[Line], wait: Option<Duration>) {
    for (name, value) in lines.iter().take(16) {
        let digits = value.to_str().unwrap_or_default();
        let plain = digits.len() <= 9 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let Some(seconds) = digits.parse::<u64>().ok().filter(|_| plain) else {
            continue;
        };
        let due = (seconds > 0).then(|| Duration::from_secs(seconds));
        if *name == header::RETRY_AFTER {
            assert!(wait >= due, "{wait:?} is less than {due:?}");
        }
        for text in [
            format!("\"a\";r=0;t={seconds}"),
            format!("limit=1, remaining=0, reset={seconds}"),
        ] {
            let value = HeaderValue::from_str(&text).expect("a field of our own");
            let field = (HeaderName::from_static("ratelimit"), value);
            assert_eq!(asked(StatusCode::OK, &[field]), due, "{text}");
        }
    }
}
