//! Parses any text as a quota. Checks that the canonical form parses to the same quota, that errors
//! are short, and that decisions are exact at extreme times. A script of requests follows the first
//! line feed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tallygate_core::{MAX_CAPACITY, MAX_PERIOD_US, MAX_TIME_US, MIN_PERIOD_US, Quota, QuotaError};
use tallygate_fuzz::script;

/// The maximum length of an error, independent of the length of the text.
const MAX_ERROR_CHARS: usize = 400;
/// The maximum length of its problem: a quoted word of up to 40 characters and the message.
const MAX_PROBLEM_CHARS: usize = 200;

fuzz_target!(|bytes: &[u8]| {
    // With line feeds, which are invalid in a quota.
    read(bytes);
    let mut parts = bytes.splitn(2, |&byte| byte == b'\n');
    let text = parts.next().unwrap_or_default();
    let steps = parts.next().unwrap_or_default();
    if let Some(quota) = read(text) {
        script::run(&quota, steps);
    }
});

fn read(bytes: &[u8]) -> Option<Quota> {
    let text = String::from_utf8_lossy(bytes);
    match text.parse::<Quota>() {
        Ok(quota) => {
            check_quota(&quota);
            Some(quota)
        }
        Err(error) => {
            check_error(&text, &error);
            None
        }
    }
}

fn check_quota(quota: &Quota) {
    let canonical = quota.to_string();
    let again: Quota = canonical.parse().expect("canonical text is a valid quota");
    assert_eq!(again, *quota, "`{canonical}` is another quota");
    assert_eq!(again.to_string(), canonical, "not canonical");
    assert!(canonical.len() <= 80 && canonical.is_ascii(), "{canonical}");

    assert!((1..=quota.algorithm().max_limit()).contains(&quota.limit()));
    assert!((1..=MAX_CAPACITY).contains(&quota.capacity()));
    assert!((MIN_PERIOD_US..=MAX_PERIOD_US).contains(&quota.period_us()));
    assert!((1..=MAX_TIME_US).contains(&quota.span_us()));
    assert!(canonical.contains(&quota.period_text()));
    assert!(quota.default_name().ends_with(&quota.period_text()));

    // Monotonic in time and in units.
    let spans = [
        0,
        1,
        quota.period_us(),
        quota.span_us(),
        MAX_TIME_US,
        u64::MAX,
    ];
    let max_admitted = spans.map(|span| quota.worst_case(span));
    assert!(
        max_admitted[1] >= max_admitted[0] && max_admitted[5] >= max_admitted[4],
        "{canonical}"
    );
    let drains = [0, 1, quota.capacity(), u32::MAX].map(|units| quota.drain_us(units));
    assert!(drains.is_sorted(), "{canonical}: {drains:?}");
}

fn check_error(text: &str, error: &QuotaError) {
    let message = error.to_string();
    let picture = error.picture();
    assert!(message.chars().count() <= MAX_ERROR_CHARS, "{message}");
    assert!(
        error.problem().chars().count() <= MAX_PROBLEM_CHARS,
        "{message}"
    );
    assert!(!message.chars().any(char::is_control), "{message:?}");
    assert!(message.starts_with(error.problem()), "{message}");
    let example = error.example_text();
    assert!(example.parse::<Quota>().is_ok(), "{example}");
    if let Some(meant) = error.suggestion() {
        assert!(meant != text && meant.parse::<Quota>().is_ok(), "{meant}");
    }

    assert_eq!(error.span().is_some(), picture.is_some(), "{message}");
    let Some(span) = error.span() else { return };
    assert!(text.get(span.clone()).is_some(), "{span:?} of {text:?}");
    let picture = picture.unwrap_or_default();
    let (shown, marks) = picture.split_once('\n').expect("two lines");
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
    let (shown, marked) = (shown.chars().count(), marks.len());
    assert!(shown <= MAX_ERROR_CHARS && marked <= shown + 1, "{picture}");
    let marks = marks.trim_start_matches(' ');
    assert!(!marks.is_empty() && marks.bytes().all(|mark| mark == b'^'));
}
