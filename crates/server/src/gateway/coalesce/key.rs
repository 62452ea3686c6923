//! What makes two requests one: the same call with the same credentials. Knows heads only.

use std::hash::{Hash, Hasher};

use http::header::{
    HOST, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, RANGE, UPGRADE,
};
use http::uri::{Authority, PathAndQuery};
use http::{Method, Request};
use http_body::Body;
use tallygate::Key;

use super::super::client::Inbound;
use super::Alike;

/// Headers that make an answer one's own.
const OWN: [HeaderName; 7] = [
    RANGE,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    UPGRADE,
];

/// Whether a request may share its answer at all.
pub(super) fn is_safe(request: &Request<Inbound>) -> bool {
    [Method::GET, Method::HEAD].contains(request.method())
        && request.body().upload.is_end_stream()
        && !request.headers().keys().any(|name| OWN.contains(name))
}

/// What has to be the same for requests to be one. Holds secrets: it never prints.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Likeness {
    method: Method,
    authority: Option<Authority>,
    host: Option<HeaderValue>,
    path: Option<PathAndQuery>,
    headers: Vec<(HeaderName, HeaderValue)>,
    key: Option<Key<'static>>,
}

impl Likeness {
    /// A request by a key or by some headers; without any told, by all that may say who asks or
    /// what answer is wanted.
    pub(super) fn of<B>(request: &Request<B>, alike: Alike, named: Option<&[HeaderName]>) -> Self {
        let key = match alike {
            Alike::Credentials => None,
            Alike::Key(key) => Some(key),
        };
        let counts = |name: &HeaderName| match (named, &key) {
            (Some(named), _) => named.contains(name),
            (None, Some(_)) => false,
            (None, None) => !is_aside(name.as_str()),
        };
        let headers = request.headers().iter();
        let mut headers: Vec<_> = headers
            .filter(|(name, _)| counts(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        // Lines of one name keep their order.
        headers.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        Likeness {
            method: request.method().clone(),
            authority: request.uri().authority().cloned(),
            host: request.headers().get(HOST).cloned(),
            path: request.uri().path_and_query().cloned(),
            headers,
            key,
        }
    }
}

/// Whether a header says neither who asks nor what is wanted, only by which way and with what
/// program. Any other may: which one names a user is between a proxy and the upstream.
fn is_aside(name: &str) -> bool {
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

impl Hash for Likeness {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.method.hash(state);
        self.host.hash(state);
        self.key.hash(state);
        if let Some(path) = &self.path {
            path.as_str().hash(state);
        }
        for (name, value) in &self.headers {
            name.hash(state);
            value.hash(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn likeness(headers: &[(&str, &str)], named: Option<&[HeaderName]>) -> Likeness {
        let mut request = Request::get("/a?b").header("host", "x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Likeness::of(&request.body(()).unwrap(), Alike::Credentials, named)
    }

    #[test]
    fn different_credentials_make_different_requests() {
        let plain = likeness(&[], None);
        for name in [
            "user-agent",
            "x-forwarded-for",
            "traceparent",
            "sec-fetch-site",
        ] {
            assert!(plain == likeness(&[(name, "any")], None), "{name}");
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
            let one = likeness(&[(name, value)], None);
            assert!(plain != one, "{name}");
            assert!(one == likeness(&[(name, value)], None), "{name}");
            assert!(one != likeness(&[(name, "other")], None), "{name}");
            assert!(
                one != likeness(&[(name, value), (name, value)], None),
                "{name}"
            );
        }
    }

    #[test]
    fn the_order_of_headers_does_not_matter() {
        let one = likeness(&[("cookie", "a"), ("accept", "b")], None);
        assert!(one == likeness(&[("accept", "b"), ("cookie", "a")], None));
    }

    #[test]
    fn only_the_named_headers_count_if_any_are() {
        let named = [HeaderName::from_static("x-tenant")];
        let one = likeness(&[("x-tenant", "1"), ("cookie", "a")], Some(&named));
        assert!(one == likeness(&[("x-tenant", "1"), ("cookie", "b")], Some(&named)));
        assert!(one != likeness(&[("x-tenant", "2"), ("cookie", "a")], Some(&named)));
    }
}
