//! The events of the live view: content, authorization, the viewer limit, shutdown.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::send;
use super::{Server, TempDir};

/// A client of the event stream.
struct Viewer {
    lines: BufReader<TcpStream>,
    status: u16,
}

impl Viewer {
    fn connect(admin: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(admin).unwrap();
        let timeout = Some(Duration::from_secs(60));
        stream.set_read_timeout(timeout).unwrap();
        let head = format!("GET /live/events HTTP/1.1\r\nhost: {admin}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream);
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        Viewer { lines, status }
    }

    /// The next event; none at the end of the stream.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(event) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(event).unwrap());
            }
        }
    }

    /// The next event that matches.
    fn until(&mut self, matches: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..60 {
            let event = self.next().expect("the stream goes on");
            if matches(&event) {
                return event;
            }
        }
        panic!("no such event within a minute");
    }
}

const RULES: &str = "\
version: 1
rules:
  - name: login
    key: [ip]
    limits: [sliding-window-log 2/h]
  - name: api
    key: [ip]
    tier: { header: x-plan, default: free }
    tiers: { free: [100/h], pro: [1000/h] }
    shadow: true
";

fn rule<'e>(event: &'e Value, name: &str) -> &'e Value {
    let rules = event["rules"].as_array().unwrap();
    rules.iter().find(|rule| rule["name"] == name).unwrap()
}

