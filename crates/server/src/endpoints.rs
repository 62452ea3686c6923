//! Where the listeners are, for people and for links between the pages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub(crate) api: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) gateway: Option<GatewayEndpoint>,
    pub(crate) has_playground: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct GatewayEndpoint {
    pub(crate) address: SocketAddr,
    pub(crate) is_tls: bool,
}

impl GatewayEndpoint {
    pub(crate) fn origin(&self) -> String {
        let scheme = match self.is_tls {
            true => "https",
            false => "http",
        };
        format!("{scheme}://{}", reachable(self.address))
    }
}

pub(crate) fn http_origin(address: SocketAddr) -> String {
    format!("http://{}", reachable(address))
}

/// An address to connect to from this machine.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_address_is_shown_as_one_to_connect_to() {
        for (bound, shown) in [
            ("0.0.0.0:80", "http://127.0.0.1:80"),
            ("[::]:80", "http://[::1]:80"),
            ("192.0.2.1:80", "http://192.0.2.1:80"),
        ] {
            assert_eq!(http_origin(bound.parse().unwrap()), shown);
        }
    }
}
