//! Requests that a page of another site makes in the name of whoever has it open, and what a server
//! with a token or with rules of its own still does for anybody on the machine.
//!
//! `browser/cross_site.test.mjs` does the same in a real Chromium.

use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Server as Redis;

use super::client::{Connection, Response, send};
use super::floods::connect_from;
use super::refusals::{Port, Refused, Sent};
use super::server::JSON;
use super::*;

/// What a browser says of a request that a page of another site makes.
const FOREIGN: [&[(&str, &str)]; 7] = [
    &[("origin", "https://evil.example")],
    &[("origin", "null")],
    // Other ports and schemes are other sites.
    &[("origin", "http://127.0.0.1:1")],
    &[("origin", "http://localhost")],
    &[("sec-fetch-site", "cross-site")],
    &[("sec-fetch-site", "same-site")],
    &[
        ("sec-fetch-site", "same-origin"),
        ("origin", "https://evil.example"),
    ],
];

const CHARGE: &str = r#"{"key":"victim","quota":"5/h","verb":"charge"}"#;
const STEP: &str = r#"{"clock":"real","steps":[{"card":"c","quota":"5/h"}]}"#;

/// Requests that change something, to the admin port and to the API.
const ADMIN: [(&str, &str, &str); 7] = [
    ("POST", "/admin/kill-switch", r#"{"state":"open"}"#),
    ("PUT", "/admin/kill-switch", r#"{"state":"open"}"#),
    (
        "POST",
        "/admin/overrides",
        r#"{"network":"0.0.0.0/0","deny":true,"seconds":2592000}"#,
    ),
    ("PATCH", "/admin/rules/login", r#"{"shadow":true}"#),
    ("PUT", "/admin/rules/login", r#"{"shadow":true}"#),
    ("DELETE", "/admin/keys/victim?quota=5/h", ""),
    ("DELETE", "/admin/overrides/1", ""),
];
const API: [(&str, &str, &str); 7] = [
    ("POST", "/v1/check", CHARGE),
    ("POST", "/v1/check", r#"{"key":"victim","quota":"5/h"}"#),
    (
        "POST",
        "/v1/check/batch",
        r#"[{"key":"victim","quota":"5/h","verb":"charge"}]"#,
    ),
    ("POST", "/api/play", STEP),
    ("POST", "/api/play/quota", r#"{"quota":"5/h"}"#),
    ("POST", "/api/lab/skew", "{}"),
    ("POST", "/api/rate-limit/fixed-window/burst", ""),
];

/// Types of bodies that a page may send without a preflight, and a second one beside the right one.
const TYPES: [&[&str]; 7] = [
    &[],
    &["text/plain"],
    &["application/x-www-form-urlencoded"],
    &["multipart/form-data; boundary=x"],
    &["text/plain; application/json"],
    &["application/jsonp"],
    &["application/json", "text/plain"],
];

pub(super) fn refused() -> Vec<Refused> {
    let admin = ADMIN.map(|request| (Port::Admin, request));
    let api = API.map(|request| (Port::Api, request));
    let requests = || admin.into_iter().chain(api);
    let token = ("authorization", "Bearer 0123456789abcdef");
    let foreign = FOREIGN.into_iter().flat_map(|foreign| {
        let headers = [foreign, &[JSON, token]].concat();
        requests().map(move |(port, request)| row(port, request, &headers, 403, "foreign-origin"))
    });
    let types = TYPES.into_iter().flat_map(|types| {
        let types = types.iter().map(|kind| ("content-type", *kind));
        let headers: Vec<_> = types.chain([token]).collect();
        let with_body = requests().filter(|(_, (_, _, body))| !body.is_empty());
        with_body
            .map(move |(port, request)| row(port, request, &headers, 415, "wrong-content-type"))
    });
    let charge = (Port::Api, ("POST", "/v1/check", CHARGE));
    let without_token = admin
        .into_iter()
        .chain([charge])
        .map(|(port, request)| row(port, request, &[JSON], 401, "token-required"));
    let stranger = ("x-forwarded-uri", "/login");
    let stranger = ["/v1/auth", "/v1/auth/login"].map(|path| {
        let headers = [stranger, ("x-forwarded-method", "POST")];
        row(
            Port::Api,
            ("POST", path, ""),
            &headers,
            403,
            "untrusted-peer",
        )
    });
    foreign
        .chain(types)
        .chain(without_token)
        .chain(stranger)
        .collect()
}

fn row(
    port: Port,
    (method, path, body): (&str, &str, &str),
    headers: &[(&str, &str)],
    status: u16,
    problem: &'static str,
) -> Refused {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:9\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!(
        "connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    Refused {
        name: format!("{method} {path} {headers:?}"),
        port,
        client: 1,
        sent: Sent::Http1(head.into()),
        status,
        problem,
        closes: false,
    }
}

/// Asserts that nothing was changed since one unit was charged to `victim`.
#[track_caller]
fn assert_unchanged(server: &Server, tried: &str) {
    let get = |path: &str| send(server.admin, "GET", path, &[], "").json();
    assert_eq!(get("/admin/kill-switch")["state"], "off", "{tried}");
    assert_eq!(get("/admin/overrides")["overrides"][0]["id"], 1, "{tried}");
    assert_eq!(get("/admin/rules")["temporary_overrides"], 1, "{tried}");
    assert_eq!(get("/admin/rules/login")["shadow"], false, "{tried}");
    let counter = get("/admin/keys/victim?quota=5/h");
    let mut counters = counter["counters"].as_array().unwrap().iter();
    let counter = counters.find(|one| one["rule"].is_null()).unwrap();
    assert_eq!(counter["remaining"], 4, "{tried}");
}

/// A server on which `victim` was charged once and one override exists.
fn start() -> Server {
    let server = Server::start(&[]);
    assert_eq!(server.check(CHARGE).status, 200);
    let ban = r#"{"network":"192.0.2.9","deny":true,"seconds":600}"#;
    assert_eq!(server.admin("POST", "/admin/overrides", ban).status, 201);
    server
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let server = start();
    for foreign in FOREIGN {
        for (to, requests) in [(server.admin, ADMIN), (server.api, API)] {
            for (method, path, body) in requests {
                let tried = format!("{method} {path} {foreign:?}");
                let headers = [foreign, &[JSON]].concat();
                let answer = send(to, method, path, &headers, body);
                assert_eq!(
                    (answer.status, answer.code().as_str()),
                    (403, "foreign-origin"),
                    "{tried}"
                );
                // No preflight is answered.
                let answer = send(to, "OPTIONS", path, foreign, "");
                assert_eq!(answer.status, 403, "{tried}");
                assert_eq!(answer.header("access-control-allow-origin"), None);
            }
        }
        assert_unchanged(&server, &format!("{foreign:?}"));
    }
}

#[test]
fn a_body_without_a_json_type_changes_nothing() {
    let server = start();
    for types in TYPES {
        for (to, requests) in [(server.admin, ADMIN), (server.api, API)] {
            for (method, path, body) in requests.into_iter().filter(|(_, _, body)| !body.is_empty())
            {
                let tried = format!("{method} {path} {types:?}");
                let headers: Vec<_> = types.iter().map(|kind| ("content-type", *kind)).collect();
                let answer = send(to, method, path, &headers, body);
                assert_eq!(
                    (answer.status, answer.code().as_str()),
                    (415, "wrong-content-type"),
                    "{tried}"
                );
                let detail = answer.json()["detail"].to_string();
                assert!(
                    detail.contains("-H 'content-type: application/json'"),
                    "{detail}"
                );
            }
        }
        assert_unchanged(&server, &format!("{types:?}"));
    }
}

#[test]
fn own_pages_and_programs_are_served() {
    let server = Server::start(&[]);
    let own = format!("http://{}", server.api);
    let localhost = format!("localhost:{}", server.api.port());
    let origin = format!("http://{localhost}");
    for headers in [
        &[][..],
        &[("sec-fetch-site", "same-origin"), ("origin", &*own)],
        &[("sec-fetch-site", "none")],
        &[("origin", &*own)],
        &[("host", &*localhost), ("origin", &*origin)],
        // Default ports may be left out on either side.
        &[
            ("host", "LIMITS.example"),
            ("origin", "http://limits.example"),
        ],
        &[
            ("host", "limits.example:443"),
            ("origin", "https://limits.example"),
        ],
    ] {
        let headers = [
            headers,
            &[("content-type", "application/json; charset=utf-8")],
        ]
        .concat();
        for (method, path, body) in API {
            let body = body.replace(r#","verb":"charge""#, "");
            let answer = send(server.api, method, path, &headers, body);
            assert_eq!(answer.status, 200, "{path} {headers:?}");
        }
        server.admin("DELETE", "/admin/keys/victim?quota=5/h", "");
    }
    // Two hosts: neither is believed.
    let both = [("host", "a"), ("host", "b"), ("origin", "http://a"), JSON];
    let answer = send(server.api, "POST", "/v1/check", &both, CHARGE);
    assert!([400, 403].contains(&answer.status), "{answer:?}");
    // A link on another site may lead to the pages.
    let link = [("sec-fetch-site", "cross-site")];
    for (to, path) in [
        (server.api, "/"),
        (server.api, "/api/play"),
        (server.admin, "/live"),
        (server.admin, "/metrics"),
    ] {
        assert_eq!(send(to, "GET", path, &link, "").status, 200, "{path}");
    }
}

const FORWARD_AUTH: &str = "\
version: 1
trusted_proxies: [127.0.0.1]
rules:
  - { name: login, match: { method: POST, path: /login }, key: [ip], limits: 1/h }
";

#[test]
fn the_gateway_and_forward_auth_pass_requests_between_sites() {
    let target = Target::start(FORWARD_AUTH, Upstream::text("hello"));
    let page = [
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "cross-site"),
        ("content-type", "text/plain"),
        ("x-forwarded-for", "192.0.2.1"),
    ];
    let status = |to, path| send(to, "POST", path, &page, "name=ann").status;
    assert_eq!(status(target.server.gateway(), "/other"), 200);
    // The headers are those of the client's request, whatever site it comes from.
    assert_eq!(status(target.server.api, "/v1/auth/login"), 200);
    assert_eq!(status(target.server.api, "/v1/auth/login"), 429);
    let mut stranger = Connection::over(connect_from(7, target.server.api));
    let answer = stranger.send("POST", "/v1/auth/login", &page, "").unwrap();
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (403, "untrusted-peer")
    );
}

#[test]
fn a_token_that_is_set_is_asked_for_on_loopback_too() {
    let token = "0123456789abcdef";
    let server = Server::start_with_env(&[], &[("TALLYGATE_ADMIN_TOKEN", token)]);
    let bearer = format!("Bearer {token}");
    let wrong = format!("{bearer}0");
    let change = |to, (method, path, body), authorization: &[(&str, &str)]| -> Response {
        send(to, method, path, &[authorization, &[JSON]].concat(), body)
    };
    let verbs = ["charge", "refund", "reset"].map(|verb| CHARGE.replace("charge", verb));
    let changes = verbs
        .iter()
        .map(|body| (server.api, ("POST", "/v1/check", &**body)));
    let changes = changes.chain(ADMIN.map(|change| (server.admin, change)));
    for (to, request) in changes {
        for authorization in [&[][..], &[("authorization", &*wrong)]] {
            let answer = change(to, request, authorization);
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (401, "token-required"),
                "{request:?}"
            );
        }
    }
    let state = || send(server.admin, "GET", "/admin/kill-switch", &[], "").json();
    assert_eq!(state()["state"], "off");
    // Reading from this machine, and checks that anybody may make, need none.
    for path in ["/admin/rules", "/admin/keys/a", "/admin/top", "/live"] {
        assert_eq!(
            send(server.admin, "GET", path, &[], "").status,
            200,
            "{path}"
        );
    }
    assert_eq!(server.check(r#"{"key":"a","quota":"5/h"}"#).status, 200);
    let with_token = [("authorization", &*bearer)];
    let put = ("PUT", "/admin/kill-switch", r#"{"state":"closed"}"#);
    assert_eq!(change(server.admin, put, &with_token).status, 200);
    assert_eq!(state()["state"], "closed");
}

const ONE_RULE: &str = "version: 1\nrules:\n  - { name: all, limits: 1000000/s }\n";

#[test]
fn with_a_rules_file_the_playground_is_off_unless_asked_for() {
    let files = TempDir::new();
    let config = files.write("rules.yaml", ONE_RULE);
    let server = Server::start(&["--config", &config]);
    for (method, path, body) in API
        .into_iter()
        .filter(|(_, path, _)| path.starts_with("/api/"))
    {
        let answer = send(server.api, method, path, &[JSON], body);
        assert_eq!(
            (answer.status, &*answer.code()),
            (404, "not-found"),
            "{path}"
        );
        assert!(answer.body.contains("--playground"), "{answer:?}");
    }
    for path in ["/", "/ui/playground.js", "/api/play"] {
        let answer = send(server.api, "GET", path, &[], "");
        assert_eq!(
            (answer.status, &*answer.code()),
            (404, "not-found"),
            "{path}"
        );
    }
    let asked = Server::start(&["--config", &config, "--playground"]);
    for path in ["/", "/ui/playground.js", "/api/play"] {
        assert_eq!(send(asked.api, "GET", path, &[], "").status, 200, "{path}");
    }
}

#[test]
fn labs_are_limited_by_peer_also_without_a_cookie() {
    let server = Server::start(&[]);
    let run = |connection: &mut Connection| {
        let answer = connection.send("POST", "/api/lab/skew", &[JSON], "{}");
        answer.unwrap().status
    };
    let mut eager = Connection::open(server.api);
    let refused = (0..1_000)
        .map(|_| run(&mut eager))
        .find(|status| *status != 200);
    assert_eq!(refused, Some(429));
    let mut other = Connection::over(connect_from(2, server.api));
    assert_eq!(run(&mut other), 200);
}

#[test]
fn the_playground_has_connections_breakers_and_keys_of_its_own() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let server = Server::start(&["--store", &proxy.url()]);
    let play = || server.post("/api/play", STEP).json();
    poll::until(TIMEOUT, "the playground counts", || {
        play()["reachable"] == true
    });
    let counters = redis.command(&["KEYS", "*{*"]);
    let counters = counters.array().iter().map(|name| name.text());
    let counters: Vec<&str> = counters.collect();
    assert!(!counters.is_empty());
    let own = |name: &&str| name.starts_with("tallygate:1:playground:{");
    assert!(counters.iter().all(own), "{counters:?}");
    // Production has a connection, and then nothing to send on it.
    let check = r#"{"key":"a","quota":"1000/h"}"#;
    poll::until(TIMEOUT, "checks are decided", || {
        server.check(check).json()["degraded"] == false
    });
    proxy.set(Mode::Refuse);
    poll::until(TIMEOUT, "the playground decides without the store", || {
        play()["answers"][0]["degraded"] == true
    });
    let body = format!(
        r#"{{"clock":"real","steps":[{}]}}"#,
        [r#"{"card":"c","quota":"5/h"}"#; 50].join(",")
    );
    let series = "tallygate_store_duration_seconds_count{store=\"redis\"}";
    let before = server.metric(series);
    assert_eq!(server.post("/api/play", &body).status, 200);
    assert_eq!(server.metric(series), before);
    let kinds = ["unreachable", "timeout", "refused"];
    let errors = kinds.map(|kind| format!("tallygate_store_errors_total{{kind=\"{kind}\"}}"));
    assert_eq!(errors.map(|series| server.metric(&series)), [Some(0.0); 3]);
}