#[test]
fn events_contain_rules_store_and_top_keys() {
    let folder = TempDir::new();
    let path = folder.write("rules.yaml", RULES);
    let server = Server::start(&["--config", &path]);
    let mut viewer = Viewer::connect(server.admin);
    assert_eq!(viewer.status, 200);
    let first = viewer.next().unwrap();
    assert!(first["t_ms"].as_u64().unwrap() > 1_600_000_000_000);
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
    assert!(first["uptime_s"].as_u64().unwrap() < 3_600);
    // A playground is off with a file.
    assert_eq!(first["playground"], Value::Null);
    let api = server.api;
    let check = format!("curl -i http://{api}/v1/check ");
    assert!(
        first["try"].as_str().unwrap().starts_with(&check),
        "{first}"
    );
    assert_eq!(first["store"]["kind"], "memory");
    assert_eq!(first["store"]["breaker"], "closed");
    assert_eq!(first["store"]["p50_us"], Value::Null);
    assert_eq!(first["store"]["errors"], 0);
    assert_eq!(first["rules_in_force"], 2);
    let login = rule(&first, "login");
    assert_eq!(login["origin"], path);
    assert_eq!(login["limits"], json!(["sliding-window-log 2/h"]));
    assert_eq!(
        (&login["shadow"], &login["enabled"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(login["queue"], 0);
    let none = json!({"admitted": 0, "delayed": 0, "refused": 0, "shadow_refused": 0,
        "degraded_admitted": 0, "degraded_refused": 0});
    assert_eq!(login["total"], none);
    let api = rule(&first, "api");
    assert_eq!(api["shadow"], true);
    assert_eq!(
        api["limits"],
        json!([
            "free: sliding-window-counter 100/h",
            "pro: sliding-window-counter 1000/h"
        ])
    );
    for _ in 0..5 {
        server.check(r#"{"rule":"login","attributes":{"ip":"192.0.2.1"}}"#);
    }
    let after = viewer.until(|event| rule(event, "login")["total"]["refused"] == 3);
    let login = rule(&after, "login");
    assert_eq!(login["total"]["admitted"], 2);
    assert_eq!(after["keys"], 1);
    assert!(after["store"]["p99_us"].as_f64().unwrap() > 0.0, "{after}");
    assert!(
        login["per_second"]["refused"].as_f64().unwrap() > 0.0,
        "{after}"
    );
    let hash = server.admin("GET", "/admin/keys/192.0.2.1", "").json()["key"].clone();
    let top = json!([{"rule": "login", "key": hash, "count": 3}]);
    assert_eq!(after["top"]["refused"], top);
    assert_eq!(after["top"]["hottest"][0]["count"], 5);
    assert!(!after.to_string().contains("192.0.2.1"));
    // Rates fall back to 0, and a new viewer gets the latest event immediately.
    let quiet = |event: &Value| rule(event, "login")["per_second"]["refused"] == 0.0;
    viewer.until(quiet);
    let mut second = Viewer::connect(server.admin);
    assert_eq!(
        rule(&second.next().unwrap(), "login")["total"]["refused"],
        3
    );
}

#[test]
fn keys_of_a_rule_with_several_sources_say_which() {
    let server = Server::start(&[]);
    let mut viewer = Viewer::connect(server.admin);
    for headers in [json!({}), json!({"x-api-key": "192.0.2.1"})] {
        let attributes = json!({"ip": "192.0.2.1", "path": "/api/x", "headers": headers});
        server.check(&json!({"rule": "api", "attributes": attributes}).to_string());
    }
    server.check(r#"{"rule":"login","attributes":{"ip":"192.0.2.1"}}"#);
    let event = viewer.until(|event| event["top"]["hottest"].as_array().unwrap().len() == 3);
    let list = event["top"]["hottest"].as_array().unwrap();
    let source = |rule: &str| -> Vec<&Value> {
        let of_rule = list.iter().filter(|one| one["rule"] == rule);
        of_rule.map(|one| &one["source"]).collect()
    };
    let mut api = source("api");
    api.sort_by_key(|source| source.to_string());
    assert_eq!(api, ["header x-api-key", "ip"]);
    assert_eq!(source("login"), [&Value::Null]);
    // The same text, and yet three counters.
    assert!(
        list.iter().all(|one| one["key"] == list[0]["key"]),
        "{event}"
    );
}

#[test]
fn an_event_has_a_request_to_try() {
    let folder = TempDir::new();
    let path = folder.write("rules.yaml", RULES);
    let upstream = super::upstream::Upstream::text("hello");
    let url = format!("http://{}", upstream.address);
    let args = [
        "--config",
        &path,
        "--upstream",
        &url,
        "--gateway",
        "127.0.0.1:0",
    ];
    let server = Server::start(&[&args[..], &["--playground"]].concat());
    let mut viewer = Viewer::connect(server.admin);
    let first = viewer.next().unwrap();
    let (api, gateway) = (server.api, server.gateway());
    assert_eq!(first["try"], format!("curl -i http://{gateway}/"));
    assert_eq!(first["playground"], format!("http://{api}"));
    // By the rules of the time.
    folder.write(
        "rules.yaml",
        &RULES.replace(
            "  - name: login\n",
            "  - name: login\n    match: { path: /login }\n",
        ),
    );
    viewer.until(|event| event["try"] == format!("curl -i http://{gateway}/login"));
}

#[test]
fn the_page_and_its_files_are_served() {
    let server = Server::start(&[]);
    let page = server.admin("GET", "/live", "");
    assert_eq!(page.status, 200);
    let kind = page.header("content-type").unwrap();
    assert!(kind.starts_with("text/html"), "{kind}");
    let tag = ("if-none-match", page.header("etag").unwrap());
    assert_eq!(send(server.admin, "GET", "/live", &[tag], "").status, 304);
    // Every file that the page references exists.
    let referenced = page
        .body
        .split('"')
        .filter(|text| text.starts_with("/live/"));
    for file in referenced {
        assert_eq!(server.admin("GET", file, "").status, 200, "{file}");
    }
    assert_eq!(server.admin("GET", "/live/style.css", "").status, 200);
    let document = server.admin("GET", "/live/docs/rules.md", "");
    assert_eq!(
        document.header("content-type"),
        Some("text/markdown; charset=utf-8")
    );
    assert!(document.body.starts_with("# "), "{document:?}");
    for wrong in [
        "/live/",
        "/live/nothing.js",
        "/live/../Cargo.toml",
        "/lively",
    ] {
        assert_eq!(
            server.admin("GET", wrong, "").code(),
            "not-found",
            "{wrong}"
        );
    }
    let proxied = ("x-forwarded-for", "192.0.2.1");
    let answer = send(server.admin, "GET", "/live", &[proxied], "");
    assert_eq!(answer.code(), "token-required");
}

#[test]
fn viewers_need_authorization_and_are_limited() {
    let server = Server::start_with_env(&[], &[("TALLYGATE_ADMIN_TOKEN", "0123456789abcdef")]);
    let proxied = ("x-forwarded-for", "192.0.2.1");
    let answer = send(server.admin, "GET", "/live/events", &[proxied], "");
    assert_eq!(answer.code(), "token-required");
    let posted = server.admin("POST", "/live/events", "");
    assert_eq!(posted.code(), "method-not-allowed");
    let viewers: Vec<Viewer> = (0..64).map(|_| Viewer::connect(server.admin)).collect();
    assert!(viewers.iter().all(|viewer| viewer.status == 200));
    let rejected = server.admin("GET", "/live/events", "");
    assert_eq!(rejected.code(), "too-many-viewers");
    drop(viewers);
    let again = tallygate_testkit::poll::first(super::TIMEOUT, || {
        let viewer = Viewer::connect(server.admin);
        (viewer.status == 200).then_some(viewer)
    });
    assert!(again.unwrap().next().is_some());
}

#[test]
fn event_streams_end_at_shutdown_and_do_not_delay_it() {
    let mut server = Server::start(&[]);
    let mut viewer = Viewer::connect(server.admin);
    assert!(viewer.next().is_some());
    // A viewer that never reads.
    let idle = Viewer::connect(server.admin);
    server.signal("-TERM");
    assert!(server.wait().success());
    while viewer.next().is_some() {}
    drop(idle);
}
