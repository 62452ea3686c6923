//! A request as rules see it. Paths, hosts and the client's address are computed once, on demand.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;

use ::http::header::{HOST, HeaderValue};
use smallvec::SmallVec;

use super::path_variants::PathVariants;
use crate::http::{ClientAddress, Head};

pub(super) struct RequestView<'h> {
    pub(super) head: &'h Head<'h>,
    client: &'h ClientAddress,
    paths: OnceCell<PathVariants<'h>>,
    hosts: OnceCell<SmallVec<[Cow<'h, [u8]>; 1]>>,
    client_ip: OnceCell<Option<IpAddr>>,
}

impl<'h> RequestView<'h> {
    pub(super) fn new(head: &'h Head<'h>, client: &'h ClientAddress) -> Self {
        RequestView {
            head,
            client,
            paths: OnceCell::new(),
            hosts: OnceCell::new(),
            client_ip: OnceCell::new(),
        }
    }

    /// The path, in every variant that servers read it as.
    pub(super) fn paths(&self) -> &PathVariants<'h> {
        self.paths
            .get_or_init(|| PathVariants::new(self.head.uri().path()))
    }

    /// The hosts of the target and of every `Host` header. There should be one, and applications
    /// differ in which they use.
    pub(super) fn hosts(&self) -> &[Cow<'h, [u8]>] {
        self.hosts.get_or_init(|| {
            let target = self.head.uri().host().map(str::as_bytes);
            let headers = self.head.headers().get_all(HOST).iter();
            let all = target.into_iter().chain(headers.map(HeaderValue::as_bytes));
            all.map(host_name).collect()
        })
    }

    pub(super) fn client_ip(&self) -> Option<IpAddr> {
        *self.client_ip.get_or_init(|| {
            let peer = self.head.peer()?;
            Some(self.client.exact(peer, self.head.headers()))
        })
    }

    /// The address that identifies the client: for IPv6, that of its network.
    pub(super) fn grouped_client_ip(&self) -> Option<IpAddr> {
        Some(self.client.grouped(self.client_ip()?))
    }
}

/// A host in lower case, without its port and the dot of the root.
pub(super) fn host_name(authority: &[u8]) -> Cow<'_, [u8]> {
    let authority = authority.trim_ascii();
    let end = match authority.first() {
        // The colons of an IPv6 address are inside the brackets.
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
        for (text, host) in [
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
            assert_eq!(&*host_name(text.as_bytes()), host.as_bytes(), "{text}");
        }
    }
}
