//! The check API: the three request forms, responses and headers.

use super::client::{Connection, Response, send};
use super::{JSON, Server, TempDir};
use serde_json::{Value, json};

fn fields(json: &Value) -> Vec<&str> {
    json.as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

const FIELDS: [&str; 9] = [
    "allowed",
    "binding",
    "degraded",
    "delay_us",
    "granted",
    "limit",
    "remaining",
    "reset_after_us",
    "retry_after_us",
];

#[test]
fn a_key_and_a_quota_give_the_fields_of_replay() {
    let server = Server::start(&[]);
    let body = r#"{"key":"ann","quota":"sliding-window-log 2/min","cost":2,"verb":"check"}"#;
    let first = server.check(body);
    assert_eq!(first.status, 200);
    assert_eq!(first.header("content-type"), Some("application/json"));
    let json = first.json();
    assert_eq!(fields(&json), FIELDS);
    assert_eq!(json["allowed"], true);
    assert_eq!(json["granted"], 2);
    assert_eq!(json["limit"], 2);
    assert_eq!(json["remaining"], 0);
    assert_eq!(json["retry_after_us"], Value::Null);
    assert_eq!(json["reset_after_us"], 60_000_000);
    assert_eq!(json["binding"], "sliding-window-log/min");
    assert_eq!(json["degraded"], false);

    let refused = server.check(body);
    assert_eq!(refused.status, 429);
    let json = refused.json();
    assert_eq!(
        (&json["allowed"], &json["granted"]),
        (&json!(false), &json!(0))
    );
    assert!(json["retry_after_us"].as_u64().unwrap() <= 60_000_000);

    let always_200 = server.post("/v1/check?status=200", body);
    assert_eq!(always_200.status, 200);
    assert_eq!(always_200.json()["allowed"], false);
    assert_eq!(always_200.header("retry-after"), Some("60"));
}

#[test]
fn headers_are_those_of_the_binding_limit() {
    let server = Server::start(&[]);
    let body = r#"{"limits":[{"key":"a","quota":"fixed-window 2/day","name":"day"},
                             {"key":"b","quota":"token-bucket 1/h burst 1","name":"burst"}]}"#;
    let first = server.check(body);
    let policy = r#""day";q=2;w=86400, "burst";q=1;w=3600"#;
    assert_eq!(first.header("ratelimit-policy"), Some(policy));
    assert_eq!(first.header("ratelimit"), Some(r#""burst";r=0;t=3600"#));
    assert_eq!(first.header("x-ratelimit-limit"), Some("1"));
    assert_eq!(first.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(first.header("x-ratelimit-reset"), Some("3600"));
    assert_eq!(first.header("retry-after"), None);
    let refused = server.check(body);
    assert_eq!(refused.header("retry-after"), Some("3600"));

    let never = server.check(r#"{"key":"c","quota":"5/min","cost":6}"#);
    assert_eq!(never.status, 429);
    assert_eq!(never.header("retry-after"), None);
    assert_eq!(never.json()["retry_after_us"], Value::Null);
}

#[test]
fn several_limits_are_all_or_nothing() {
    let server = Server::start(&[]);
    let body =
        r#"{"limits":[{"key":"a","quota":"10/h"},{"key":"b","quota":"sliding-window-log 1/h"}]}"#;
    let first = server.check(body).json();
    assert_eq!(first["binding"], "sliding-window-log/h");
    let quotas = first["quotas"].as_array().unwrap();
    assert_eq!(quotas.len(), 2);
    assert_eq!(quotas[0]["quota"], "sliding-window-counter 10/h");
    assert_eq!(quotas[0]["remaining"], 9);
    assert_eq!(quotas[1]["remaining"], 0);
    let refused = server.check(body).json();
    assert_eq!(refused["allowed"], false);
    assert_eq!(refused["quotas"][0]["allowed"], true);
    assert_eq!(refused["quotas"][0]["granted"], 0);
    assert_eq!(refused["quotas"][0]["remaining"], 9);
    assert_eq!(refused["quotas"][1]["allowed"], false);
}

#[test]
fn every_verb_works() {
    let server = Server::start(&[]);
    let send = |verb: &str, cost: u32| {
        let quota = "sliding-window-log 10/h";
        let body = json!({"key": "v", "quota": quota, "verb": verb, "cost": cost});
        let answer = server.check(&body.to_string());
        let json = answer.json();
        let number = |name: &str| json[name].as_u64().unwrap();
        (answer.status, number("granted"), number("remaining"))
    };
    assert_eq!(send("check", 4), (200, 4, 6));
    assert_eq!(send("peek", 7), (429, 0, 6));
    assert_eq!(send("take", 9), (200, 6, 0));
    assert_eq!(send("charge", 5), (200, 5, 0));
    assert_eq!(send("refund", 8), (200, 0, 3));
    assert_eq!(send("reset", 0), (200, 0, 10));
    assert_eq!(send("check", 0), (200, 0, 10));
}

const RULES: &str = "\
version: 1
rules:
  - name: login
    match: { method: POST, path: /login }
    key: [ip]
    limits: [sliding-window-log 2/h]
    deny: [203.0.113.0/24]
    allow: [192.0.2.99]
  - name: tenants
    key: [{ header: x-tenant }]
    on_missing: refuse
    limits: [10/h, fixed-window 3/day]
  - name: shadowed
    key: [ip]
    limits: [sliding-window-log 1/h]
    shadow: true
";

#[test]
fn a_rule_is_checked_by_name_and_attributes() {
    let folder = TempDir::new();
    let server = Server::start(&["--config", &folder.write("rules.yaml", RULES)]);
    let login = |ip: &str| {
        let attributes = json!({"ip": ip, "method": "POST", "path": "/login"});
        server.check(&json!({"rule": "login", "attributes": attributes}).to_string())
    };
    let statuses = |ip| [login(ip).status, login(ip).status, login(ip).status];
    assert_eq!(statuses("192.0.2.1"), [200, 200, 429]);
    // An IPv4-mapped IPv6 address is the same client.
    assert_eq!(login("::ffff:192.0.2.1").status, 429);
    assert_eq!(
        login("192.0.2.2").json()["binding"],
        "login sliding-window-log/h"
    );
    // A named rule need not match.
    let bare = server.check(r#"{"rule":"login","attributes":{"ip":"192.0.2.1"}}"#);
    assert_eq!(bare.status, 429);

    let denied = login("203.0.113.7");
    assert_eq!((denied.status, denied.code().as_str()), (403, "denied"));
    let allowed = login("192.0.2.99").json();
    assert_eq!(allowed["allowed"], true);
    assert_eq!(allowed["limit"], Value::Null);
    assert_eq!(fields(&allowed), FIELDS);

    let tenant = |headers: Value| {
        let body = json!({"rule": "tenants", "attributes": {"headers": headers}});
        server.check(&body.to_string())
    };
    let several = tenant(json!({"X-Tenant": "t1"}));
    assert_eq!(several.json()["quotas"].as_array().unwrap().len(), 2);
    assert_eq!(several.json()["remaining"], 2);
    assert_eq!(tenant(json!({})).code(), "missing-key");
    assert_eq!(
        tenant(json!({"x-tenant": ["a", "b"]})).code(),
        "missing-key"
    );
    let costly = json!({"rule": "tenants", "cost": 2,
                        "attributes": {"headers": {"x-tenant": "t1"}}});
    assert_eq!(server.check(&costly.to_string()).json()["remaining"], 0);
}

#[test]
fn a_shadow_rule_refuses_nothing() {
    let folder = TempDir::new();
    let server = Server::start(&["--config", &folder.write("rules.yaml", RULES)]);
    let send = || server.check(r#"{"rule":"shadowed","attributes":{"ip":"192.0.2.1"}}"#);
    assert_eq!(send().json()["shadow_refused"], false);
    let second = send();
    assert_eq!(second.status, 200);
    assert_eq!(second.json()["allowed"], true);
    assert_eq!(second.json()["shadow_refused"], true);
    let series = "tallygate_decisions_total{outcome=\"shadow_refused\",rule=\"shadowed\"}";
    assert_eq!(server.metric(series), Some(1.0));
}

#[test]
fn a_batch_returns_a_status_per_item_in_order() {
    let server = Server::start(&[]);
    let one = r#"{"key":"a","quota":"sliding-window-log 1/h"}"#;
    let batch = format!(r#"[{one},{one},{{"key":1}},{{"rule":"none"}},5,[]]"#);
    let answer = server.post("/v1/check/batch", &batch);
    assert_eq!(answer.status, 200);
    let json = answer.json();
    let all = json.as_array().unwrap();
    let statuses: Vec<_> = all
        .iter()
        .map(|one| one["status"].as_u64().unwrap())
        .collect();
    assert_eq!(statuses, [200, 429, 400, 404, 400, 400]);
    assert_eq!(all[0]["allowed"], true);
    assert_eq!(all[1]["allowed"], false);
    assert_eq!(all[2]["code"], "bad-field");
    assert_eq!(server.post("/v1/check/batch", "[]").json(), json!([]));
}

#[test]
fn one_connection_serves_many_requests() {
    let server = Server::start(&[]);
    let mut connection = Connection::open(server.api);
    for remaining in (0..50).rev() {
        let body = r#"{"key":"k","quota":"sliding-window-log 50/h"}"#;
        let answer: Response = connection.send("POST", "/v1/check", &[JSON], body).unwrap();
        assert_eq!(answer.json()["remaining"], remaining);
    }
}

#[test]
fn keys_may_be_any_text() {
    let server = Server::start(&[]);
    for key in ["", " ", "{a}", "a:b", "é", "\u{0}", &"x".repeat(60_000)] {
        let body = json!({"key": key, "quota": "sliding-window-log 1/h"}).to_string();
        assert_eq!(server.check(&body).status, 200);
        assert_eq!(server.check(&body).status, 429);
    }
}

#[test]
fn every_path_of_the_openapi_file_exists() {
    let server = Server::start(&[]);
    let file = include_str!("../../../../docs/openapi.yaml");
    let paths = file.lines().filter_map(|line| line.strip_prefix("  /"));
    let paths: Vec<&str> = paths.filter_map(|line| line.strip_suffix(':')).collect();
    assert_eq!(paths.len(), 4);
    for path in paths {
        let answer = send(server.api, "POST", &format!("/{path}"), &[JSON], "");
        assert_ne!(answer.code(), "not-found", "{path}");
    }
}
