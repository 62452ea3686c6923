//! Headers that the service or an inner rate limiter has set.

use ::http::StatusCode;
use ::http::header::HeaderMap;
use tallygate_core::Verdict;

use super::shown::smaller_part;
use super::{RATELIMIT, RATELIMIT_POLICY, X_LIMIT, X_REMAINING};

/// Whether the headers of an inner rate limiter stay: it refused the request, or has no larger part
/// of its capacity remaining.
pub(in crate::http) fn keeps_inner(
    headers: &HeaderMap,
    status: StatusCode,
    verdict: &Verdict,
) -> bool {
    // Usually absent: scanning a few names is faster than two hash lookups.
    if !headers
        .keys()
        .any(|name| *name == X_REMAINING || *name == RATELIMIT)
    {
        return false;
    }
    let Some((remaining, limit)) = counts(headers) else {
        return false;
    };
    status == StatusCode::TOO_MANY_REQUESTS
        || match limit {
            Some(limit) => !smaller_part((verdict.remaining, verdict.limit), (remaining, limit)),
            None => remaining <= verdict.remaining,
        }
}

/// The remaining units that the headers report, and the capacity if they name it.
fn counts(headers: &HeaderMap) -> Option<(u32, Option<u32>)> {
    let text = |name| headers.get(name)?.to_str().ok();
    if let Some(remaining) = headers.get(X_REMAINING) {
        return Some((
            number(remaining.to_str().ok()?)?,
            text(X_LIMIT).and_then(number),
        ));
    }
    let state = text(RATELIMIT)?;
    if let Some((name, rest)) = state.split_once(";r=") {
        let policy = text(RATELIMIT_POLICY).and_then(|policy| {
            let (_, rest) = policy.split_once(&format!("{};q=", name.trim_ascii()))?;
            first_number(rest)
        });
        return Some((first_number(rest)?, policy));
    }
    let (_, rest) = state.split_once("remaining=")?;
    let limit = state.split_once("limit=");
    let limit = limit.and_then(|(_, rest)| first_number(rest));
    Some((first_number(rest)?, limit))
}

fn first_number(text: &str) -> Option<u32> {
    number(text.split([';', ',']).next()?)
}

fn number(text: &str) -> Option<u32> {
    text.trim_ascii().parse().ok()
}

#[cfg(test)]
mod tests {
    use ::http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn the_counts_of_every_form_are_read() {
        let cases: [(&[(&'static str, &'static str)], _); 7] = [
            (&[("x-ratelimit-remaining", "5")], Some((5, None))),
            (
                &[("x-ratelimit-remaining", " 5 "), ("x-ratelimit-limit", "9")],
                Some((5, Some(9))),
            ),
            (
                &[
                    ("ratelimit", "\"b\";r=5;t=1"),
                    ("ratelimit-policy", "\"a\";q=7;w=1, \"b\";q=9;w=60"),
                ],
                Some((5, Some(9))),
            ),
            (&[("ratelimit", "\"b\";r=5;t=1")], Some((5, None))),
            (
                &[("ratelimit", "limit=9, remaining=5, reset=1")],
                Some((5, Some(9))),
            ),
            (&[("ratelimit", "x")], None),
            (&[("x-ratelimit-remaining", "many")], None),
        ];
        for (pairs, expected) in cases {
            let pairs = pairs.iter().map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            });
            let headers: HeaderMap = pairs.collect();
            assert_eq!(counts(&headers), expected, "{headers:?}");
        }
    }
}
