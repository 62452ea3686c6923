//! The client address: by default no proxy is trusted, and never the left end of a list.

use std::sync::Arc;

use tallygate::http::{ClientAddress, ForwardedBy, Network};
use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;
use tallygate::{ManualClock, MemoryStore, Quota};

use crate::support::{TestRequest, call, from, manual_store, with};

type IpLayer = RateLimitLayer<tallygate::rules::Rules, MemoryStore<Arc<ManualClock>>>;

/// A layer that admits one request per hour and client.
fn layer(client: ClientAddress) -> IpLayer {
    let (_, store) = manual_store();
    RateLimitLayer::with_store(store, Rule::new("r", Quota::per_hour(1)).by_ip()).client(client)
}

fn networks(texts: &[&str]) -> Vec<Network> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

async fn admitted(layer: &IpLayer, request: TestRequest) -> bool {
    call(layer, request).await.status() == 200
}

#[tokio::test]
async fn forwarding_headers_are_ignored_without_trusted_proxies() {
    let layer = layer(ClientAddress::peer());
    assert!(admitted(&layer, from("192.0.2.1")).await);
    for forged in ["198.51.100.7", "10.0.0.1", "127.0.0.1"] {
        for name in ["x-forwarded-for", "x-real-ip", "true-client-ip"] {
            assert!(
                !admitted(&layer, with(from("192.0.2.1"), name, forged)).await,
                "{name}"
            );
        }
        let forwarded = format!("for={forged}");
        assert!(!admitted(&layer, with(from("192.0.2.1"), "forwarded", forwarded)).await);
    }
}

#[tokio::test]
async fn forwarding_headers_of_an_untrusted_peer_are_ignored() {
    let layer = layer(ClientAddress::behind(networks(&["10.0.0.0/8"])));
    assert!(
        admitted(
            &layer,
            with(from("192.0.2.1"), "x-forwarded-for", "198.51.100.7")
        )
        .await
    );
    assert!(
        !admitted(
            &layer,
            with(from("192.0.2.1"), "x-forwarded-for", "198.51.100.8")
        )
        .await
    );
}

#[tokio::test]
async fn the_client_is_the_rightmost_untrusted_address() {
    let layer = layer(ClientAddress::behind(networks(&["10.0.0.0/8", "fd00::/8"])));
    let forwarded = |list: &str| with(from("10.0.0.2"), "x-forwarded-for", list);
    assert!(admitted(&layer, forwarded("198.51.100.7")).await);
    // Addresses sent by the client are left of the one that the first proxy appended.
    for forged in [
        "1.1.1.1, 198.51.100.7",
        "10.9.9.9, 198.51.100.7",
        ",,, 198.51.100.7",
        "198.51.100.8,198.51.100.7, 10.0.0.1",
        "garbage, 198.51.100.7,10.0.0.1 , fd00::1",
    ] {
        assert!(!admitted(&layer, forwarded(forged)).await, "{forged}");
    }
    assert!(admitted(&layer, forwarded("198.51.100.7, 198.51.100.8")).await);
}

#[tokio::test]
async fn several_header_lines_are_one_list() {
    let layer = layer(ClientAddress::behind(networks(&["10.0.0.0/8"])));
    let request = |first, second| {
        with(
            with(from("10.0.0.2"), "x-forwarded-for", first),
            "x-forwarded-for",
            second,
        )
    };
    assert!(admitted(&layer, request("1.1.1.1", "198.51.100.7")).await);
    assert!(!admitted(&layer, request("2.2.2.2", "198.51.100.7")).await);
}

#[tokio::test]
async fn proxy_hops_are_counted_from_the_right() {
    let layer = layer(ClientAddress::behind_hops(2));
    let forwarded = |list: &str| with(from("203.0.113.9"), "x-forwarded-for", list);
    assert!(admitted(&layer, forwarded("198.51.100.7, 203.0.113.8")).await);
    assert!(!admitted(&layer, forwarded("1.1.1.1, 198.51.100.7, 203.0.113.8")).await);
    // A list that is shorter than the hops: the client is the peer.
    assert!(admitted(&layer, forwarded("198.51.100.1")).await);
    assert!(!admitted(&layer, forwarded("198.51.100.2")).await);
}

