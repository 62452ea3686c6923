//! Response headers: `Retry-After`, `RateLimit`, `RateLimit-Policy` and `X-RateLimit-*`.

use std::fmt::Write as _;
use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

use ::http::StatusCode;
use ::http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use bytes::Bytes;

use crate::decision::{Decision, RetryAfter};
use crate::limit::Limit;
use crate::request::{Request, RequestError};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Numbers below this are cached, without an allocation for each.
const CACHED: usize = 1024;

/// The headers that are sent to clients.
///
/// ```
/// use tallygate::http::{Draft, Headers};
///
/// let headers = Headers::default().x_ratelimit(false).draft(Some(Draft::Latest));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    retry_after: bool,
    draft: Option<Draft>,
    x_ratelimit: bool,
    jitter: Duration,
}

/// A version of the IETF draft "RateLimit header fields for HTTP".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Draft {
    /// The version of this release: `RateLimit-Policy: "name";q=100;w=60` for every limit and
    /// `RateLimit: "name";r=50;t=30` for the binding one.
    #[default]
    Latest,
    /// Version 07: `RateLimit: limit=100, remaining=50, reset=30` and
    /// `RateLimit-Policy: 100;w=60`.
    Seven,
}

impl Default for Headers {
    /// All headers, without jitter.
    fn default() -> Self {
        Headers {
            retry_after: true,
            draft: Some(Draft::Latest),
            x_ratelimit: true,
            jitter: Duration::ZERO,
        }
    }
}

impl Headers {
    /// Sends no headers.
    pub fn none() -> Self {
        Headers {
            retry_after: false,
            draft: None,
            x_ratelimit: false,
            jitter: Duration::ZERO,
        }
    }

    /// Sets whether refusals carry `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, on: bool) -> Self {
        self.retry_after = on;
        self
    }

    /// Sets the version of the IETF draft; `None` sends neither of its headers.
    #[must_use]
    pub fn draft(mut self, draft: Option<Draft>) -> Self {
        self.draft = draft;
        self
    }

    /// Sets whether `X-RateLimit-Limit`, `-Remaining` and `-Reset` are sent.
    #[must_use]
    pub fn x_ratelimit(mut self, on: bool) -> Self {
        self.x_ratelimit = on;
        self
    }

    /// Adds a random time of up to `max` to `Retry-After`, so that clients that were refused
    /// together do not retry together.
    #[must_use]
    pub fn jitter(mut self, max: Duration) -> Self {
        self.jitter = max;
        self
    }

    /// Writes the headers of a decision that was made without a [`Plan`](super::Plan). `limits`
    /// are those of the request, in order. A decision without counters has no counts.
    pub fn write_decision<'l>(
        &self,
        headers: &mut HeaderMap,
        decision: &Decision,
        limits: impl Iterator<Item = &'l Limits> + Clone,
    ) {
        if let Some(RetryAfter::After(wait)) = decision.retry_after() {
            self.write_retry_after(headers, wait);
        }
        if decision.verdicts().is_empty() {
            return;
        }
        let mut names = limits.clone().flat_map(|limits| {
            let positions = 0..limits.len();
            positions.map(move |i| limits.quoted(i))
        });
        if let Some(binding) = names.nth(decision.binding()) {
            self.write_counts(headers, decision, binding, limits);
        }
    }

    /// Whether admitted requests get headers.
    #[inline]
    pub(super) fn reports_counts(&self) -> bool {
        self.draft.is_some() || self.x_ratelimit
    }

    /// Whether both list limits in the same draft.
    pub(super) fn same_draft(&self, other: &Headers) -> bool {
        self.draft.is_some() && self.draft == other.draft
    }

    /// Writes `Retry-After` if it is enabled, and returns whether it is.
    pub(super) fn write_retry_after(&self, headers: &mut HeaderMap, wait: Duration) -> bool {
        if self.retry_after {
            headers.insert(RETRY_AFTER, value(self.retry_seconds(wait)));
        }
        self.retry_after
    }

    /// Writes the counts of a decision. `binding` is the quoted name of the binding limit, `limits`
    /// are those to list, by rule.
    pub(super) fn write_counts<'l>(
        &self,
        headers: &mut HeaderMap,
        decision: &Decision,
        binding: &str,
        limits: impl Iterator<Item = &'l Limits>,
    ) {
        let (remaining, reset) = (decision.remaining(), seconds(decision.reset_after()));
        match self.draft {
            Some(Draft::Latest) => {
                join(headers, limits.map(|limits| &limits.policy));
                let (mut r, mut t) = (itoa::Buffer::new(), itoa::Buffer::new());
                let (r, t) = (r.format(remaining), t.format(reset));
                // The exact capacity: with spare capacity `Bytes::from` allocates again.
                let parts = [binding, ";r=", r, ";t=", t].map(str::as_bytes);
                let mut text = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
                parts.iter().for_each(|part| text.extend_from_slice(part));
                insert(headers, RATELIMIT, text);
            }
            Some(Draft::Seven) => {
                join(headers, limits.map(|limits| &limits.policy_seven));
                let limit = decision.limit();
                let text = format!("limit={limit}, remaining={remaining}, reset={reset}");
                insert(headers, RATELIMIT, text.into_bytes());
            }
            None => {}
        }
        if self.x_ratelimit {
            headers.insert(X_LIMIT, value(decision.limit().into()));
            headers.insert(X_REMAINING, value(remaining.into()));
            headers.insert(X_RESET, value(reset));
        }
    }

    fn retry_seconds(&self, wait: Duration) -> u64 {
        let max = u64::try_from(self.jitter.as_micros()).unwrap_or(u64::MAX);
        let jitter = Duration::from_micros(fastrand::u64(0..=max));
        seconds(wait.saturating_add(jitter)).max(1)
    }
}

