//! Who a client is: the socket's peer, or whom trusted proxies name. Trusts nobody unless told,
//! and never the left end of a list that anybody can write.

mod text;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use ::http::header::{FORWARDED, HeaderMap, HeaderName};

use crate::key::Key;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// How many hops of a list are looked at, from the right.
const MOST_HOPS: usize = 32;
/// Addresses of one IPv6 network this long are one client: whoever has one has all of them.
const IPV6_PREFIX: u8 = 64;

/// Finds out who a client is.
///
/// ```
/// use tallygate::http::ClientAddress;
///
/// let direct = ClientAddress::peer();
/// let behind_a_proxy = ClientAddress::behind(["10.0.0.0/8".parse()?]);
/// # Ok::<(), tallygate::http::NetworkError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    trusted: Trusted,
    header: ForwardedBy,
    ipv6_prefix: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Trusted {
    Nobody,
    Networks(Vec<Network>),
    Hops(usize),
}

/// Which header the trusted proxies write. The other one is whatever a client sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedBy {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl ClientAddress {
    /// The socket's peer, whatever any header says.
    pub fn peer() -> Self {
        ClientAddress {
            trusted: Trusted::Nobody,
            header: ForwardedBy::default(),
            ipv6_prefix: IPV6_PREFIX,
        }
    }

    /// The right-most hop that is not in these networks, if the peer is in them.
    pub fn behind(networks: impl IntoIterator<Item = Network>) -> Self {
        ClientAddress {
            trusted: Trusted::Networks(networks.into_iter().collect()),
            ..Self::peer()
        }
    }

    /// The hop that the first of this many proxies saw. They have to be the only way in: whoever
    /// reaches the application around them can be anybody.
    pub fn behind_hops(proxies: usize) -> Self {
        ClientAddress {
            trusted: Trusted::Hops(proxies.min(MOST_HOPS)),
            ..Self::peer()
        }
    }

    /// Sets which header the proxies write: `X-Forwarded-For` unless told otherwise.
    #[must_use]
    pub fn header(mut self, header: ForwardedBy) -> Self {
        self.header = header;
        self
    }

    /// Sets how many bits of an IPv6 address tell clients apart: 64 unless told otherwise.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = bits.min(128);
        self
    }

    /// The client of a request, as a key.
    pub(super) fn key(&self, peer: IpAddr, headers: &HeaderMap) -> Key<'static> {
        text::key(self.of(peer, headers))
    }

    /// The client of a request, as one address for all that are the same client.
    pub fn of(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        self.grouped(self.exact(peer, headers))
    }

    /// The client's own address, before those of one IPv6 network are taken for one client: what
    /// lists of networks are compared with.
    #[inline]
    pub fn exact(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        match &self.trusted {
            Trusted::Nobody | Trusted::Hops(0) => peer,
            Trusted::Networks(networks) => self.beyond(networks, peer, headers),
            Trusted::Hops(proxies) => {
                let named = hops(headers, self.header).nth(proxies - 1);
                // A list that is too short did not come by all of them.
                named.flatten().unwrap_or(peer)
            }
        }
    }

    /// The first from the right that is in none of these networks.
    fn beyond(&self, networks: &[Network], peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let trusts = |ip: IpAddr| networks.iter().any(|network| network.contains(ip));
        let mut client = peer;
        let mut hops = hops(headers, self.header);
        while trusts(client) {
            match hops.next() {
                Some(Some(hop)) => client = hop,
                // Nobody trusted said who it was: it counts as whom they do name.
                Some(None) | None => break,
            }
        }
        client
    }

    /// Whether what a peer says of others is believed.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        match &self.trusted {
            Trusted::Nobody | Trusted::Hops(0) => false,
            Trusted::Networks(networks) => {
                let peer = peer.to_canonical();
                networks.iter().any(|network| network.contains(peer))
            }
            Trusted::Hops(_) => true,
        }
    }

    /// One address for all that are the same client as this one.
    pub fn grouped(&self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V4(_) => ip,
            IpAddr::V6(ip) => IpAddr::V6(masked(ip, self.ipv6_prefix)),
        }
    }
}

fn masked(ip: Ipv6Addr, bits: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    Ipv6Addr::from_bits(ip.to_bits() & mask)
}

/// The hops of a list from the right; none where a hop is not an address.
fn hops(headers: &HeaderMap, by: ForwardedBy) -> impl Iterator<Item = Option<IpAddr>> {
    let name = match by {
        ForwardedBy::XForwardedFor => &X_FORWARDED_FOR,
        ForwardedBy::Forwarded => &FORWARDED,
    };
    // Several lines are one list.
    let lines = headers.get_all(name).iter().rev();
    let quotes = by == ForwardedBy::Forwarded;
    let elements = lines.flat_map(move |line| from_right(line.as_bytes(), b',', quotes));
    elements.take(MOST_HOPS).map(move |element| {
        let text = str::from_utf8(element).ok()?.trim_ascii();
        match by {
            ForwardedBy::XForwardedFor => address(text),
            ForwardedBy::Forwarded => address(forwarded_for(text)?),
        }
    })
}

/// The parts of a text from the right; where quotes count, what is within them separates nothing.
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

/// The `for` of one element of a `Forwarded` list, without quotes; none if it says it twice.
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

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let ip = match text.parse::<IpAddr>() {
        Ok(ip) => ip,
        Err(_) => match text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(inside) => IpAddr::V6(inside.parse().ok()?),
            None => text.parse::<SocketAddr>().ok()?.ip(),
        },
    };
    Some(ip.to_canonical())
}

/// A network: an address and how many of its bits count, such as `10.0.0.0/8`. A lone address is
/// a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether an address belongs to it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.base, ip.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                base.to_bits() & mask == ip.to_bits() & mask
            }
            (IpAddr::V6(base), IpAddr::V6(ip)) => masked(base, self.bits) == masked(ip, self.bits),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = |why| NetworkError {
            text: text.chars().take(60).collect(),
            why,
        };
        let (base, bits) = text
            .split_once('/')
            .map_or((text, None), |(a, b)| (a, Some(b)));
        let base: IpAddr = base.parse().map_err(|_| wrong("is not an address"))?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let bits: u8 = match bits {
            None => most,
            Some(bits) if !bits.bytes().all(|digit| digit.is_ascii_digit()) || bits.is_empty() => {
                return Err(wrong("has no number of bits after `/`"));
            }
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|&bits| bits <= most)
                .ok_or_else(|| wrong("has more bits after `/` than an address"))?,
        };
        // An IPv4 address within an IPv6 one is compared as what it is, so it has to be kept so.
        let (base, bits) = match (base.to_canonical(), bits.checked_sub(96)) {
            (IpAddr::V4(inside), Some(bits)) if base.is_ipv6() => (IpAddr::V4(inside), bits),
            (IpAddr::V4(_) | IpAddr::V6(_), _) => (base, bits),
        };
        let network = Network { base, bits };
        let exact = match base {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                ip.to_bits() & !mask == 0
            }
            IpAddr::V6(ip) => masked(ip, bits) == ip,
        };
        if exact {
            Ok(network)
        } else {
            Err(wrong("has an address with bits beyond those after `/`"))
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkError {
    text: String,
    why: &'static str,
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}; write it like 10.0.0.0/8", self.text, self.why)
    }
}

impl std::error::Error for NetworkError {}
