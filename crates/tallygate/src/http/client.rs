//! The address of a client: the socket's peer, or the one that trusted proxies report. By default
//! no proxy is trusted; the left end of a forwarding list, which clients can write, never is.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use ::http::header::{FORWARDED, HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv6Net};

use super::TextError;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The maximum number of hops of a list that are read, from the right.
const MAX_HOPS: usize = 32;
/// The IPv6 prefix that identifies a client, which usually owns all addresses of such a network.
const IPV6_PREFIX: u8 = 64;

/// How the address of a client is found.
///
/// ```
/// use tallygate::http::ClientAddress;
///
/// let direct = ClientAddress::peer();
/// let behind_a_proxy = ClientAddress::behind(["10.0.0.0/8".parse()?]);
/// # Ok::<(), tallygate::http::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    trusted: Trusted,
    header: ForwardedBy,
    ipv6_prefix: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Trusted {
    None,
    Networks(Vec<Network>),
    Hops(usize),
}

/// The header that trusted proxies write. The other one is never read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedBy {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl Default for ClientAddress {
    /// The socket's peer.
    fn default() -> Self {
        ClientAddress {
            trusted: Trusted::None,
            header: ForwardedBy::default(),
            ipv6_prefix: IPV6_PREFIX,
        }
    }
}

impl ClientAddress {
    /// Uses the socket's peer and ignores all headers.
    pub fn peer() -> Self {
        Self::default()
    }

    /// Trusts the proxies in these networks: the client is the right-most hop that is not one of
    /// them.
    pub fn behind(networks: impl IntoIterator<Item = Network>) -> Self {
        ClientAddress {
            trusted: Trusted::Networks(networks.into_iter().collect()),
            ..Self::peer()
        }
    }

    /// Trusts this number of proxies: the client is the hop that the first of them reports. The
    /// application must not be reachable without them, or clients can forge their address.
    pub fn behind_hops(proxies: usize) -> Self {
        ClientAddress {
            trusted: Trusted::Hops(proxies.min(MAX_HOPS)),
            ..Self::peer()
        }
    }

    /// Sets the header that the proxies write, `X-Forwarded-For` by default.
    #[must_use]
    pub fn header(mut self, header: ForwardedBy) -> Self {
        self.header = header;
        self
    }

    /// Sets the length of the IPv6 prefix that identifies a client, 64 bits by default.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits.min(128);
        self
    }

    /// The address that identifies the client of a request: for IPv6, that of its network.
    pub fn resolve(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        self.grouped(self.exact(peer, headers))
    }

    /// The client's own address, which lists of networks are compared with. An IPv4 address in IPv6
    /// is [that IPv4 address](canonical_address).
    #[inline]
    pub fn exact(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        // Only the result: a proxy is not trusted for an IPv4 address that NAT64 maps.
        canonical_address(match &self.trusted {
            Trusted::None | Trusted::Hops(0) => peer,
            Trusted::Networks(networks) => self.first_untrusted(networks, peer, headers),
            Trusted::Hops(proxies) => {
                let hop = hops(headers, self.header).nth(proxies - 1);
                // With a shorter list, the request did not pass all of them.
                hop.flatten().unwrap_or(peer)
            }
        })
    }

    /// The first hop from the right that is in none of these networks.
    fn first_untrusted(&self, networks: &[Network], peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let trusts = |ip: IpAddr| networks.iter().any(|network| network.contains(ip));
        let mut client = peer;
        let mut hops = hops(headers, self.header);
        while trusts(client) {
            match hops.next() {
                Some(Some(hop)) => client = hop,
                // The rest is not an address: the last trusted hop counts as the client.
                Some(None) | None => break,
            }
        }
        client
    }

    /// Whether proxies are trusted by their networks, and at least one is.
    pub fn names_proxies(&self) -> bool {
        matches!(&self.trusted, Trusted::Networks(networks) if !networks.is_empty())
    }

    /// Whether forwarding headers of a peer are trusted.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        match &self.trusted {
            Trusted::None | Trusted::Hops(0) => false,
            Trusted::Networks(networks) => networks.iter().any(|network| network.contains(peer)),
            Trusted::Hops(_) => true,
        }
    }

    /// Whether a peer's headers may say what only a proxy can know: the tier of a client, the cost
    /// of a request, claims. If proxies are named, only theirs may, and nobody's without an address;
    /// otherwise everybody's, because nothing tells a proxy from a client.
    pub fn believes(&self, peer: Option<IpAddr>) -> bool {
        match &self.trusted {
            Trusted::None | Trusted::Hops(0) => true,
            Trusted::Networks(_) | Trusted::Hops(_) => peer.is_some_and(|peer| self.trusts(peer)),
        }
    }

    /// The address that identifies the client with an address.
    pub fn grouped(&self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V4(_) => ip,
            IpAddr::V6(ip) => {
                let network = Ipv6Net::new(ip, self.ipv6_prefix);
                IpAddr::V6(network.map_or(ip, |network| network.network()))
            }
        }
    }
}

