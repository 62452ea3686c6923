//! Where servers insert the address of a connection's peer. The only file besides `tower/body.rs`
//! that names a server framework.

use std::net::{IpAddr, SocketAddr};

use ::http::Extensions;

/// The address of a connection's peer, as an extension of the request.
///
/// axum's `ConnectInfo<SocketAddr>` is read with the feature `axum`, tonic's `TcpConnectInfo` with
/// the feature `tonic`. Other servers, and those behind TLS, insert this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// What the operator of a server has to change if requests have no address.
pub(crate) const HOW_TO_RECORD_PEERS: &str = "serve an axum application with \
     `into_make_service_with_connect_info::<SocketAddr>()`, or insert a `tallygate::http::Peer` into \
     every request";

/// The address of the peer, from whichever extension there is.
#[inline]
pub(super) fn address(extensions: &Extensions) -> Option<IpAddr> {
    match borrowed(extensions) {
        Some(peer) => Some(peer.ip()),
        None => owned(extensions),
    }
}

/// Borrows the address if possible: `SocketAddr` is large.
fn borrowed(extensions: &Extensions) -> Option<&SocketAddr> {
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
fn owned(extensions: &Extensions) -> Option<IpAddr> {
    let info = extensions.get::<tonic::transport::server::TcpConnectInfo>()?;
    Some(info.remote_addr()?.ip())
}

#[cfg(not(feature = "tonic"))]
fn owned(_: &Extensions) -> Option<IpAddr> {
    None
}
