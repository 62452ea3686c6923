//! A request as rules see it. Paths, hosts and the client's address are computed once, on demand.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;

use ::http::header::{HOST, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::path_variants::PathVariants;
use crate::http::{ClientAddress, Head};

pub(super) struct RequestView<'h> {
    pub(super) head: &'h Head<'h>,
    client: &'h ClientAddress,
    paths: OnceCell<PathVariants<'h>>,
    hosts: OnceCell<SmallVec<[Cow<'h, [u8]>; 1]>>,
    client_ip: OnceCell<Option<IpAddr>>,
    believes_headers: OnceCell<bool>,
    needs_address: bool,
}

impl<'h> RequestView<'h> {
    pub(super) fn new(head: &'h Head<'h>, client: &'h ClientAddress) -> Self {
        RequestView {
            head,
            client,
            paths: OnceCell::new(),
            hosts: OnceCell::new(),
            client_ip: OnceCell::new(),
            believes_headers: OnceCell::new(),
            needs_address: true,
        }
    }

    /// A view of attributes from a trusted sender, which may leave out the address.
    pub(super) fn vouched_for(mut self) -> Self {
        self.believes_headers = OnceCell::from(true);
        self.needs_address = false;
        self
    }

    /// Whether the server did not record the address of this request: a mistake in its setup.
    pub(super) fn lacks_address(&self) -> bool {
        self.needs_address && self.client_ip().is_none()
    }

    /// The values of a header that only a proxy may set; none if the peer is not trusted.
    pub(super) fn proxy_header(&self, name: &HeaderName) -> impl Iterator<Item = &'h HeaderValue> {
        let values = self.head.headers().get_all(name).iter();
        values.filter(|_| self.believes_headers())
    }

    pub(super) fn believes_headers(&self) -> bool {
        let believes = || self.client.believes(self.head.peer());
        *self.believes_headers.get_or_init(believes)
    }

    /// The path, in every variant that servers read it as.
    pub(super) fn paths(&self) -> &PathVariants<'h> {
        self.paths
            .get_or_init(|| PathVariants::new(self.head.uri().path()))
    }

    /// The hosts of the target and of every `Host` header, in every reading. There should be one,
    /// and applications differ in which they use.
    pub(super) fn hosts(&self) -> &[Cow<'h, [u8]>] {
        self.hosts.get_or_init(|| {
            let target = self.head.uri().authority();
            let target = target.map(|authority| authority.as_str().as_bytes());
            let headers = self.head.headers().get_all(HOST).iter();
            let all = target.into_iter().chain(headers.map(HeaderValue::as_bytes));
            let mut hosts = SmallVec::new();
            all.for_each(|authority| add_hosts(authority, &mut hosts));
            hosts
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

/// Adds the hosts that servers may read in an authority. Of `api.example.com:80@x`, some cut what
/// comes before the `@`, others what follows the first `:`; of a list, some use the first or the
/// last element.
fn add_hosts<'a>(authority: &'a [u8], hosts: &mut SmallVec<[Cow<'a, [u8]>; 1]>) {
    if memchr::memchr2(b'@', b',', authority).is_none() {
        hosts.push(host_name(authority));
        return;
    }
    let ends = [
        memchr::memchr(b',', authority),
        memchr::memrchr(b',', authority),
    ];
    let elements = match ends {
        [Some(first), Some(last)] => [Some(&authority[..first]), Some(&authority[last + 1..])],
        _ => [Some(authority), None],
    };
    for element in elements.into_iter().flatten() {
        hosts.push(host_name(element));
        if let Some(at) = memchr::memrchr(b'@', element) {
            hosts.push(host_name(&element[at + 1..]));
        }
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
    fn an_authority_with_a_user_or_a_list_has_several_hosts() {
        for (authority, expected) in [
            ("a.example:80", &["a.example"][..]),
            ("a.example:80@x", &["a.example", "x"]),
            ("u:p@A.example:80", &["u", "a.example"]),
            ("u@v@x", &["u@v@x", "x"]),
            ("a.example, x, b.example:80", &["a.example", "b.example"]),
            ("@", &["@", ""]),
        ] {
            let mut hosts = SmallVec::new();
            add_hosts(authority.as_bytes(), &mut hosts);
            let hosts: Vec<_> = hosts.iter().map(|host| str::from_utf8(host)).collect();
            let expected: Vec<_> = expected.iter().map(|host| Ok(*host)).collect();
            assert_eq!(hosts, expected, "{authority}");
        }
    }

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
