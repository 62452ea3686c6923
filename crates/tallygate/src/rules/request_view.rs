//! A request as rules look at it: each thing worked out once, when it is first asked for. Knows
//! heads and client addresses; knows nothing of rules.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;

use crate::http::{ClientAddress, Head};
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method};
use smallvec::SmallVec;

use super::path_variants::Readings;

/// A request before rules.
pub(super) struct Asked<'h> {
    head: &'h Head<'h>,
    client: &'h Client,
    paths: OnceCell<Readings<'h>>,
    hosts: OnceCell<SmallVec<[Cow<'h, [u8]>; 1]>>,
    grouped: OnceCell<Option<IpAddr>>,
    exact: OnceCell<Option<IpAddr>>,
}

/// How clients are told apart.
#[derive(Debug)]
pub(super) struct Client {
    grouped: ClientAddress,
    exact: ClientAddress,
}

impl Client {
    pub(super) fn new(address: ClientAddress) -> Self {
        Client {
            exact: address.clone().ipv6_prefix(128),
            grouped: address,
        }
    }

    pub(super) fn address(&self) -> &ClientAddress {
        &self.grouped
    }

    /// The one address that stands for all of a client's.
    pub(super) fn group(&self, ip: IpAddr) -> IpAddr {
        // Where nobody forwards, the client is the peer.
        self.grouped.of(ip, &HeaderMap::new())
    }
}

impl<'h> Asked<'h> {
    pub(super) fn new(head: &'h Head<'h>, client: &'h Client) -> Self {
        Asked {
            head,
            client,
            paths: OnceCell::new(),
            hosts: OnceCell::new(),
            grouped: OnceCell::new(),
            exact: OnceCell::new(),
        }
    }

    pub(super) fn method(&self) -> &'h Method {
        self.head.method()
    }

    pub(super) fn headers(&self) -> &'h HeaderMap {
        self.head.headers()
    }

    pub(super) fn query(&self) -> Option<&'h str> {
        self.head.uri().query()
    }

    /// Its path, in every way that servers read it.
    pub(super) fn paths(&self) -> &Readings<'h> {
        self.paths
            .get_or_init(|| Readings::new(self.head.uri().path()))
    }

    /// The hosts it names: its target's and that of every `Host` header. They ought to be one,
    /// and applications differ in which of them they believe.
    pub(super) fn hosts(&self) -> &[Cow<'h, [u8]>] {
        self.hosts.get_or_init(|| {
            let target = self.head.uri().host().map(str::as_bytes);
            let headers = self.headers().get_all(HOST).iter();
            let all = target.into_iter().chain(headers.map(HeaderValue::as_bytes));
            all.map(host_name).collect()
        })
    }

    /// The address that stands for all of the client's.
    pub(super) fn client(&self) -> Option<IpAddr> {
        *self.grouped.get_or_init(|| {
            let peer = self.head.peer()?;
            Some(self.client.grouped.of(peer, self.headers()))
        })
    }

    /// The client's own address.
    pub(super) fn exact_client(&self) -> Option<IpAddr> {
        *self.exact.get_or_init(|| {
            let peer = self.head.peer()?;
            Some(self.client.exact.of(peer, self.headers()))
        })
    }
}

/// A host in lower case, without its port and the dot of the root.
pub(super) fn host_name(authority: &[u8]) -> Cow<'_, [u8]> {
    let authority = authority.trim_ascii();
    let end = match authority.first() {
        // An IPv6 address has colons of its own.
        Some(b'[') => memchr::memchr(b']', authority).map(|end| end + 1),
        _ => memchr::memchr(b':', authority),
    };
    let host = &authority[..end.unwrap_or(authority.len())];
    let host = host.strip_suffix(b".").unwrap_or(host);
    match host.iter().any(u8::is_ascii_uppercase) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_no_port_and_no_case() {
        for (written, host) in [
            ("example.com", "example.com"),
            ("Example.COM:8080", "example.com"),
            ("example.com.", "example.com"),
            ("example.com.:80", "example.com"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("[::1", "[::1"),
            ("", ""),
            (":80", ""),
        ] {
            assert_eq!(
                &*host_name(written.as_bytes()),
                host.as_bytes(),
                "{written}"
            );
        }
    }
}
