//! Parses any bytes as the start of a connection of a proxy. Checks that the end of a PROXY header is
//! found there and nowhere else, however it arrives, and that another parser reads the same client.
#![no_main]

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use ppp::{v1, v2};
use tallygate_server::gateway::proxy_protocol::{length, parse};

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(end)) = length(bytes) else {
        return;
    };
    let header = &bytes[..end];
    for shorter in 0..end {
        let length = length(&bytes[..shorter]);
        assert!(matches!(length, Ok(None)), "{shorter}: {length:?}");
    }
    let followed = [header, b"\n\r\nPROXY "].concat();
    assert!(matches!(length(&followed), Ok(Some(length)) if length == end));
    match parse(header) {
        Ok(client) if header.starts_with(b"P") => match v1::Header::try_from(header) {
            Ok(other) => assert_eq!(client, client_v1(&other.addresses)),
            // The other one does not ignore everything that follows UNKNOWN.
            Err(_) => assert_eq!(client, None),
        },
        Ok(client) => check_v2(header, client),
        // The other one accepts more, such as signs of ports.
        Err(_) => {}
    }
});

fn client_v1(addresses: &v1::Addresses) -> Option<SocketAddr> {
    match addresses {
        v1::Addresses::Unknown => None,
        v1::Addresses::Tcp4(ip) => Some((ip.source_address, ip.source_port).into()),
        v1::Addresses::Tcp6(ip) => Some((ip.source_address, ip.source_port).into()),
    }
}

fn check_v2(header: &[u8], client: Option<SocketAddr>) {
    // The other one also parses addresses that do not count.
    let Ok(other) = v2::Header::try_from(header) else {
        assert_eq!(client, None);
        return;
    };
    let counts = other.command == v2::Command::Proxy && other.protocol == v2::Protocol::Stream;
    let expected = match other.addresses {
        v2::Addresses::IPv4(ip) if counts => Some((ip.source_address, ip.source_port).into()),
        v2::Addresses::IPv6(ip) if counts => Some((ip.source_address, ip.source_port).into()),
        _ => None,
    };
    assert_eq!(client, expected);
}
