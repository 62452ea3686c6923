//! The head of a request, whatever its body is. Knows which headers hold secrets.

use std::net::IpAddr;

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

/// Whether what goes by this name, in a header or a query, is taken for a secret, which no store may
/// keep in clear and nothing may show: `authorization`, `cookie`, `x-api-key` and the like.
pub fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 9] = [
        "api-key",
        "api_key",
        "apikey",
        "authorization",
        "cookie",
        "password",
        "secret",
        "session",
        "token",
    ];
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}
