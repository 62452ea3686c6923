//! The admin listener: authorization, inspection, and changes at run time.

use serde_json::{Value, json};
use tallygate_testkit::poll;

use super::client::send;
use super::{JSON, Server, TIMEOUT, TempDir};

const RULES: &str = "\
version: 1
rules:
  - name: login
    match: { method: POST, path: /login }
    key: [ip]
    limits: [sliding-window-log 2/h]
  - name: api
    match: { path: /api/** }
    key: [{ header: x-api-key, or: ip }]
    limits: [sliding-window-log 3/h, fixed-window 100/day]
";

/// A request through a proxy does not count as local.
const PROXIED: (&str, &str) = ("x-forwarded-for", "192.0.2.1");

fn start() -> (TempDir, Server) {
    let folder = TempDir::new();
    let server = Server::start(&["--config", &folder.write("rules.yaml", RULES)]);
    (folder, server)
}

fn login(server: &Server, ip: &str) -> u16 {
    let body = json!({"rule": "login", "attributes": {"ip": ip}});
    server.check(&body.to_string()).status
}

#[test]
fn every_specified_path_responds() {
    let (_folder, server) = start();
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/live",
        "/admin/rules",
        "/admin/keys/a",
        "/admin/overrides",
        "/admin/kill-switch",
        "/admin/top",
    ] {
        let answer = server.admin("GET", path, "");
        assert_eq!(answer.status, 200, "{path}");
        let wrong = server.admin("TRACE", path, "");
        assert_eq!(wrong.code(), "method-not-allowed", "{path}");
    }
    assert_eq!(server.admin("GET", "/admin", "").code(), "not-found");
    assert_eq!(server.admin("GET", "/admin/", "").code(), "not-found");
    assert_eq!(server.admin("GET", "/", "").code(), "not-found");
}

#[test]
fn rules_are_listed_with_origin_and_settings() {
    let (_folder, server) = start();
    let shown = server.admin("GET", "/admin/rules", "").json();
    assert!(shown["origin"].as_str().unwrap().ends_with("rules.yaml"));
    assert_eq!(shown["store"], "memory");
    let api = &shown["rules"][1];
    assert_eq!(api["name"], "api");
    assert_eq!(
        api["limits"],
        json!(["sliding-window-log 3/h", "fixed-window 100/d"])
    );
    assert_eq!(api["key"], json!([["header x-api-key", "ip"]]));
    assert_eq!(api["on_failure"], "local");
    assert_eq!(
        server.admin("GET", "/admin/rules/login", "").json()["name"],
        "login"
    );
    assert_eq!(
        server.admin("GET", "/admin/rules/none", "").code(),
        "unknown-rule"
    );
}

#[test]
fn a_key_is_inspected_and_reset_across_rules() {
    let (_folder, server) = start();
    for _ in 0..2 {
        assert_eq!(login(&server, "192.0.2.1"), 200);
    }
    assert_eq!(login(&server, "192.0.2.1"), 429);
    let by_ip = r#"{"rule":"api","attributes":{"ip":"192.0.2.1"}}"#;
    assert_eq!(server.check(by_ip).json()["remaining"], 2);

    let key = server.admin("GET", "/admin/keys/192.0.2.1", "").json();
    let counters = key["counters"].as_array().unwrap();
    let remaining = |rule: &str, quota: &str| -> Vec<u64> {
        let matches = |counter: &&Value| counter["rule"] == rule && counter["quota"] == quota;
        let matching = counters.iter().filter(matches);
        matching
            .map(|counter| counter["remaining"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(remaining("login", "sliding-window-log 2/h"), [0]);
    // Once as an API key, once as the fallback address.
    assert_eq!(remaining("api", "sliding-window-log 3/h"), [3, 2]);
    let sources = counters.iter().map(|counter| &counter["source"]);
    let (header, ip) = (json!("header x-api-key"), json!("ip"));
    for source in [&header, &ip, &Value::Null] {
        assert!(sources.clone().any(|one| one == source), "{key}");
    }
    let refused = &server.admin("GET", "/admin/top", "").json()["refused"][0];
    let login_counter = counters.iter().find(|counter| counter["rule"] == "login");
    assert_eq!(login_counter.unwrap()["key"], refused["key"]);
    assert!(!key.to_string().contains("192.0.2.1"));

    let reset = server.admin("DELETE", "/admin/keys/192.0.2.1", "");
    assert_eq!(reset.status, 200);
    assert_eq!(login(&server, "192.0.2.1"), 200);
    assert_eq!(server.check(by_ip).json()["remaining"], 2);

    let own = r#"{"key":"ann","quota":"sliding-window-log 1/h"}"#;
    server.check(own);
    assert_eq!(server.check(own).status, 429);
    let path = "/admin/keys/ann?quota=sliding-window-log%201/h";
    assert_eq!(
        server.admin("GET", path, "").json()["counters"][5]["remaining"],
        0
    );
    server.admin("DELETE", path, "");
    assert_eq!(server.check(own).status, 200);
}

#[test]
fn an_override_applies_immediately_and_expires() {
    let (_folder, server) = start();
    let add = |body: Value| server.admin("POST", "/admin/overrides", &body.to_string());
    let ban = add(json!({"key": "192.0.2.1", "rule": "login", "deny": true, "seconds": 3600}));
    assert_eq!(ban.status, 201);
    assert_eq!(login(&server, "192.0.2.1"), 403);
    assert_eq!(login(&server, "192.0.2.2"), 200);
    let id = ban.json()["id"].as_u64().unwrap();
    let path = format!("/admin/overrides/{id}");
    assert_eq!(server.admin("DELETE", &path, "").status, 200);
    assert_eq!(login(&server, "192.0.2.1"), 200);
    assert_eq!(server.admin("DELETE", &path, "").code(), "unknown-override");

    let limits = json!({"key": "192.0.2.3", "rule": "login", "limits": "sliding-window-log 1/h", "seconds": 3600});
    add(limits);
    assert_eq!(
        [login(&server, "192.0.2.3"), login(&server, "192.0.2.3")],
        [200, 429]
    );
    add(json!({"network": "192.0.2.0/24", "allow": true, "seconds": 1}));
    assert_eq!(login(&server, "192.0.2.3"), 200);
    let listed = server.admin("GET", "/admin/overrides", "").json();
    assert_eq!(listed["overrides"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains("192.0.2.3"), "{listed}");
    poll::until(TIMEOUT, "the override to expire", || {
        login(&server, "192.0.2.3") == 429
    });
}

#[test]
fn an_invalid_override_changes_nothing() {
    let (_folder, server) = start();
    for (body, code) in [
        (json!({"key": "a", "deny": true}), "bad-field"),
        // An address for one rule, an API key for the other.
        (json!({"key": "a", "deny": true, "seconds": 5}), "bad-field"),
        (json!({"key": "a", "deny": true, "seconds": 0}), "bad-field"),
        (
            json!({"key": "a", "deny": true, "seconds": 2_592_001}),
            "bad-field",
        ),
        (json!({"key": "a", "seconds": 5}), "bad-field"),
        (
            json!({"key": "a", "deny": true, "allow": true, "seconds": 5}),
            "bad-field",
        ),
        (json!({"deny": true, "seconds": 5}), "bad-field"),
        (
            json!({"network": "here", "deny": true, "seconds": 5}),
            "bad-field",
        ),
        (
            json!({"key": ["a", "b"], "deny": true, "seconds": 5}),
            "bad-field",
        ),
        (
            json!({"key": "a", "rule": "none", "deny": true, "seconds": 5}),
            "unknown-rule",
        ),
        (
            json!({"key": "a", "limits": "5/blink", "seconds": 5}),
            "bad-quota",
        ),
        (
            json!({"key": "a", "limits": ["5/s", "6/s"], "seconds": 5}),
            "bad-quota",
        ),
        (
            json!({"key": "a", "deny": true, "seconds": 5, "x": 1}),
            "bad-field",
        ),
        (json!([]), "bad-field"),
    ] {
        let answer = server.admin("POST", "/admin/overrides", &body.to_string());
        assert_eq!(answer.code(), code, "{body}");
    }
    let listed = server.admin("GET", "/admin/overrides", "").json();
    assert_eq!(listed, json!({"overrides": []}));
}

#[test]
fn the_kill_switch_overrides_everything_immediately() {
    let (_folder, server) = start();
    let own = r#"{"key":"ann","quota":"sliding-window-log 1/h"}"#;
    assert_eq!(
        [server.check(own).status, server.check(own).status],
        [200, 429]
    );
    let set_switch = |state: &str| {
        let body = json!({"state": state}).to_string();
        server.admin("PUT", "/admin/kill-switch", &body)
    };
    assert_eq!(set_switch("open").json(), json!({"state": "open"}));
    assert_eq!(server.check(own).status, 200);
    assert_eq!((0..9).map(|_| login(&server, "192.0.2.1")).max(), Some(200));
    set_switch("closed");
    let closed = server.check(own);
    assert_eq!((closed.status, closed.code().as_str()), (503, "closed"));
    assert_eq!(login(&server, "192.0.2.1"), 503);
    assert_eq!(server.admin("GET", "/readyz", "").status, 200);
    assert_eq!(set_switch("ajar").code(), "bad-field");
    set_switch("off");
    assert_eq!(server.check(own).status, 429);
    assert_eq!(login(&server, "192.0.2.1"), 200);
    poll::until(TIMEOUT, "three log lines", || {
        server
            .stderr()
            .matches("\"change\":\"kill-switch\"")
            .count()
            == 3
    });
}

#[test]
fn a_rule_is_switched_to_shadow_and_back() {
    let (_folder, server) = start();
    let statuses = |count| {
        (0..count)
            .map(|_| login(&server, "192.0.2.1"))
            .collect::<Vec<_>>()
    };
    assert_eq!(statuses(3), [200, 200, 429]);
    let switch = |shadow: Value| {
        let body = json!({"shadow": shadow}).to_string();
        server.admin("PUT", "/admin/rules/login", &body).json()
    };
    assert_eq!(switch(json!(true))["shadow"], true);
    assert_eq!(statuses(2), [200, 200]);
    let back = switch(Value::Null);
    assert_eq!(
        (&back["shadow"], &back["shadow_switched"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(statuses(1), [429]);
}

#[test]
fn requests_from_other_machines_need_a_token() {
    let token = "0123456789abcdef";
    let server = Server::start_with_env(&[], &[("TALLYGATE_ADMIN_TOKEN", token)]);
    let bearer = format!("Bearer {token}");
    let authorization = ("authorization", bearer.as_str());
    let wrong = ("authorization", "Bearer 0123456789abcdeX");
    let evil = ("host", "evil.example");
    for path in [
        "/admin/rules",
        "/admin/keys/a",
        "/admin/overrides",
        "/admin/kill-switch",
        "/admin/x",
    ] {
        for headers in [&[PROXIED][..], &[PROXIED, wrong], &[evil]] {
            let answer = send(server.admin, "GET", path, headers, "");
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (401, "token-required"),
                "{path}"
            );
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        assert_ne!(
            send(server.admin, "GET", path, &[PROXIED, authorization], "").status,
            401
        );
    }
    // Health and metrics need no token.
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(send(server.admin, "GET", path, &[PROXIED], "").status, 200);
    }
    for verb in ["charge", "refund", "reset"] {
        let body = json!({"key": "a", "quota": "5/h", "verb": verb}).to_string();
        let status =
            |headers: &[(&str, &str)]| send(server.api, "POST", "/v1/check", headers, &body).status;
        assert_eq!(status(&[JSON]), 401);
        assert_eq!(status(&[JSON, PROXIED]), 401);
        assert_eq!(status(&[JSON, PROXIED, authorization]), 200);
        let batch = format!("[{body}]");
        let answer = send(
            server.api,
            "POST",
            "/v1/check/batch",
            &[JSON, PROXIED],
            &batch,
        );
        assert_eq!(answer.json()[0]["code"], "token-required");
    }
    let body = r#"{"key":"a","quota":"5/h","verb":"peek"}"#;
    assert_eq!(
        send(server.api, "POST", "/v1/check", &[JSON, PROXIED], body).status,
        200
    );
    assert!(!server.stderr().contains(token));
}

#[test]
fn a_token_is_read_from_a_file_and_none_rejects_all_other_machines() {
    let folder = TempDir::new();
    let file = folder.write("token", "a-token-from-a-file\n");
    let server = Server::start(&["--admin-token-file", &file]);
    let authorization = ("authorization", "Bearer a-token-from-a-file");
    let status = |server: &Server| {
        send(
            server.admin,
            "GET",
            "/admin/rules",
            &[PROXIED, authorization],
            "",
        )
        .status
    };
    assert_eq!(status(&server), 200);
    assert_eq!(status(&Server::start(&[])), 401);
}

#[test]
fn the_parts_of_a_key_are_separated_by_commas() {
    let folder = TempDir::new();
    let rules = "version: 1\nrules:\n  - name: pair\n    key: [{ header: x-a }, { header: x-b }]\n    limits: sliding-window-log 5/h\n";
    let server = Server::start(&["--config", &folder.write("rules.yaml", rules)]);
    let body = json!({"rule": "pair", "attributes": {"headers": {"x-a": "1,2", "x-b": "3"}}});
    server.check(&body.to_string());
    let key = server.admin("GET", "/admin/keys/1%2C2,3", "").json();
    assert_eq!(key["counters"][0]["remaining"], 4);
    let none = server.admin("GET", "/admin/keys/x", "").json();
    assert_eq!(none["counters"], json!([]));
}
