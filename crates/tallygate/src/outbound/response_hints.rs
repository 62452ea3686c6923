//! What a remote's response says about when to call again. Knows header fields and their traps;
//! knows nothing of keys, lines or limits.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::http::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use ::http::{HeaderValue, StatusCode};
use sfv::{BareItem, Dictionary, List, ListEntry, Parser};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// What is left and when it is renewed, in fields of their own.
const PAIRS: [[HeaderName; 2]; 3] = [
    [
        HeaderName::from_static("x-ratelimit-remaining"),
        HeaderName::from_static("x-ratelimit-reset"),
    ],
    [
        HeaderName::from_static("x-rate-limit-remaining"),
        HeaderName::from_static("x-rate-limit-reset"),
    ],
    // The IETF draft up to version 06.
    [
        HeaderName::from_static("ratelimit-remaining"),
        HeaderName::from_static("ratelimit-reset"),
    ],
];

/// Longer lines are ignored, and so are further lines of the same name.
const LONGEST_LINE: usize = 4_096;
const MOST_LINES: usize = 16;

/// From here on a number of seconds is a date: 31 years from now, or September 2001.
const A_DATE: u64 = 1_000_000_000;
/// From here on it counts milliseconds: the year 5138, or March 1973.
const A_DATE_IN_MILLIS: u64 = 100_000_000_000;

/// Reads how long a response asks its caller to stay away; none if it does not.
///
/// `now` is the wall clock, and counts only where a date is not accompanied by a `Date` field: with
/// one, the remote's own clock is the measure, and that of this machine may be wrong. The
/// [module](super) says which fields are understood and how. The longest wait of all counts,
/// however long it is.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
/// use tallygate::outbound::asked_to_wait;
///
/// let mut headers = HeaderMap::new();
/// headers.insert(RETRY_AFTER, "120".parse()?);
/// let wait = asked_to_wait(StatusCode::TOO_MANY_REQUESTS, &headers, SystemTime::now());
/// assert_eq!(wait, Some(Duration::from_secs(120)));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn asked_to_wait(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let now = lines(headers, &DATE).find_map(date).unwrap_or(now);
    let refused = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    let waits = [
        refused.then(|| retry_after(headers, now)).flatten(),
        rate_limit(headers),
        PAIRS
            .iter()
            .filter_map(|pair| renewed(headers, pair, now))
            .max(),
    ];
    let millis = waits.into_iter().flatten().max()?;
    (millis > 0).then(|| Duration::from_millis(millis))
}

fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let dates = lines(headers, &RETRY_AFTER)
        .filter_map(date)
        .map(|date| millis_until(date, now));
    let numbers = numbers(headers, &RETRY_AFTER).map(|millis| from_now(millis, now));
    dates.chain(numbers).max()
}

/// The wait of a pair of fields, if nothing is left.
fn renewed(
    headers: &HeaderMap,
    [remaining, reset]: &[HeaderName; 2],
    now: SystemTime,
) -> Option<u64> {
    let spent = numbers(headers, remaining).any(is_spent);
    let resets = numbers(headers, reset).map(|millis| from_now(millis, now));
    resets.max().filter(|_| spent)
}

/// The wait of the structured field, in either form.
fn rate_limit(headers: &HeaderMap) -> Option<u64> {
    let lines: Vec<&str> = lines(headers, &RATELIMIT).collect();
    // All lines are one field; but a broken one should not silence the others.
    structured(&lines.join(", ")).or_else(|| lines.iter().filter_map(|line| structured(line)).max())
}

/// None if it is no structured field at all.
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

/// Half a request is none.
fn is_spent(thousandths: u64) -> bool {
    thousandths < 1_000
}

/// The lines of a field that can be read at all.
fn lines<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let short = |line: &&HeaderValue| line.len() <= LONGEST_LINE;
    let text = |line: &'h HeaderValue| line.to_str().ok();
    let found = headers.get_all(name).iter().take(MOST_LINES);
    found.filter(short).filter_map(text)
}

/// The numbers of a field, in thousandths: lines may have been joined on the way.
fn numbers(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = u64> {
    lines(headers, name)
        .flat_map(|line| line.split(','))
        .filter_map(thousandths)
}

/// A number without sign, rounded up; one too large is as large as can be.
fn thousandths(text: &str) -> Option<u64> {
    let text = text.trim_matches([' ', '\t']);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let value = |digits: &mut dyn Iterator<Item = u8>| {
        digits.fold(0_u64, |value, digit| {
            value
                .saturating_mul(10)
                .saturating_add(u64::from(digit - b'0'))
        })
    };
    let (whole, mut digits) = (value(&mut whole.bytes()), fraction.bytes());
    let three = digits.by_ref().chain([b'0'; 3]).take(3).collect::<Vec<_>>();
    let rest = digits.any(|digit| digit != b'0');
    let part = value(&mut three.into_iter()) + u64::from(rest);
    Some(whole.saturating_mul(1_000).saturating_add(part))
}

/// A wait in milliseconds; what is too large for one is a date.
fn from_now(millis: u64, now: SystemTime) -> u64 {
    let date = match millis / 1_000 {
        0..A_DATE => return millis,
        A_DATE..A_DATE_IN_MILLIS => millis,
        A_DATE_IN_MILLIS.. => millis.div_ceil(1_000),
    };
    let far = |date| UNIX_EPOCH.checked_add(Duration::from_millis(date));
    far(date).map_or(u64::MAX, |date| millis_until(date, now))
}

fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text.trim_matches([' ', '\t'])).ok()
}

/// None is left of a date that has passed.
fn millis_until(date: SystemTime, now: SystemTime) -> u64 {
    let left = date.duration_since(now).unwrap_or_default();
    u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
