//! What makes two requests identical.

use http::header::{
    HOST, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, RANGE, UPGRADE,
};
use http::uri::{Authority, PathAndQuery};
use http::{Method, Request};
use http_body::Body;
use tallygate::Key;
use tallygate::rules::CoalesceKey;

use super::super::read_ahead::InboundBody;

/// Headers that make a response specific to one request.
const UNSHAREABLE: [HeaderName; 7] = [
    RANGE,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    UPGRADE,
];

pub(super) fn is_shareable(request: &Request<InboundBody>) -> bool {
    [Method::GET, Method::HEAD].contains(request.method())
        && request.body().body.is_end_stream()
        && !request
            .headers()
            .keys()
            .any(|name| UNSHAREABLE.contains(name))
}

/// What identical requests have in common. Not `Debug`: it holds secrets.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct CallKey {
    method: Method,
    authority: Option<Authority>,
    host: Option<HeaderValue>,
    path: Option<PathAndQuery>,
    headers: Vec<(HeaderName, HeaderValue)>,
    key: Option<Key<'static>>,
}

impl CallKey {
    /// Compares by a key or by some headers. By default all that may identify the client or select
    /// a response count.
    pub(super) fn new<B>(
        request: &Request<B>,
        by: CoalesceKey,
        named: Option<&[HeaderName]>,
    ) -> Self {
        let key = match by {
            CoalesceKey::Credentials => None,
            CoalesceKey::Key(key) => Some(key),
        };
        let counts = |name: &HeaderName| match (named, &key) {
            (Some(named), _) => named.contains(name),
            (None, Some(_)) => false,
            (None, None) => !is_ignored(name.as_str()),
        };
        let headers = request.headers().iter();
        let mut headers: Vec<_> = headers
            .filter(|(name, _)| counts(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        // Stable: lines of one name keep their order.
        headers.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        CallKey {
            method: request.method().clone(),
            authority: request.uri().authority().cloned(),
            host: request.headers().get(HOST).cloned(),
            path: request.uri().path_and_query().cloned(),
            headers,
            key,
        }
    }
}

/// Whether a header neither identifies the client nor selects a response. Any other may: which one
/// names a user is up to proxies and upstreams.
fn is_ignored(name: &str) -> bool {
    matches!(
        name,
        "baggage"
            | "cache-control"
            | "connection"
            | "dnt"
            | "forwarded"
            | "host"
            | "keep-alive"
            | "pragma"
            | "priority"
            | "referer"
            | "traceparent"
            | "tracestate"
            | "upgrade-insecure-requests"
            | "user-agent"
            | "via"
            | "x-correlation-id"
            | "x-forwarded-for"
            | "x-real-ip"
            | "x-request-id"
    ) || name.starts_with("sec-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(headers: &[(&str, &str)], named: Option<&[HeaderName]>) -> CallKey {
        let mut request = Request::get("/a?b").header("host", "x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        CallKey::new(&request.body(()).unwrap(), CoalesceKey::Credentials, named)
    }

    #[test]
    fn different_credentials_make_different_requests() {
        let plain = key(&[], None);
        for name in [
            "user-agent",
            "x-forwarded-for",
            "traceparent",
            "sec-fetch-site",
        ] {
            assert!(plain == key(&[(name, "any")], None), "{name}");
        }
        for (name, value) in [
            ("authorization", "Bearer a"),
            ("cookie", "a=1"),
            ("x-api-key", "k"),
            ("x-session-id", "s"),
            ("x-forwarded-user", "ann"),
            ("x-forwarded-client-cert", "By=a"),
            ("x-tenant", "1"),
            ("accept", "text/html"),
        ] {
            let one = key(&[(name, value)], None);
            assert!(plain != one, "{name}");
            assert!(one == key(&[(name, value)], None), "{name}");
            assert!(one != key(&[(name, "other")], None), "{name}");
            assert!(one != key(&[(name, value), (name, value)], None), "{name}");
        }
    }

    #[test]
    fn the_order_of_headers_does_not_matter() {
        let one = key(&[("cookie", "a"), ("accept", "b")], None);
        assert!(one == key(&[("accept", "b"), ("cookie", "a")], None));
    }

    #[test]
    fn only_the_named_headers_count_if_any_are() {
        let named = [HeaderName::from_static("x-tenant")];
        let one = key(&[("x-tenant", "1"), ("cookie", "a")], Some(&named));
        assert!(one == key(&[("x-tenant", "1"), ("cookie", "b")], Some(&named)));
        assert!(one != key(&[("x-tenant", "2"), ("cookie", "a")], Some(&named)));
    }
}
