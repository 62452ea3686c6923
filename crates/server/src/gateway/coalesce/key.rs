//! What makes two requests identical.

use std::net::IpAddr;

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
    /// `None` if something else identifies the client.
    peer: Option<IpAddr>,
}

impl CallKey {
    /// Compares by a key or by some headers. By default all that may identify the client or select
    /// a response count: the peer, and with it what it says of those behind it.
    pub(super) fn new<B>(
        request: &Request<B>,
        peer: IpAddr,
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
        let by_client = named.is_none() && key.is_none();
        CallKey {
            method: request.method().clone(),
            authority: request.uri().authority().cloned(),
            host: request.headers().get(HOST).cloned(),
            path: request.uri().path_and_query().cloned(),
            headers,
            key,
            peer: by_client.then_some(peer),
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
            | "x-request-id"
    ) || name.starts_with("sec-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(headers: &[(&str, &str)], named: Option<&[HeaderName]>) -> CallKey {
        key_of([192, 0, 2, 1], headers, CoalesceKey::Credentials, named)
    }

    fn key_of(
        peer: [u8; 4],
        headers: &[(&str, &str)],
        by: CoalesceKey,
        named: Option<&[HeaderName]>,
    ) -> CallKey {
        let mut request = Request::get("/a?b").header("host", "x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        CallKey::new(&request.body(()).unwrap(), peer.into(), by, named)
    }

    #[test]
    fn different_credentials_make_different_requests() {
        let plain = key(&[], None);
        for name in ["user-agent", "traceparent", "sec-fetch-site"] {
            assert!(plain == key(&[(name, "any")], None), "{name}");
        }
        for (name, value) in [
            ("authorization", "Bearer a"),
            ("cookie", "a=1"),
            ("x-api-key", "k"),
            ("x-session-id", "s"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-user", "ann"),
            ("x-real-ip", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
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
    fn other_clients_make_other_requests_unless_something_else_identifies_them() {
        let named = [HeaderName::from_static("x-tenant")];
        let by_key = || CoalesceKey::Key(Key::from_parts(["a"]));
        let is_same = |by: fn() -> CoalesceKey, named: Option<&[HeaderName]>| {
            let one = key_of([192, 0, 2, 1], &[], by(), named);
            assert!(one == key_of([192, 0, 2, 1], &[], by(), named));
            one == key_of([192, 0, 2, 2], &[], by(), named)
        };
        assert!(!is_same(|| CoalesceKey::Credentials, None));
        assert!(is_same(|| CoalesceKey::Credentials, Some(&named)));
        assert!(is_same(by_key, None));
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
