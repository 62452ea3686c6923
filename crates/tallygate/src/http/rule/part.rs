//! What tells clients apart, and what a request lacks if it does not say. Knows nothing of limits.

use std::sync::Once;

use ::http::{HeaderMap, HeaderName};

use super::super::{ClientAddress, Head, canonical};
use super::Ask;
use crate::key::Key;

/// Said once: it is a mistake in how a server is put together, not one of its clients.
static NO_PEER: Once = Once::new();
const NO_PEER_NOTED: &str = "a rule by address finds none: the server does not note the socket's \
                             peer where `tallygate::http::Peer` says";

/// What tells clients apart.
pub(super) enum Part {
    Ip,
    Header { name: HeaderName, secret: bool },
    Told(Ask<Option<Key<'static>>>),
}

/// Why a request does not say who is to be limited.
pub(super) enum Lack {
    Nothing,
    Several,
}

impl Part {
    pub(super) fn of(&self, head: &Head<'_>, client: &ClientAddress) -> Result<Key<'static>, Lack> {
        match self {
            Part::Ip => match head.peer() {
                Some(peer) => Ok(client.key(peer, head.headers())),
                None => Err(no_peer()),
            },
            Part::Header { name, secret } => by_header(head.headers(), name, *secret),
            Part::Told(told) => told(head).ok_or(Lack::Nothing),
        }
    }
}

#[cold]
fn no_peer() -> Lack {
    NO_PEER.call_once(|| tracing::warn!("{NO_PEER_NOTED}"));
    Lack::Nothing
}

fn by_header(headers: &HeaderMap, name: &HeaderName, secret: bool) -> Result<Key<'static>, Lack> {
    let values = headers.get_all(name).iter();
    let values = values.map(|value| canonical(name, value.as_bytes()));
    let mut values = values.filter(|value| !value.is_empty());
    let value = values.next().ok_or(Lack::Nothing)?;
    if values.any(|other| other != value) {
        return Err(Lack::Several);
    }
    Ok(match secret {
        true => Key::secret(value),
        false => Key::from(value.into_owned()),
    })
}
