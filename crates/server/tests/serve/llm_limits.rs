//! Concurrency limits and actual costs over one Redis: two gateways and forward-auth.

use serde_json::json;
use tallygate_testkit::poll;
use tallygate_testkit::redis::Server as Redis;

use super::upstream::Upstream;
use super::{Server, TIMEOUT, TempDir, send};

const RULES: &str = "
version: 1
trusted_proxies: [127.0.0.1]
rules:
  - name: tokens
    match: { path: /chat }
    key: [{ header: x-api-key }]
    limits: [fixed-window 100000/366d, concurrent 2 for 1h]
    cost: { header: x-max-tokens, default: 1000, actual: { header: x-tokens } }
  - name: rates
    match: { path: /complete }
    key: [{ header: x-api-key }]
    limits: [fixed-window 100000/366d, sliding-window-log 100000/366d]
    cost: { default: 1000, actual: { header: x-tokens } }
  - name: reports
    match: { path: /reports }
    limits: concurrent 2 for 1h
";

fn start(folder: &TempDir, upstream: &Upstream, store: &str) -> Server {
    let rules = folder.write("rules.yaml", RULES);
    let url = upstream.url();
    let args = ["--config", &rules, "--store", store];
    let gateway = ["--gateway", "127.0.0.1:0", "--upstream", &url];
    let server = Server::start(&[&args[..], &gateway].concat());
    poll::until(TIMEOUT, "ready", || {
        server.admin("GET", "/readyz", "").status == 200
    });
    server
}

/// What is left of both limits of a rule: of the tokens, and the units that are free.
fn left(server: &Server, rule: &str) -> [u64; 2] {
    let body = json!({"rule":rule,"verb":"peek","cost":0,
                      "attributes":{"headers":{"x-api-key":"k"}}});
    let quotas = server.check(&body.to_string()).json()["quotas"].clone();
    [0, 1].map(|at| quotas[at]["remaining"].as_u64().unwrap())
}

#[test]
fn gateways_settle_and_release_in_one_redis() {
    let redis = Redis::start();
    let folder = TempDir::new();
    let upstream = Upstream::start(|_| {
        "HTTP/1.1 200 OK\r\nx-tokens: 812\r\ncontent-length: 2\r\n\r\nhi".into()
    });
    let servers = [
        start(&folder, &upstream, &redis.url()),
        start(&folder, &upstream, &redis.url()),
    ];
    for (number, server) in servers.iter().enumerate() {
        let response = send(server.gateway(), "GET", "/chat", &[("x-api-key", "k")], "");
        assert_eq!(response.status, 200, "{}", response.body);
        let expected = [100_000 - 812 * (number as u64 + 1), 2];
        for asked in &servers {
            poll::until(TIMEOUT, "settled and released", || {
                left(asked, "tokens") == expected
            });
        }
    }
}

#[test]
fn gateways_settle_rates_alone_in_one_redis() {
    let redis = Redis::start();
    let folder = TempDir::new();
    let upstream = Upstream::start(|_| {
        "HTTP/1.1 200 OK\r\nx-tokens: 2500\r\ncontent-length: 2\r\n\r\nhi".into()
    });
    let server = start(&folder, &upstream, &redis.url());
    let response = send(
        server.gateway(),
        "GET",
        "/complete",
        &[("x-api-key", "k")],
        "",
    );
    assert_eq!(response.status, 200, "{}", response.body);
    poll::until(TIMEOUT, "settled", || {
        left(&server, "rates") == [97_500, 97_500]
    });
}

#[test]
fn forward_auth_holds_for_the_hold_time_and_says_so() {
    let folder = TempDir::new();
    let upstream = Upstream::text("hello");
    let server = start(&folder, &upstream, "memory");
    let original = [("x-original-method", "GET"), ("x-original-uri", "/reports")];
    let ask = || send(server.api, "GET", "/v1/auth", &original, "").status;
    assert_eq!([ask(), ask(), ask()], [200, 200, 429]);
    assert!(
        server
            .stderr
            .lock()
            .unwrap()
            .contains("/v1/auth has a concurrency limit")
    );
}

#[test]
fn forward_auth_remembers_no_estimates() {
    let folder = TempDir::new();
    let upstream = Upstream::text("hello");
    let server = start(&folder, &upstream, "memory");
    let original = [
        ("x-original-method", "GET"),
        ("x-original-uri", "/complete"),
        ("x-api-key", "k"),
    ];
    for _ in 0..9 {
        assert_eq!(
            send(server.api, "GET", "/v1/auth", &original, "").status,
            200
        );
    }
    assert_eq!(left(&server, "rates"), [91_000, 91_000]);
    let metrics = server.admin("GET", "/metrics", "").body;
    // One for each limit.
    assert!(metrics.contains("\ntallygate_keys 2\n"), "{metrics}");
}
