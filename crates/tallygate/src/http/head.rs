//! The head of a request, whatever its body is. Knows which headers hold secrets.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use ::http::header::{AUTHORIZATION, HeaderName, PROXY_AUTHORIZATION};
use ::http::{Extensions, HeaderMap, Method, Request, Uri, request};

use super::peer;

/// Everything of a request but its body: what rules look at.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// Puts a head together.
    pub fn new(
        method: &'a Method,
        uri: &'a Uri,
        headers: &'a HeaderMap,
        extensions: &'a Extensions,
    ) -> Self {
        Head {
            method,
            uri,
            headers,
            extensions,
        }
    }

    /// The method.
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The target.
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The headers.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// What the server noted about the request.
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// Who is at the other end of the connection; none if the server did not note it.
    #[inline]
    pub fn peer(&self) -> Option<IpAddr> {
        peer::noted(self.extensions)
    }
}

impl fmt::Debug for Head<'_> {
    /// Shows nothing that may be a secret: no header and no query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.uri.path())
    }
}

impl<'a, B> From<&'a Request<B>> for Head<'a> {
    fn from(request: &'a Request<B>) -> Self {
        let (method, uri) = (request.method(), request.uri());
        Head::new(method, uri, request.headers(), request.extensions())
    }
}

impl<'a> From<&'a request::Parts> for Head<'a> {
    fn from(parts: &'a request::Parts) -> Self {
        Head::new(&parts.method, &parts.uri, &parts.headers, &parts.extensions)
    }
}

/// Whether what goes by this name, in a header or a query, is taken for a secret, which no store may
/// keep in clear and nothing may show: `authorization`, `cookie`, `x-api-key` and the like.
pub fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 8] = [
        "auth",
        "cookie",
        "credential",
        "jwt",
        "password",
        "secret",
        "session",
        "token",
    ];
    let name = name.to_ascii_lowercase();
    name.ends_with("key") || WORDS.iter().any(|word| name.contains(word))
}

/// A header's value as it tells clients apart: without spaces around it, and without a choice of
/// how to spell an authorization's scheme, as servers read `bearer  x` as `Bearer x`.
pub fn canonical<'v>(name: &HeaderName, value: &'v [u8]) -> Cow<'v, [u8]> {
    let value = value.trim_ascii();
    let scheme = value.iter().position(u8::is_ascii_whitespace);
    match scheme.filter(|_| *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION) {
        None => Cow::Borrowed(value),
        Some(end) => {
            let (scheme, rest) = value.split_at(end);
            let mut text = scheme.to_ascii_lowercase();
            text.push(b' ');
            text.extend_from_slice(rest.trim_ascii());
            Cow::Owned(text)
        }
    }
}
