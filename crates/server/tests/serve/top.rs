//! Top keys of every API: hashed by default, secrets always.

use serde_json::{Value, json};

use super::client::send;
use super::{JSON, Server, TempDir};

const RULES: &str = "\
version: 1
trusted_proxies: [127.0.0.1]
rules:
  - name: login
    match: { method: POST, path: /login }
    key: [ip]
    limits: [sliding-window-log 2/h, fixed-window 3/day]
  - name: api
    match: { path: /api/** }
    key: [{ header: x-api-key, or: ip }, { header: x-user, or: ip }]
    limits: [sliding-window-log 1/h]
";

fn start(args: &[&str]) -> (TempDir, Server) {
    let folder = TempDir::new();
    let rules = folder.write("rules.yaml", RULES);
    let server = Server::start(&[&["--config", &rules], args].concat());
    (folder, server)
}

fn top(server: &Server) -> Value {
    let answer = server.admin("GET", "/admin/top", "");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn drive(server: &Server) {
    for ip in [
        "192.0.2.1",
        "192.0.2.1",
        "192.0.2.1",
        "192.0.2.1",
        "192.0.2.2",
    ] {
        let body = json!({"rule": "login", "attributes": {"ip": ip}});
        server.check(&body.to_string());
    }
    // Forward-auth with a secret.
    for _ in 0..3 {
        let headers = [
            ("x-original-method", "GET"),
            ("x-original-uri", "/api/x"),
            ("x-forwarded-for", "192.0.2.9"),
            ("x-api-key", "s3cr3t-s3cr3t"),
            ("x-user", "ann, the first"),
        ];
        send(server.api, "GET", "/v1/auth", &headers, "");
    }
    // Two keys without a rule; one is refused.
    let body = r#"{"limits":[{"key":"tenant","quota":"100/h"},{"key":"user","quota":"1/h"}]}"#;
    server.check(body);
    server.check(body);
    server.check(r#"{"key":"peeked","quota":"1/h","verb":"peek"}"#);
}

#[test]
fn every_api_is_counted_and_keys_are_hashed() {
    let (_folder, server) = start(&[]);
    assert_eq!(top(&server)["hottest"], json!([]));
    drive(&server);
    let answer = server.admin("GET", "/admin/top", "");
    for clear in ["192.0.2", "s3cr3t", "ann", "tenant", "user", "peeked"] {
        assert!(!answer.body.contains(clear), "{clear}: {}", answer.body);
    }
    let top = answer.json();
    assert_eq!(top["keys"], "hashed");
    assert_eq!(top["window_s"], 300);
    // The same hash as in `/admin/keys`.
    let hash = server.admin("GET", "/admin/keys/192.0.2.1", "").json()["key"].clone();
    let first = json!({"rule": "login", "key": hash, "count": 4});
    assert_eq!(top["hottest"][0], first);
    assert_eq!(top["hottest"].as_array().unwrap().len(), 5);
    let refused = top["refused"].as_array().unwrap();
    let counts: Vec<_> = refused
        .iter()
        .map(|one| {
            (
                one["rule"].as_str().unwrap(),
                one["count"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(counts.len(), 3, "{top}");
    for expected in [("login", 2), ("api", 2), ("(none)", 1)] {
        assert!(counts.contains(&expected), "{top}");
    }
}

#[test]
fn show_keys_shows_keys_but_not_secrets() {
    let (_folder, server) = start(&["--show-keys"]);
    drive(&server);
    let answer = server.admin("GET", "/admin/top", "");
    assert!(!answer.body.contains("s3cr3t"), "{}", answer.body);
    let top = answer.json();
    assert_eq!(top["keys"], "clear");
    let first = json!({"rule": "login", "key": "192.0.2.1", "count": 4});
    assert_eq!(top["hottest"][0], first);
    let refused = top["refused"].as_array().unwrap();
    let by_rule = |rule: &str| refused.iter().find(|one| one["rule"] == rule).unwrap();
    assert_eq!(by_rule("(none)")["key"], "user");
    let key = by_rule("api")["key"].as_str().unwrap();
    assert!(
        key.starts_with('#') && key.ends_with(",ann%2C%20the%20first"),
        "{key}"
    );
}

#[test]
fn the_list_length_is_bounded() {
    let (_folder, server) = start(&[]);
    drive(&server);
    let two = server.admin("GET", "/admin/top?most=2", "").json();
    assert_eq!(two["hottest"].as_array().unwrap().len(), 2);
    for wrong in ["most=0", "most=101", "most=x", "most=1&most=2", "least=1"] {
        let answer = server.admin("GET", &format!("/admin/top?{wrong}"), "");
        assert_eq!(answer.code(), "bad-query", "{wrong}");
    }
    let proxied = [JSON, ("x-forwarded-for", "192.0.2.1")];
    let answer = send(server.admin, "GET", "/admin/top", &proxied, "");
    assert_eq!(answer.code(), "token-required");
    assert_eq!(
        server.admin("PUT", "/admin/top", "").code(),
        "method-not-allowed"
    );
}
