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

/// The counters of a key as it is shown in a list.
fn look_up(server: &Server, method: &str, shown: &str) -> (u16, Value) {
    let path = format!("/admin/keys/{}", shown.replace('#', "%23"));
    let answer = server.admin(method, &path, "");
    (answer.status, answer.json())
}

#[test]
fn a_shown_hash_is_looked_up_and_reset() {
    let (_folder, server) = start(&[]);
    drive(&server);
    let hash = top(&server)["hottest"][0]["key"]
        .as_str()
        .unwrap()
        .to_owned();
    let (status, found) = look_up(&server, "GET", &hash);
    assert_eq!((status, &found["key"]), (200, &json!(hash)));
    // The same as by the key itself.
    let by_text = server.admin("GET", "/admin/keys/192.0.2.1", "").json();
    let shape = |json: &Value| -> Vec<(String, Value, Value)> {
        let each = json["counters"].as_array().unwrap().iter();
        let quota = |one: &Value| one["quota"].as_str().unwrap().to_owned();
        each.map(|one| (quota(one), one["remaining"].clone(), one["key"].clone()))
            .collect()
    };
    assert_eq!(shape(&found), shape(&by_text));
    assert_eq!(found["counters"][0]["remaining"], 0);
    assert!(!found.to_string().contains("192.0.2"), "{found}");
    assert_eq!(look_up(&server, "DELETE", &hash).0, 200);
    let (_, after) = look_up(&server, "GET", &hash);
    assert_eq!(after["counters"][0]["remaining"], 2);
}

#[test]
fn every_shown_key_can_be_looked_up() {
    for args in [&[][..], &["--show-keys"]] {
        let (_folder, server) = start(args);
        drive(&server);
        // One part from its second source, and a secret that was not sent as text.
        let headers = [
            ("x-original-method", "GET"),
            ("x-original-uri", "/api/x"),
            ("x-forwarded-for", "192.0.2.9"),
            ("x-user", "ann"),
        ];
        send(server.api, "GET", "/v1/auth", &headers, "");
        let lists = top(&server);
        let mut rules = Vec::new();
        for entry in lists["hottest"].as_array().unwrap() {
            let shown = entry["key"].as_str().unwrap();
            let rule = entry["rule"].as_str().unwrap();
            let (status, found) = match rule {
                // What is counted without a rule needs its quota.
                "(none)" => look_up(&server, "GET", &format!("{shown}?quota=1/h")),
                _ => look_up(&server, "GET", shown),
            };
            assert_eq!(status, 200, "{entry}: {found}");
            // It was counted.
            let counted = |one: &&Value| {
                let own_rule = one["rule"] == rule || rule == "(none)";
                own_rule && one["key"] == entry["key"] && one["reset_after_us"] != 0
            };
            let mut counters = found["counters"].as_array().unwrap().iter();
            assert!(counters.any(|one| counted(&one)), "{entry}: {found}");
            rules.push(rule);
        }
        assert_eq!(rules.len(), 6, "{lists}");
    }
}

#[test]
fn a_hash_that_is_not_in_the_lists_is_an_error() {
    let (_folder, server) = start(&[]);
    drive(&server);
    let (status, problem) = look_up(&server, "GET", "#0123456789ab");
    assert_eq!((status, &problem["code"]), (404, &json!("unknown-key")));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("last 5 minutes"), "{detail}");
    // Anything else is a key.
    for key in [
        "#0123456789a",
        "#0123456789abc",
        "#0123456789ag",
        "x#0123456789ab",
    ] {
        assert_eq!(look_up(&server, "GET", key).0, 200, "{key}");
    }
    // Of a long key only the hash is kept.
    let long = json!({"key": "x".repeat(10_000), "quota": "1/h"}).to_string();
    for _ in 0..9 {
        server.check(&long);
    }
    let shown = top(&server)["hottest"][0]["key"]
        .as_str()
        .unwrap()
        .to_owned();
    let (status, problem) = look_up(&server, "GET", &shown);
    assert_eq!((status, &problem["code"]), (404, &json!("unknown-key")));
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("only its hash is kept")
    );
}
