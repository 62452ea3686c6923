//! Response headers: `Retry-After`, `RateLimit`, `RateLimit-Policy` and `X-RateLimit-*`.

mod expose;
mod inner;
mod shown;

use std::fmt::Write as _;
use std::ops::Deref;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use bytes::Bytes;
use tallygate_core::Verdict;

pub(super) use expose::expose;
pub(super) use inner::keeps_inner;
pub(super) use shown::shown;

use super::enforce::RetryHint;
use crate::decision::Decision;
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
/// `RateLimit-Policy` lists every reported limit. `RateLimit` and `X-RateLimit-*` show one of them: if
/// any refuses, the refusing one with the longest retry, otherwise the one with the smallest remaining
/// part of its capacity. The limits of rules with a key are reported; those of rules without one, which
/// all clients share, only [on request](Headers::reported).
///
/// ```
/// use tallygate::http::{Draft, Headers};
///
/// let headers = Headers::default().x_ratelimit(false).draft(Some(Draft::Latest));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// `None`: if the rule has a key.
    reported: Option<bool>,
    retry_after: bool,
    draft: Option<Draft>,
    x_ratelimit: Option<ResetForm>,
    jitter: Duration,
}

/// What `X-RateLimit-Reset` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResetForm {
    /// Seconds from now.
    FromNow,
    /// Seconds since the Unix epoch.
    Epoch,
}

/// A version of the IETF draft "RateLimit header fields for HTTP".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Draft {
    /// The version of this release: `RateLimit-Policy: "name";q=100;w=60` for every reported limit
    /// and `RateLimit: "name";r=50;t=30` for one of them.
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
            reported: None,
            retry_after: true,
            draft: Some(Draft::Latest),
            x_ratelimit: Some(ResetForm::FromNow),
            jitter: Duration::ZERO,
        }
    }
}

impl Headers {
    /// Sends no headers, not even `Retry-After`.
    pub fn none() -> Self {
        Headers {
            reported: None,
            retry_after: false,
            draft: None,
            x_ratelimit: None,
            jitter: Duration::ZERO,
        }
    }

    /// Sets whether the rule's limits are reported to clients. By default they are if the rule has a key.
    /// The limits of a rule that is not reported are in no header; if only such limits refuse, the
    /// response has `Retry-After` and names no limit.
    ///
    /// ```
    /// use tallygate::Quota;
    /// use tallygate::http::Headers;
    /// use tallygate::rules::Rule;
    ///
    /// let everyone = Rule::new("everyone", Quota::per_second(1_000))
    ///     .headers(Headers::default().reported(true));
    /// ```
    #[must_use]
    pub fn reported(mut self, on: bool) -> Self {
        self.reported = Some(on);
        self
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
        self.x_ratelimit = on.then_some(ResetForm::FromNow);
        self
    }

    /// Sends `X-RateLimit-*` with the reset as GitHub writes it: a time in seconds since the Unix
    /// epoch, by the clock of this process when it responds, rounded up.
    #[must_use]
    pub fn x_ratelimit_epoch(mut self) -> Self {
        self.x_ratelimit = Some(ResetForm::Epoch);
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
        let hint = RetryHint::new(decision, decision.verdicts());
        if let Some(wait) = hint.and_then(RetryHint::wait) {
            self.write_retry_after(headers, wait);
        }
        let names = limits.clone().flat_map(|limits| {
            let positions = 0..limits.len();
            positions.map(move |i| limits.quoted(i))
        });
        if let Some((name, verdict)) = shown(names.zip(decision.verdicts())) {
            self.write_counts(headers, verdict, name, limits);
        }
    }

