//! The head of a request, whatever its body is. Knows where servers note who is at the other end.

use std::net::{IpAddr, SocketAddr};

use ::http::{Extensions, HeaderMap, Method, Request, Uri, request};

/// Everything of a request but its body: what rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

/// Who is at the other end of a connection, as a server notes it among a request's extensions.
///
/// axum's `ConnectInfo<SocketAddr>` is understood with the feature `axum`, tonic's
/// `TcpConnectInfo` and `TlsConnectInfo` with the feature `tonic`; any other server inserts this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

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
        let Peer(peer) = self.extensions.get::<Peer>()?;
        Some(peer.ip())
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
