//! The head of a request, and which headers hold secrets.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use ::http::header::{AUTHORIZATION, HeaderName, PROXY_AUTHORIZATION};
use ::http::{Extensions, HeaderMap, Method, Request, Uri, request};

use super::peer;

/// A request without its body, as rules see it.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> Head<'a> {
    /// Returns a head of these parts.
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

    /// The method, as it was sent: rules compare it without case.
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The request target.
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The headers.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The extensions.
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The address of the connection's peer; `None` if the server did not insert it.
    #[inline]
    pub fn peer(&self) -> Option<IpAddr> {
        peer::address(self.extensions)
    }
}

impl fmt::Debug for Head<'_> {
    /// Prints nothing that may be a secret: no header and no query.
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

/// Whether a header or query parameter with this name holds a secret, which is stored as a hash and
/// never shown: `authorization`, `cookie`, `x-api-key` and the like.
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

/// The canonical value of a header: trimmed, and for authorization headers with the scheme in lower
/// case and one space, as servers treat `bearer  x` as `Bearer x`.
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
