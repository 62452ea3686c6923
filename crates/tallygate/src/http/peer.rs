//! Where servers note who is at the other end of a connection. One of two files that know servers by
//! name; the other knows their bodies.

use std::net::{IpAddr, SocketAddr};

use ::http::Extensions;

/// Who is at the other end of a connection, as a server notes it among a request's extensions.
///
/// axum's `ConnectInfo<SocketAddr>` is understood with the feature `axum`, tonic's
/// `TcpConnectInfo` with the feature `tonic`; where a server notes it otherwise, or behind TLS,
/// insert this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Who is at the other end, by whichever note there is.
#[inline]
pub(super) fn noted(extensions: &Extensions) -> Option<IpAddr> {
    match lent(extensions) {
        Some(peer) => Some(peer.ip()),
        None => given(extensions),
    }
}

/// By a note that can be lent, as most can: addresses are large.
fn lent(extensions: &Extensions) -> Option<&SocketAddr> {
    if let Some(Peer(peer)) = extensions.get() {
        return Some(peer);
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(peer)) = extensions.get() {
        return Some(peer);
    }
    None
}

#[cfg(feature = "tonic")]
fn given(extensions: &Extensions) -> Option<IpAddr> {
    let info = extensions.get::<tonic::transport::server::TcpConnectInfo>()?;
    Some(info.remote_addr()?.ip())
}

#[cfg(not(feature = "tonic"))]
fn given(_: &Extensions) -> Option<IpAddr> {
    None
}