    /// Whether limits of a rule with a key, or without one, are in the headers.
    pub(crate) fn reports(&self, has_key: bool) -> bool {
        let sends = self.draft.is_some() || self.x_ratelimit.is_some();
        sends && self.reported.unwrap_or(has_key)
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

    /// Writes the counts of the shown limit, whose quoted name is given. `limits` are those to list,
    /// by rule.
    pub(super) fn write_counts<'l>(
        &self,
        headers: &mut HeaderMap,
        verdict: &Verdict,
        quoted: &str,
        limits: impl Iterator<Item = &'l Limits>,
    ) {
        let remaining = verdict.remaining;
        let reset_after = Duration::from_micros(verdict.reset_after_us);
        let reset = seconds(reset_after);
        match self.draft {
            Some(Draft::Latest) => {
                join(headers, limits.map(|limits| &limits.policy));
                let (mut r, mut t) = (itoa::Buffer::new(), itoa::Buffer::new());
                let (r, t) = (r.format(remaining), t.format(reset));
                // The exact capacity: with spare capacity `Bytes::from` allocates again.
                let parts = [quoted, ";r=", r, ";t=", t].map(str::as_bytes);
                let mut text = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
                parts.iter().for_each(|part| text.extend_from_slice(part));
                insert(headers, RATELIMIT, text);
            }
            Some(Draft::Seven) => {
                join(headers, limits.map(|limits| &limits.policy_seven));
                let limit = verdict.limit;
                let text = format!("limit={limit}, remaining={remaining}, reset={reset}");
                insert(headers, RATELIMIT, text.into_bytes());
            }
            None => {}
        }
        if let Some(form) = self.x_ratelimit {
            headers.insert(X_LIMIT, value(verdict.limit.into()));
            headers.insert(X_REMAINING, value(remaining.into()));
            headers.insert(
                X_RESET,
                value(match form {
                    ResetForm::FromNow => reset,
                    ResetForm::Epoch => seconds(since_epoch().saturating_add(reset_after)),
                }),
            );
        }
    }

    fn retry_seconds(&self, wait: Duration) -> u64 {
        let max = u64::try_from(self.jitter.as_micros()).unwrap_or(u64::MAX);
        let jitter = Duration::from_micros(fastrand::u64(0..=max));
        seconds(wait.saturating_add(jitter)).max(1)
    }
}

/// The limits that a rule applies to a key, all or nothing, and the names that clients see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    list: Box<[Limit]>,
    shown_names: Box<[ShownName]>,
    /// The value of `RateLimit-Policy`.
    policy: HeaderValue,
    /// The value of `RateLimit-Policy` in draft 07.
    policy_seven: HeaderValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ShownName {
    plain: Box<str>,
    /// Quoted for `RateLimit`.
    quoted: Box<str>,
}

impl Limits {
    /// Validates limits and precomputes their header values. Clients see the names of the limits.
    ///
    /// # Errors
    /// When there is none, there are too many, or two have the same name.
    pub fn new(limits: impl IntoIterator<Item = Limit>) -> Result<Self, RequestError> {
        let name = |limit: Limit| (limit.name().to_owned(), limit);
        Limits::with_shown_names(limits.into_iter().map(name))
    }

    /// Validates limits and precomputes their header values, each with the name that clients see
    /// instead of the name of its counter.
    ///
    /// # Errors
    /// As [`new`](Limits::new).
    pub fn with_shown_names(
        limits: impl IntoIterator<Item = (String, Limit)>,
    ) -> Result<Self, RequestError> {
        let (names, list): (Vec<String>, Vec<Limit>) = limits.into_iter().unzip();
        Request::with_limits("", &list)?;
        let shown_names: Box<[ShownName]> = names
            .iter()
            .map(|name| ShownName {
                plain: name.as_str().into(),
                quoted: quoted(name).into(),
            })
            .collect();
        let join = |each: &dyn Fn((&ShownName, &Limit)) -> String| {
            let texts: Vec<String> = shown_names.iter().zip(&list).map(each).collect();
            HeaderValue::try_from(texts.join(", ")).expect("names are quoted, numbers are digits")
        };
        let capacity = |limit: &Limit| limit.quota().capacity();
        Ok(Limits {
            policy: join(&|(name, limit)| {
                let (name, q) = (&name.quoted, capacity(limit));
                format!("{name};q={q};w={}", window(limit))
            }),
            policy_seven: join(&|(_, limit)| format!("{};w={}", capacity(limit), window(limit))),
            shown_names,
            list: list.into(),
        })
    }

    /// The name of a limit that clients see.
    pub fn shown_name(&self, limit: usize) -> &str {
        &self.shown_names[limit].plain
    }

    /// The name of a limit that clients see, quoted for `RateLimit`.
    pub(super) fn quoted(&self, limit: usize) -> &str {
        &self.shown_names[limit].quoted
    }
}

impl Deref for Limits {
    type Target = [Limit];

    fn deref(&self) -> &[Limit] {
        &self.list
    }
}

/// The time by the clock of this process.
fn since_epoch() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
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
