//! The head of a request, whatever its body is. Knows which headers hold secrets.

use std::net::IpAddr;

use ::http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION};
use ::http::{Extensions, HeaderMap, Method, Request, Uri, request};

use super::peer;

/// Everything of a request but its body: what rules look at.
#[derive(Clone, Copy, Debug)]
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
    pub fn peer(&self) -> Option<IpAddr> {
        peer::noted(self.extensions).map(|peer| peer.ip())
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

/// Whether a header's values are secrets, which no store may keep in clear and nothing may show.
pub fn is_secret(name: &HeaderName) -> bool {
    let words = [
        "api-key", "apikey", "auth", "password", "secret", "session", "token",
    ];
    [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(name)
        || words.iter().any(|word| name.as_str().contains(word))
}
