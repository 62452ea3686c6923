//! Parses the wait that a response requires: `Retry-After`, `RateLimit` and relatives.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::http::header::{AsHeaderName, DATE, HeaderMap, RETRY_AFTER};
use ::http::{HeaderValue, StatusCode};
use sfv::{BareItem, Dictionary, List, ListEntry, Parser};

/// Remaining requests and reset time, in separate headers.
const PAIRS: [[&str; 2]; 3] = [
    ["x-ratelimit-remaining", "x-ratelimit-reset"],
    ["x-rate-limit-remaining", "x-rate-limit-reset"],
    // The IETF draft up to version 06.
    ["ratelimit-remaining", "ratelimit-reset"],
];

/// Longer values, and further values of the same header, are ignored.
const MAX_LINE_BYTES: usize = 4_096;
const MAX_LINES: usize = 16;

/// A number of seconds from here on is a Unix time: a wait of 31 years, or September 2001.
const MIN_UNIX_SECONDS: u64 = 1_000_000_000;
/// From here on it is a Unix time in milliseconds: the year 5138, or March 1973.
const MIN_UNIX_MILLIS: u64 = 100_000_000_000;

/// Returns how long a response requires its caller to wait.
///
/// Dates are compared with the response's `Date` header, or with `now`, the wall clock, if it has
/// none. The [module documentation](super) lists the headers and their interpretation. The longest
/// wait counts, without an upper bound.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
/// use tallygate::outbound::requested_pause;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(RETRY_AFTER, "120".parse()?);
/// let wait = requested_pause(StatusCode::TOO_MANY_REQUESTS, &headers, SystemTime::now());
/// assert_eq!(wait, Some(Duration::from_secs(120)));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn requested_pause(
    status: StatusCode,
    headers: &HeaderMap,
    now: SystemTime,
) -> Option<Duration> {
    let now = lines(headers, DATE).find_map(date).unwrap_or(now);
    let refused = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    let reset = |pair: &[&str; 2]| pair_reset(headers, *pair, now);
    let waits = [
        refused.then(|| retry_after(headers, now)).flatten(),
        rate_limit(headers),
        PAIRS.iter().filter_map(reset).max(),
    ];
    let millis = waits.into_iter().flatten().max()?;
    (millis > 0).then(|| Duration::from_millis(millis))
}

fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let dates = lines(headers, RETRY_AFTER)
        .filter_map(date)
        .map(|date| millis_until(date, now));
    let numbers = numbers(headers, RETRY_AFTER).map(|millis| wait_millis(millis, now));
    dates.chain(numbers).max()
}

/// The wait of a pair of headers, if nothing remains.
fn pair_reset(headers: &HeaderMap, [remaining, reset]: [&str; 2], now: SystemTime) -> Option<u64> {
    let spent = numbers(headers, remaining).any(is_spent);
    let resets = numbers(headers, reset).map(|millis| wait_millis(millis, now));
    resets.max().filter(|_| spent)
}

/// The wait of the `RateLimit` header, in either form.
fn rate_limit(headers: &HeaderMap) -> Option<u64> {
    let lines: Vec<&str> = lines(headers, "ratelimit").collect();
    // All values are one field; if that is invalid, valid ones still count.
    structured(&lines.join(", ")).or_else(|| lines.iter().filter_map(|line| structured(line)).max())
}

/// Returns `None` if the text is not a structured field.
fn structured(text: &str) -> Option<u64> {
    if let Ok(list) = Parser::new(text).parse::<List>() {
        let waits = list.iter().filter_map(|entry| {
            let ListEntry::Item(item) = entry else {
                return None;
            };
            let number = |name: &str| item.params.get(name).and_then(millis_of);
            number("r").filter(|&left| is_spent(left))?;
            number("t")
        });
        return Some(waits.max().unwrap_or(0));
    }
    let dictionary = Parser::new(text).parse::<Dictionary>().ok()?;
    let number = |name: &str| match dictionary.get(name)? {
        ListEntry::Item(item) => millis_of(&item.bare_item),
        ListEntry::InnerList(_) => None,
    };
    let spent = number("remaining").is_some_and(is_spent);
    Some(number("reset").filter(|_| spent).unwrap_or(0))
}

fn millis_of(item: &BareItem) -> Option<u64> {
    let whole = |integer: sfv::Integer| u64::try_from(i64::from(integer)).ok();
    match item.as_integer() {
        Some(seconds) => whole(seconds)?.checked_mul(1_000),
        None => whole(item.as_decimal()?.as_integer_scaled_1000()),
    }
}

fn is_spent(thousandths: u64) -> bool {
    thousandths < 1_000
}

/// The values of a header that are short enough and ASCII.
fn lines(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &str> {
    let short = |line: &&HeaderValue| line.len() <= MAX_LINE_BYTES;
    let found = headers.get_all(name).into_iter().take(MAX_LINES);
    found.filter(short).filter_map(|line| line.to_str().ok())
}

/// The numbers of a header, in thousandths. A proxy may have joined values with commas.
fn numbers(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = u64> {
    lines(headers, name)
        .flat_map(|line| line.split(','))
        .filter_map(thousandths)
}

/// Parses an unsigned decimal number, rounding up and saturating.
fn thousandths(text: &str) -> Option<u64> {
    let text = text.trim_matches([' ', '\t']);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    // Digits only: the only error is overflow.
    let whole: u64 = whole.parse().unwrap_or(u64::MAX);
    let padded = format!("{fraction:0<3}");
    let (three, rest) = padded.split_at(3);
    let rest = u64::from(rest.bytes().any(|digit| digit != b'0'));
    let part = three.parse().map_or(rest, |part: u64| part + rest);
    Some(whole.saturating_mul(1_000).saturating_add(part))
}

/// Converts a number to a wait in milliseconds; large numbers are Unix times.
fn wait_millis(millis: u64, now: SystemTime) -> u64 {
    let date = match millis / 1_000 {
        0..MIN_UNIX_SECONDS => return millis,
        MIN_UNIX_SECONDS..MIN_UNIX_MILLIS => millis,
        MIN_UNIX_MILLIS.. => millis.div_ceil(1_000),
    };
    let far = |date| UNIX_EPOCH.checked_add(Duration::from_millis(date));
    far(date).map_or(u64::MAX, |date| millis_until(date, now))
}

fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text.trim_matches([' ', '\t'])).ok()
}

/// The time until a date; zero if it has passed.
fn millis_until(date: SystemTime, now: SystemTime) -> u64 {
    let left = date.duration_since(now).unwrap_or_default();
    u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