#[tokio::test]
async fn the_forwarded_header_is_read_if_configured() {
    let client = ClientAddress::behind(networks(&["10.0.0.0/8"])).header(ForwardedBy::Forwarded);
    let layer = layer(client);
    let forwarded = |list: &str| with(from("10.0.0.2"), "forwarded", list);
    assert!(admitted(&layer, forwarded("for=198.51.100.7;proto=https")).await);
    for same in [
        "For=198.51.100.7",
        "proto=http;for=\"198.51.100.7:4711\";by=10.0.0.2",
        "for=1.1.1.1, for=198.51.100.7",
        "for=\", for=198.51.100.7",
        "for=\"_hidden, x\", FOR = 198.51.100.7",
    ] {
        assert!(!admitted(&layer, forwarded(same)).await, "{same}");
    }
    assert!(admitted(&layer, forwarded("for=\"[2001:db8::7]:4711\"")).await);
    assert!(
        !admitted(&layer, forwarded("for=\"[2001:db8::8]\"")).await,
        "one /64"
    );
    // The other header may come from the client.
    let forged = with(
        forwarded("for=198.51.100.7"),
        "x-forwarded-for",
        "198.51.100.99",
    );
    assert!(!admitted(&layer, forged).await);
}

#[test]
fn a_quoted_host_parameter_cannot_inject_an_address() {
    let client = ClientAddress::behind(networks(&["10.0.0.0/8"])).header(ForwardedBy::Forwarded);
    // Proxies copy the client's Host into their own element.
    for line in [
        r#"for=9.9.9.9;host="x,for=1.1.1.1;y""#,
        r#"host="x;for=1.1.1.1;y";for=9.9.9.9"#,
        r#"proto=http;host="a,for=1.1.1.1;b";for=9.9.9.9"#,
        r#"for=1.1.1.1, host="a\",for=1.1.1.1;b";for=9.9.9.9"#,
    ] {
        let mut headers = http::HeaderMap::new();
        headers.insert("forwarded", line.parse().unwrap());
        let found = client.resolve("10.0.0.1".parse().unwrap(), &headers);
        assert_eq!(found.to_string(), "9.9.9.9", "{line}");
    }
}

#[tokio::test]
async fn obfuscated_or_malformed_hops_count_as_the_proxy_that_added_them() {
    let client = ClientAddress::behind(networks(&["10.0.0.0/8"])).header(ForwardedBy::Forwarded);
    let layer = layer(client);
    assert!(admitted(&layer, with(from("10.0.0.2"), "forwarded", "for=unknown")).await);
    for broken in [
        "for=_secret",
        "",
        "for=",
        "nonsense",
        "for=999.1.1.1",
        "\u{ff}",
    ] {
        let request = with(from("10.0.0.2"), "forwarded", broken);
        assert!(!admitted(&layer, request).await, "{broken}");
    }
}

#[tokio::test]
async fn addresses_of_one_ipv6_prefix_are_one_client() {
    let default = layer(ClientAddress::peer());
    assert!(admitted(&default, from("2001:db8:1:2::1")).await);
    for rotated in [
        "2001:db8:1:2::2",
        "2001:db8:1:2:ffff:ffff:ffff:ffff",
        "2001:db8:1:2:1:2:3:4",
    ] {
        assert!(!admitted(&default, from(rotated)).await, "{rotated}");
    }
    assert!(admitted(&default, from("2001:db8:1:3::1")).await);
    let exact = layer(ClientAddress::peer().ipv6_prefix(128));
    assert!(admitted(&exact, from("2001:db8:1:2::1")).await);
    assert!(admitted(&exact, from("2001:db8:1:2::2")).await);
    let wide = layer(ClientAddress::peer().ipv6_prefix(48));
    assert!(admitted(&wide, from("2001:db8:1:2::1")).await);
    assert!(!admitted(&wide, from("2001:db8:1:3::1")).await);
}

