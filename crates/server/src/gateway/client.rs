//! What a request's way to an upstream depends on besides the request itself.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::HeaderValue;
use tokio::sync::watch;

use super::connection_state::ConnectionState;
use super::read_ahead::ClientBody;
use crate::listener::Phase;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) address: IpAddr,
    pub(super) address_header: HeaderValue,
    pub(super) scheme: &'static str,
    pub(super) state: Arc<ConnectionState>,
    pub(super) phase: watch::Receiver<Phase>,
}

impl Client {
    pub(super) fn new(
        peer: SocketAddr,
        is_tls: bool,
        state: Arc<ConnectionState>,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let address = peer.ip().to_canonical();
        let address_header = HeaderValue::try_from(address.to_string());
        Client {
            address,
            address_header: address_header.expect("an address is visible ASCII"),
            scheme: if is_tls { "https" } else { "http" },
            state,
            phase,
        }
    }
}

/// A request's body and its client: as a request extension the client would cost a lookup.
#[derive(Debug)]
pub(super) struct InboundBody {
    pub(super) client: Arc<Client>,
    pub(super) body: ClientBody,
}
