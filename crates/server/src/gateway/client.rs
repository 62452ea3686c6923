//! The connection that a request came on, as far as its way to an upstream depends on it. Knows
//! nothing of the request.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::HeaderValue;

use super::read_ahead::Upload;
use super::tunnel::Tunnels;

/// The connection that a request came on.
#[derive(Debug)]
pub(super) struct Client {
    /// The peer's address.
    pub(super) peer: IpAddr,
    /// The same in a form that headers take.
    pub(super) from: HeaderValue,
    /// `http` or `https`.
    pub(super) by: &'static str,
    pub(super) tunnels: Tunnels,
}

impl Client {
    pub(super) fn new(peer: SocketAddr, by: &'static str, tunnels: Tunnels) -> Self {
        let peer = peer.ip().to_canonical();
        let from = HeaderValue::try_from(peer.to_string());
        Client {
            peer,
            from: from.expect("an address is visible ASCII"),
            by,
            tunnels,
        }
    }
}

/// A request's body, and whose it is. It goes with the request as a part of it: as one of the
/// request's extensions it would have to be looked for.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) client: Arc<Client>,
    pub(super) upload: Upload,
}