#[tokio::test]
async fn an_ipv4_mapped_ipv6_address_is_the_ipv4_client() {
    let layer = layer(ClientAddress::behind(networks(&["10.0.0.0/8"])));
    assert!(admitted(&layer, from("192.0.2.1")).await);
    assert!(!admitted(&layer, from("::ffff:192.0.2.1")).await);
    let proxied = with(
        from("::ffff:10.0.0.1"),
        "x-forwarded-for",
        "::ffff:192.0.2.1",
    );
    assert!(!admitted(&layer, proxied).await);
    // IPv4-mapped addresses are not grouped by /64.
    assert!(admitted(&layer, from("::ffff:192.0.2.2")).await);
}

#[tokio::test]
async fn an_address_behind_nat64_is_the_ipv4_client() {
    let layer = layer(ClientAddress::behind(networks(&["10.0.0.0/8"])));
    let proxied = |hop| with(from("10.0.0.1"), "x-forwarded-for", hop);
    assert!(admitted(&layer, from("64:ff9b::192.0.2.1")).await);
    for same in ["192.0.2.1", "::ffff:192.0.2.1", "64:ff9b::c000:201"] {
        assert!(!admitted(&layer, from(same)).await, "{same}");
        assert!(!admitted(&layer, proxied(same)).await, "{same}");
    }
    // They are not grouped by /64.
    assert!(admitted(&layer, from("64:ff9b::192.0.2.2")).await);
    assert!(admitted(&layer, proxied("64:ff9b::192.0.2.3")).await);
    // Only the well-known prefix: others are networks like any other.
    assert!(admitted(&layer, from("64:ff9b:1::192.0.2.4")).await);
    assert!(!admitted(&layer, from("64:ff9b:1::192.0.2.5")).await);
    // A proxy is not trusted for the IPv4 address that it would have.
    let forged = with(from("64:ff9b::10.0.0.1"), "x-forwarded-for", "192.0.2.6");
    assert!(admitted(&layer, forged).await);
    assert!(admitted(&layer, from("192.0.2.6")).await);
}

#[tokio::test]
async fn a_list_of_64_kib_is_read_from_the_right() {
    let layer = layer(ClientAddress::behind(networks(&["10.0.0.0/8"])));
    let long = "10.0.0.1,".repeat(7_281) + "198.51.100.7";
    assert!(admitted(&layer, with(from("10.0.0.2"), "x-forwarded-for", &long)).await);
    assert!(!admitted(&layer, with(from("10.0.0.2"), "x-forwarded-for", &long)).await);
    let trusted_only = "10.0.0.1,".repeat(7_281) + "10.0.0.3";
    assert!(
        admitted(
            &layer,
            with(from("10.0.0.2"), "x-forwarded-for", &trusted_only)
        )
        .await
    );
}

#[test]
fn an_invalid_network_is_reported() {
    for (text, part) in [
        ("", "is not an address"),
        ("10.0.0", "is not an address"),
        ("10.0.0.0/33", "more bits"),
        ("10.0.0.0/x", "no number of bits"),
        ("10.0.0.0/+8", "no number of bits"),
        ("10.0.0.0/", "no number of bits"),
        ("10.0.0.1/8", "bits beyond"),
        ("2001:db8::1/32", "bits beyond"),
        ("64:ff9b::/96", "all addresses of NAT64"),
        ("64:ff9b::/32", "all addresses of NAT64"),
    ] {
        let error = text.parse::<Network>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    for text in [
        "10.0.0.0/8",
        "0.0.0.0/0",
        "192.0.2.1/32",
        "2001:db8::/32",
        "::/0",
    ] {
        assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
    }
    assert_eq!(
        "192.0.2.1".parse::<Network>().unwrap().to_string(),
        "192.0.2.1/32"
    );
}
