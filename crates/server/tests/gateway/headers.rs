//! Which headers reach the upstream and which come back.

use http::{Request, Response};
use tallygate_server::gateway::{Host, TrustedPeers};

use super::*;

/// A server that responds with the headers it received, one per line.
async fn mirror() -> SocketAddr {
    upstream(|request| async move {
        let mut lines: Vec<String> = request
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        let mut response = Response::new(text(lines.join("\n")));
        for (name, value) in [
            ("x-kept", "1"),
            ("x-dropped", "1"),
            ("connection", "x-dropped"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
        ] {
            response.headers_mut().append(name, value.parse().unwrap());
        }
        response
    })
    .await
}

async fn received_headers(settings: Settings, headers: &[(&str, &str)]) -> String {
    let gateway = Running::start(settings, admit_all()).await;
    let mut request = Request::get(gateway.url("/")).header("host", "shop.example:81");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = http1()
        .request(request.body(empty()).unwrap())
        .await
        .unwrap();
    assert!(response.headers().contains_key("x-kept"));
    for name in ["x-dropped", "keep-alive", "proxy-connection"] {
        assert!(!response.headers().contains_key(name), "{name}");
    }
    read(response).await.1
}

#[tokio::test]
async fn hop_by_hop_headers_are_removed() {
    let sent = [
        ("connection", "x-hop, keep-alive, host, content-length"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-authorization", "secret"),
        ("te", "gzip"),
        ("x-kept", "1"),
        ("authorization", "Bearer t"),
    ];
    let received = received_headers(proxy_to(mirror().await), &sent).await;
    let expected = [
        "authorization: Bearer t",
        "host: shop.example:81",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: shop.example:81",
        "x-forwarded-proto: http",
        "x-kept: 1",
    ];
    assert_eq!(received, expected.join("\n"));
}

const FORWARDING_HEADERS: [(&str, &str); 8] = [
    ("x-forwarded-for", "192.0.2.1"),
    ("x-forwarded-for", "198.51.100.2"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-host", "real.example"),
    ("x-real-ip", "192.0.2.1"),
    ("forwarded", "for=192.0.2.1"),
    ("x-forwarded-user", "admin"),
    ("x-original-uri", "/other"),
];

#[tokio::test]
async fn forwarding_headers_of_untrusted_peers_are_replaced() {
    let received = received_headers(proxy_to(mirror().await), &FORWARDING_HEADERS).await;
    let expected = [
        "host: shop.example:81",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: shop.example:81",
        "x-forwarded-proto: http",
    ];
    assert_eq!(received, expected.join("\n"));
}

#[tokio::test]
async fn forwarding_headers_of_trusted_peers_are_extended() {
    let mut settings = proxy_to(mirror().await);
    settings.trusted = TrustedPeers::when(|peer| peer.is_loopback());
    let received = received_headers(settings, &FORWARDING_HEADERS).await;
    let expected = [
        "forwarded: for=192.0.2.1, for=127.0.0.1;proto=http",
        "host: shop.example:81",
        "x-forwarded-for: 192.0.2.1, 198.51.100.2, 127.0.0.1",
        "x-forwarded-host: real.example",
        "x-forwarded-proto: https",
        "x-forwarded-user: admin",
        "x-original-uri: /other",
        "x-real-ip: 192.0.2.1",
    ];
    assert_eq!(received, expected.join("\n"));
}

#[tokio::test]
async fn an_upstream_sees_its_own_host_if_configured() {
    let address = mirror().await;
    let mut settings = proxy_to(address);
    settings.host = Host::Upstream;
    let received = received_headers(settings, &[]).await;
    assert!(
        received.contains(&format!("host: {address}\n")),
        "{received}"
    );
    assert!(
        received.contains("x-forwarded-host: shop.example:81"),
        "{received}"
    );
}

#[tokio::test]
async fn an_http2_client_s_host_reaches_an_http1_upstream() {
    let gateway = Running::start(proxy_to(mirror().await), admit_all()).await;
    let (_, received) = get(&http2(), &gateway.url("/")).await;
    assert!(
        received.contains(&format!("host: {}\n", gateway.address)),
        "{received}"
    );
}