/// The limits that a rule applies to a key, all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    list: Box<[Limit]>,
    /// The names, quoted for `RateLimit`.
    names: Box<[Box<str>]>,
    /// The value of `RateLimit-Policy`.
    policy: HeaderValue,
    /// The value of `RateLimit-Policy` in draft 07.
    policy_seven: HeaderValue,
}

impl Limits {
    /// Validates limits and precomputes their header values.
    ///
    /// # Errors
    /// When there is none, there are too many, or two have the same name.
    pub fn new(limits: impl IntoIterator<Item = Limit>) -> Result<Self, RequestError> {
        let list: Box<[Limit]> = limits.into_iter().collect();
        Request::with_limits("", &*list)?;
        let join = |each: &dyn Fn(&Limit) -> String| {
            let texts: Vec<String> = list.iter().map(each).collect();
            HeaderValue::try_from(texts.join(", ")).expect("names are quoted, numbers are digits")
        };
        let capacity = |limit: &Limit| limit.quota().capacity();
        Ok(Limits {
            names: list
                .iter()
                .map(|limit| quoted(limit.name()).into())
                .collect(),
            policy: join(&|limit| {
                let (name, q) = (quoted(limit.name()), capacity(limit));
                format!("{name};q={q};w={}", window(limit))
            }),
            policy_seven: join(&|limit| format!("{};w={}", capacity(limit), window(limit))),
            list,
        })
    }

    /// The name of a limit, quoted for `RateLimit`.
    pub(super) fn quoted(&self, limit: usize) -> &str {
        &self.names[limit]
    }
}

impl Deref for Limits {
    type Target = [Limit];

    fn deref(&self) -> &[Limit] {
        &self.list
    }
}

/// Whether the headers of an inner rate limiter stay: it refused the request or has less remaining.
pub(super) fn keeps_inner(headers: &HeaderMap, status: StatusCode, decision: &Decision) -> bool {
    inner_remaining(headers).is_some_and(|remaining| {
        status == StatusCode::TOO_MANY_REQUESTS || remaining <= decision.remaining()
    })
}

/// The remaining count that the service or an inner rate limiter has reported.
fn inner_remaining(headers: &HeaderMap) -> Option<u32> {
    // Usually absent: scanning a few names is faster than two hash lookups.
    if !headers
        .keys()
        .any(|name| *name == X_REMAINING || *name == RATELIMIT)
    {
        return None;
    }
    let number = |text: &str| text.trim_ascii().parse().ok();
    if let Some(remaining) = headers.get(X_REMAINING) {
        return number(remaining.to_str().ok()?);
    }
    let text = headers.get(RATELIMIT)?.to_str().ok()?;
    let (_, rest) = text
        .split_once(";r=")
        .or_else(|| text.split_once("remaining="))?;
    number(rest.split([';', ',']).next()?)
}

/// Whole seconds, rounded up.
pub(super) fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// The `w` of a limit: the period of a window, the time to drain a full bucket; at least 1 s.
fn window(limit: &Limit) -> u64 {
    seconds(Duration::from_micros(limit.quota().span_us())).max(1)
}

/// Writes the policies of several rules as one list.
fn join<'v>(headers: &mut HeaderMap, mut each: impl Iterator<Item = &'v HeaderValue>) {
    let Some(first) = each.next() else {
        return;
    };
    let Some(second) = each.next() else {
        headers.insert(RATELIMIT_POLICY, first.clone());
        return;
    };
    let mut list = first.as_bytes().to_vec();
    for value in std::iter::once(second).chain(each) {
        list.extend_from_slice(b", ");
        list.extend_from_slice(value.as_bytes());
    }
    insert(headers, RATELIMIT_POLICY, list);
}

/// Quotes a name as a string of a structured field (RFC 9651). Bytes other than printable ASCII are
/// percent-encoded.
pub(super) fn quoted(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 2);
    text.push('"');
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' '..=b'~' => text.push(char::from(byte)),
            _ => write!(text, "%{byte:02X}").expect("writing to a `String` cannot fail"),
        }
    }
    text.push('"');
    text
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: Vec<u8>) {
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(text)) {
        headers.insert(name, value);
    }
}

/// A number as a header value.
fn value(number: u64) -> HeaderValue {
    static VALUES: OnceLock<Vec<HeaderValue>> = OnceLock::new();
    let values = VALUES.get_or_init(|| {
        // Leaked once: a static value is cloned without counting references.
        let value = |number: usize| HeaderValue::from_static(number.to_string().leak());
        (0..CACHED).map(value).collect()
    });
    let cached = usize::try_from(number).ok().and_then(|n| values.get(n));
    cached.cloned().unwrap_or_else(|| {
        // Not `HeaderValue::from`, which allocates more than the digits.
        let text = HeaderValue::from_bytes(itoa::Buffer::new().format(number).as_bytes());
        text.expect("digits are valid in a header")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_in_decimal() {
        let large = [10_000, u64::from(u32::MAX), u64::MAX];
        for number in (0..2 * CACHED as u64).chain(large) {
            assert_eq!(value(number), number.to_string());
        }
    }
}
