//! Which limits the headers of the gateway and of forward-auth tell, by the rule sets that the tower
//! layer runs too.

use super::client::Response;
use super::header_cases::{CASES, Case, NAMES};
use super::upstream::Upstream;
use super::{Server, TempDir, send};

fn start(case: &Case, upstream: &Upstream) -> (TempDir, Server) {
    let folder = TempDir::new();
    let file = format!("version: 1\ntrusted_proxies: [127.0.0.1]\n{}", case.rules);
    let rules = folder.write("rules.yaml", &file);
    let url = upstream.url();
    let server = Server::start(&[
        "--config",
        &rules,
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        &url,
    ]);
    (folder, server)
}

/// The rate limit headers of a response.
fn lines(response: &Response) -> Vec<String> {
    let line = |name| Some(format!("{name}: {}", response.header(name)?));
    NAMES.into_iter().filter_map(line).collect()
}

/// A line without what depends on the time of day.
fn masked(line: &str) -> String {
    match line.split_once(";t=") {
        Some((start, _)) => start.to_owned(),
        None if line.starts_with("retry-after") || line.starts_with("x-ratelimit-reset") => {
            line.split(':').next().unwrap().to_owned()
        }
        None => line.to_owned(),
    }
}

fn assert_headers(case: &Case, server: &Server, what: &str, request: impl Fn() -> Response) {
    let mut response = request();
    for _ in 1..case.requests {
        assert_eq!(response.status, 200, "{what}, {}", case.name);
        response = request();
    }
    assert_eq!(
        response.status,
        case.status,
        "{what}, {}: {}",
        case.name,
        server.stderr()
    );
    let found: Vec<String> = lines(&response).iter().map(|line| masked(line)).collect();
    let expected: Vec<String> = case.headers.iter().map(|line| masked(line)).collect();
    assert_eq!(found, expected, "{what}, {}", case.name);
}

#[test]
fn every_rule_set_has_its_headers_at_the_gateway_and_in_forward_auth() {
    let upstream = Upstream::text("hello");
    for case in CASES {
        let (_folder, server) = start(case, &upstream);
        assert_headers(case, &server, "gateway", || {
            send(server.gateway(), "GET", "/", &[], "")
        });
        let auth = [
            ("x-original-method", "GET"),
            ("x-original-uri", "/"),
            ("x-forwarded-for", "192.0.2.7"),
        ];
        // A rule without a key has counted the requests above.
        let is_fresh = !case.rules.contains("name: all");
        if is_fresh && case.headers.len() > 1 {
            assert_headers(case, &server, "forward-auth", || {
                send(server.api, "GET", "/v1/auth", &auth, "")
            });
        }
    }
}

#[test]
fn a_check_by_rule_has_the_headers_of_the_rule() {
    let folder = TempDir::new();
    let rules = folder.write(
        "rules.yaml",
        "version: 1
rules:
  - { name: client, key: ip, limits: sliding-window-log 10/d }
  - { name: all, limits: sliding-window-log 10/d }
",
    );
    let server = Server::start(&["--config", &rules]);
    let check = |rule: &str| {
        let body = format!(r#"{{"rule":"{rule}","attributes":{{"ip":"192.0.2.1"}}}}"#);
        server.check(&body)
    };
    let client = check("client");
    assert_eq!(
        client.header("ratelimit-policy"),
        Some("\"client\";q=10;w=86400")
    );
    // The body is for the caller: it names the counter, and limits that clients are not told of.
    assert_eq!(client.json()["binding"], "client sliding-window-log/d");
    let all = check("all");
    assert_eq!(lines(&all), [""; 0]);
    assert_eq!(all.json()["binding"], "all sliding-window-log/d");
    assert_eq!(all.json()["remaining"], 9);
    let own = server.check(r#"{"key":"ann","quota":"sliding-window-log 3/h"}"#);
    assert_eq!(
        own.header("ratelimit"),
        Some("\"sliding-window-log/h\";r=2;t=3600")
    );
}

#[test]
fn scripts_of_other_origins_can_read_the_headers_of_the_gateway() {
    let upstream = Upstream::start(|_| {
        b"HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\n\
          access-control-expose-headers: ETag\r\ncontent-length: 0\r\n\r\n"
            .to_vec()
    });
    let (_folder, server) = start(&CASES[0], &upstream);
    let response = send(server.gateway(), "GET", "/", &[], "");
    assert_eq!(
        response.header("access-control-expose-headers"),
        Some(
            "ETag, RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, \
             X-RateLimit-Reset"
        )
    );
}