/// The IPv4 address in an IPv4-mapped address or in one of NAT64's well-known prefix, `64:ff9b::/96`
/// (RFC 6052); any other address as it is. Otherwise all clients behind a NAT64 gateway would be
/// one IPv6 network.
#[inline]
pub fn canonical_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ipv6) => match ipv6.segments() {
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                let bits = u32::from(high) << 16 | u32::from(low);
                IpAddr::V4(Ipv4Addr::from_bits(bits))
            }
            _ => IpAddr::V6(ipv6),
        },
        ipv4 @ IpAddr::V4(_) => ipv4,
    }
}

/// The hops of a list from the right; `None` for a hop that is not an address.
fn hops(headers: &HeaderMap, by: ForwardedBy) -> impl Iterator<Item = Option<IpAddr>> {
    let name = match by {
        ForwardedBy::XForwardedFor => &X_FORWARDED_FOR,
        ForwardedBy::Forwarded => &FORWARDED,
    };
    // Several header lines form one list.
    let lines = headers.get_all(name).iter().rev();
    let quotes = by == ForwardedBy::Forwarded;
    let elements = lines.flat_map(move |line| from_right(line.as_bytes(), b',', quotes));
    elements.take(MAX_HOPS).map(move |element| {
        let text = str::from_utf8(element).ok()?.trim_ascii();
        match by {
            ForwardedBy::XForwardedFor => address(text),
            ForwardedBy::Forwarded => address(forwarded_for(text)?),
        }
    })
}

/// Splits a text from the right; with `quotes`, separators inside quotes are ignored.
fn from_right(text: &[u8], separator: u8, quotes: bool) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut quoted = false;
        let at = (0..text.len()).rev().find(|&at| {
            let before = || text[..at].iter().rev().take_while(|&&byte| byte == b'\\');
            quoted ^= quotes && text[at] == b'"' && before().count() % 2 == 0;
            text[at] == separator && !quoted
        });
        rest = at.map(|at| &text[..at]);
        Some(&text[at.map_or(0, |at| at + 1)..])
    })
}

/// The `for` of an element of a `Forwarded` list, without quotes; `None` if it occurs twice.
fn forwarded_for(element: &str) -> Option<&str> {
    let mut found = from_right(element.as_bytes(), b';', true).filter_map(|pair| {
        let (name, value) = str::from_utf8(pair).ok()?.split_once('=')?;
        name.trim_ascii()
            .eq_ignore_ascii_case("for")
            .then_some(value.trim_ascii())
    });
    let value = found.next().filter(|_| found.next().is_none())?;
    value
        .strip_prefix('"')
        .map_or(Some(value), |rest| rest.strip_suffix('"'))
}

/// Parses an address with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let ip = match bare {
        Some(ipv6) => IpAddr::V6(ipv6.parse().ok()?),
        None => match text.parse::<IpAddr>() {
            Ok(ip) => ip,
            Err(_) => text.parse::<SocketAddr>().ok()?.ip(),
        },
    };
    Some(ip)
}

/// A network in CIDR notation, such as `10.0.0.0/8`. An address alone is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// Whether it contains an address. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.contains(&ip.to_canonical())
    }
}

impl FromStr for Network {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let error = |reason| TextError::new(text, reason, "10.0.0.0/8");
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| error("is not an address"))?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = match prefix {
            None => max,
            Some(prefix) if prefix.is_empty() || !prefix.bytes().all(|b| b.is_ascii_digit()) => {
                return Err(error("has no number of bits after `/`"));
            }
            Some(prefix) => prefix
                .parse()
                .ok()
                .filter(|&prefix| prefix <= max)
                .ok_or_else(|| error("has more bits after `/` than an address"))?,
        };
        // A network of IPv4 addresses in IPv6 is stored as IPv4, as clients are compared with it.
        let canonical = canonical_address(address);
        if prefix <= 96 && canonical != address.to_canonical() {
            return Err(error("has all addresses of NAT64, which count as IPv4"));
        }
        let (address, prefix) = match (canonical, prefix.checked_sub(96)) {
            (mapped @ IpAddr::V4(_), Some(prefix)) if address.is_ipv6() => (mapped, prefix),
            _ => (address, prefix),
        };
        match IpNet::new(address, prefix) {
            Ok(network) if network.network() == address => Ok(Network(network)),
            _ => Err(error("has an address with bits beyond those after `/`")),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
