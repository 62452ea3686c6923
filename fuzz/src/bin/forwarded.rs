//! Parses any lines as forwarding headers. Checks that an untrusted peer is the client itself, and
//! that the left end of a list never changes the client that a trusted proxy reports.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use tallygate::http::{ClientAddress, ForwardedBy, Network};

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const UNTRUSTED_PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));

fuzz_target!(|bytes: &[u8]| {
    let lines = bytes.split(|&byte| byte == b'\n');
    let lines: Vec<HeaderValue> = lines
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect();
    for by in [ForwardedBy::XForwardedFor, ForwardedBy::Forwarded] {
        let network: Network = "10.0.0.0/8".parse().expect("the network is valid");
        let behind = ClientAddress::behind([network]).header(by);
        let headers = headers(by, &lines);
        for client in [&ClientAddress::peer().header(by), &behind] {
            assert_eq!(client.exact(UNTRUSTED_PEER, &headers), UNTRUSTED_PEER);
        }
        // The result is grouped.
        for hops in 0..4 {
            let client = ClientAddress::behind_hops(hops).header(by);
            let ip = client.resolve(PROXY, &headers);
            assert_eq!(client.grouped(ip), ip);
        }
        check_left_end_is_ignored(by, &behind, &lines);
    }
});

fn headers(by: ForwardedBy, lines: &[HeaderValue]) -> HeaderMap {
    let name = HeaderName::from_static(match by {
        ForwardedBy::XForwardedFor => "x-forwarded-for",
        ForwardedBy::Forwarded => "forwarded",
    });
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(&name, line.clone());
    }
    headers
}

/// Appends a hop as a proxy does, to the last line or in its own line.
fn check_left_end_is_ignored(by: ForwardedBy, behind: &ClientAddress, lines: &[HeaderValue]) {
    let seen = match by {
        ForwardedBy::XForwardedFor => "198.51.100.7",
        ForwardedBy::Forwarded => "for=198.51.100.7",
    };
    let own_line = HeaderValue::from_static(seen);
    let mut apart = lines.to_vec();
    apart.push(own_line);
    let mut joined = lines.to_vec();
    if let Some(last) = joined.last_mut() {
        let list = [last.as_bytes(), b", ", seen.as_bytes()].concat();
        *last = HeaderValue::from_bytes(&list).expect("valid values stay valid when joined");
    }
    let client: IpAddr = "198.51.100.7".parse().expect("the address is valid");
    for list in [apart, joined].iter().filter(|list| !list.is_empty()) {
        assert_eq!(behind.exact(PROXY, &headers(by, list)), client);
    }
}
