//! Forward-auth with the headers of nginx, Traefik and Caddy.

use super::client::{Response, send};
use super::{Server, TempDir};

const RULES: &str = "\
version: 1
trusted_proxies: [127.0.0.1]
rules:
  - name: login
    match: { method: POST, path: /login, host: example.com }
    key: [ip]
    limits: [sliding-window-log 2/h]
  - name: mail
    match: { path: /mail }
    key: [ip]
    limits: [leaky-bucket 1/20ms queue 2]
";

fn start() -> (TempDir, Server) {
    let folder = TempDir::new();
    let server = Server::start(&["--config", &folder.write("rules.yaml", RULES)]);
    (folder, server)
}

fn auth(server: &Server, query: &str, headers: &[(&str, &str)]) -> Response {
    send(server.api, "GET", &format!("/v1/auth{query}"), headers, "")
}

const NGINX: [(&str, &str); 4] = [
    ("x-original-method", "POST"),
    ("x-original-uri", "/login?next=/"),
    ("x-forwarded-for", "192.0.2.1"),
    ("host", "example.com"),
];
const TRAEFIK: [(&str, &str); 5] = [
    ("x-forwarded-method", "POST"),
    ("x-forwarded-uri", "/login"),
    ("x-forwarded-host", "example.com"),
    ("x-forwarded-for", "192.0.2.2"),
    ("x-forwarded-proto", "https"),
];

#[test]
fn a_proxy_learns_whether_to_forward_a_request() {
    let (_folder, server) = start();
    for proxy in [&NGINX[..], &TRAEFIK] {
        let first = auth(&server, "", proxy);
        assert_eq!((first.status, first.body.as_str()), (200, ""));
        assert_eq!(first.header("x-ratelimit-remaining"), Some("1"));
        assert_eq!(auth(&server, "", proxy).status, 200);
        let refused = auth(&server, "", proxy);
        assert_eq!(refused.status, 429);
        assert_eq!(refused.header("retry-after"), Some("3600"));
        assert_eq!(
            refused.header("content-type"),
            Some("application/problem+json")
        );
        // nginx supports only these.
        assert_eq!(auth(&server, "?deny=403", proxy).status, 403);
        assert_eq!(auth(&server, "?deny=401", proxy).status, 401);
        assert_eq!(auth(&server, "?deny=200", proxy).code(), "bad-query");
    }
    // Another method, path, host or client has its own budget or no rule.
    for (name, value) in [
        ("x-original-method", "GET"),
        ("x-original-uri", "/logout"),
        ("host", "example.org"),
        ("x-forwarded-for", "192.0.2.9"),
    ] {
        let other = |(header, old)| {
            if header == name {
                (name, value)
            } else {
                (header, old)
            }
        };
        assert_eq!(auth(&server, "", &NGINX.map(other)).status, 200, "{name}");
    }
}

#[test]
fn missing_or_ambiguous_headers_are_rejected() {
    let (_folder, server) = start();
    assert_eq!(auth(&server, "", &[]).code(), "missing-original");
    assert_eq!(auth(&server, "", &NGINX[..1]).code(), "missing-original");
    let smuggled = [&NGINX[..], &[("x-forwarded-uri", "/other")]].concat();
    assert_eq!(auth(&server, "", &smuggled).code(), "ambiguous-original");
}

#[test]
fn an_untrusted_proxy_is_rejected() {
    let server = Server::start(&[]);
    let answer = auth(&server, "", &NGINX);
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (403, "untrusted-peer")
    );
}

#[test]
fn shaping_delays_the_response_to_the_proxy() {
    let (_folder, server) = start();
    let mail = [
        ("x-original-method", "POST"),
        ("x-original-uri", "/mail"),
        ("x-forwarded-for", "192.0.2.1"),
    ];
    for _ in 0..4 {
        assert_eq!(auth(&server, "", &mail).status, 200);
    }
    let series = "tallygate_decisions_total{outcome=\"delayed\",rule=\"mail\"}";
    assert!(server.metric(series).unwrap() >= 1.0);
    assert_eq!(
        server.metric("tallygate_queue_depth{rule=\"mail\"}"),
        Some(0.0)
    );
}
