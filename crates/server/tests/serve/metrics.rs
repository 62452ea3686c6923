//! Metrics: every specified name, label and outcome, and bounded cardinality.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use tallygate_testkit::{poll, ports};

use super::client::send;
use super::upstream::Upstream;
use super::{Server, TIMEOUT, TempDir};

/// All samples by metric family.
fn samples(text: &str) -> BTreeMap<String, Vec<(String, f64)>> {
    let mut types = BTreeMap::new();
    let mut samples: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            types.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            let family =
                base.filter(|name| types.get(*name).is_some_and(|kind| kind == "histogram"));
            let family = family.unwrap_or(name);
            assert!(types.contains_key(family), "no type: {line}");
            let sample = (series.to_owned(), value.parse().unwrap());
            samples.entry(family.to_owned()).or_default().push(sample);
        }
    }
    samples
}

#[test]
fn every_name_label_and_outcome_exists_from_the_start() {
    let server = Server::start(&[]);
    let answer = server.admin("GET", "/metrics", "");
    assert!(
        answer
            .header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    let samples = samples(&answer.body);
    for name in [
        "tallygate_decisions_total",
        "tallygate_near_limit_total",
        "tallygate_decision_duration_seconds",
        "tallygate_store_duration_seconds",
        "tallygate_store_errors_total",
        "tallygate_breaker_state",
        "tallygate_store_evicts",
        "tallygate_overload_total",
        "tallygate_refusal_cache_total",
        "tallygate_leases_total",
        "tallygate_leased_units_total",
        "tallygate_leased_units_outstanding",
        "tallygate_leased_decisions_total",
        "tallygate_queue_depth",
        "tallygate_keys",
        "tallygate_keys_capacity",
        "tallygate_shared_budgets_total",
        "tallygate_reloads_total",
        "tallygate_connections",
        "tallygate_connections_capacity",
        "tallygate_store_queue",
        "tallygate_store_queue_capacity",
        "tallygate_access_log_lines_total",
        "tallygate_build_info",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_threads",
        "process_start_time_seconds",
    ] {
        assert!(samples.contains_key(name), "{name}");
    }
    assert_eq!(samples.len(), 31);
    let has = |family: &str, label: &str| {
        let mut series = samples[family].iter();
        assert!(
            series.any(|(series, _)| series.contains(label)),
            "{family} {label}"
        );
    };
    for outcome in [
        "admitted",
        "delayed",
        "refused",
        "shadow_refused",
        "degraded_admitted",
        "degraded_refused",
    ] {
        has(
            "tallygate_decisions_total",
            &format!("{{outcome=\"{outcome}\",rule=\"login\"}}"),
        );
    }
    has("tallygate_near_limit_total", "{rule=\"login\"}");
    has("tallygate_store_duration_seconds", "store=\"memory\"");
    has("tallygate_queue_depth", "{rule=\"login\"}");
    has("tallygate_reloads_total", "{result=\"ok\"}");
    has("tallygate_reloads_total", "{result=\"error\"}");
    has("tallygate_store_errors_total", "{kind=\"timeout\"}");
    has("tallygate_connections", "{listener=\"admin\"}");
    has("tallygate_build_info", env!("CARGO_PKG_VERSION"));
    for (series, value) in samples
        .iter()
        .filter(|(name, _)| name.starts_with("process_"))
    {
        assert!(value[0].1 > 0.0, "{series} {value:?}");
    }
}

#[test]
fn connections_are_counted_by_listener() {
    let upstream = Upstream::text("hello");
    let url = format!("http://{}", upstream.address);
    let server = Server::start(&["--gateway", "127.0.0.1:0", "--upstream", &url]);
    let series = |name: &str, listener: &str| {
        server.metric(&format!(
            "tallygate_connections{name}{{listener=\"{listener}\"}}"
        ))
    };
    assert_eq!(series("_capacity", "gateway"), Some(16_384.0));
    assert_eq!(series("_capacity", "api"), Some(8_192.0));
    let open = |address| TcpStream::connect(address).unwrap();
    let clients = [
        open(server.gateway()),
        open(server.gateway()),
        open(server.api),
    ];
    poll::until(TIMEOUT, "three connections", || {
        (series("", "gateway"), series("", "api")) == (Some(2.0), Some(1.0))
    });
    drop(clients);
    poll::until(TIMEOUT, "none", || {
        (series("", "gateway"), series("", "api")) == (Some(0.0), Some(0.0))
    });
}

#[test]
fn responses_and_upstreams_of_the_gateway_are_counted() {
    // Answers by path; `/broken` closes the connection, `/short` in the middle of a body.
    let upstream = Upstream::start(|request| {
        let path = request.lines[0].split(' ').nth(1).unwrap();
        let answer = match path {
            "/missing" => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "/fails" => "HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n",
            "/broken" => "this is not HTTP\r\n\r\n",
            "/short" => "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nx\r\n",
            _ => "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        };
        answer.as_bytes().to_vec()
    });
    let folder = TempDir::new();
    let rules =
        "version: 1\nrules:\n  - { name: once, match: { path: /once }, key: ip, limits: 1/h }\n";
    let rules = folder.write("rules.yaml", rules);
    let url = format!("http://{}", upstream.address);
    let args = [
        "--config",
        &rules,
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        &url,
    ];
    let server = Server::start(&args);
    let get = |path: &str| {
        let mut stream = TcpStream::connect(server.gateway()).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    };
    for path in [
        "/", "/once", "/once", "/missing", "/fails", "/broken", "/short",
    ] {
        get(path);
    }
    let counted =
        |name: &str, labels: &str| server.metric(&format!("tallygate_{name}{{{labels}}}"));
    let responses =
        |class: &str| counted("gateway_responses_total", &format!("status=\"{class}\""));
    // Refusals and the gateway's own errors are responses, too.
    poll::until(TIMEOUT, "all responses", || responses("5xx") == Some(2.0));
    assert_eq!([responses("2xx"), responses("4xx")], [Some(3.0), Some(2.0)]);
    assert_eq!(
        [responses("1xx"), responses("none")],
        [Some(0.0), Some(0.0)]
    );
    let name = format!("upstream=\"{}\"", upstream.address);
    let upstreams = |class: &str| {
        // Labels are in the order of their names.
        counted(
            "upstream_responses_total",
            &format!("status=\"{class}\",{name}"),
        )
    };
    let classes = ["2xx", "4xx", "5xx"].map(upstreams);
    assert_eq!(classes, [Some(3.0), Some(1.0), Some(1.0)]);
    let seconds = |end: &str| counted(&format!("upstream_duration_seconds_{end}"), &name);
    assert_eq!(seconds("count"), Some(5.0));
    assert!(seconds("sum") > Some(0.0));
    let errors = |kind: &str| counted("upstream_errors_total", &format!("kind=\"{kind}\",{name}"));
    poll::until(TIMEOUT, "the body that broke off", || {
        errors("body") == Some(1.0)
    });
    let kinds = ["broken", "connect", "timeout", "connect_timeout"].map(errors);
    assert_eq!(kinds, [Some(1.0), Some(0.0), Some(0.0), Some(0.0)]);
    poll::until(TIMEOUT, "no request in flight", || {
        server.metric("tallygate_gateway_in_flight") == Some(0.0)
    });

    // Nothing listens there.
    let dead = format!("127.0.0.1:{}", ports::free());
    let url = format!("http://{dead}");
    let server = Server::start(&["--gateway", "127.0.0.1:0", "--upstream", &url]);
    assert_eq!(send(server.gateway(), "GET", "/", &[], "").status, 502);
    let series = format!("tallygate_upstream_errors_total{{kind=\"connect\",upstream=\"{dead}\"}}");
    assert_eq!(server.metric(&series), Some(1.0));
}

#[test]
fn requests_in_flight_are_counted_until_the_client_leaves() {
    let (sender, waiting) = std::sync::mpsc::channel::<()>();
    let waiting = std::sync::Arc::new(std::sync::Mutex::new(waiting));
    // Never answers.
    let upstream = Upstream::start(move |_| {
        let _ = waiting.lock().unwrap().recv();
        Vec::new()
    });
    let url = format!("http://{}", upstream.address);
    let server = Server::start(&["--gateway", "127.0.0.1:0", "--upstream", &url]);
    let in_flight = || server.metric("tallygate_gateway_in_flight");
    let mut client = TcpStream::connect(server.gateway()).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    poll::until(TIMEOUT, "one in flight", || in_flight() == Some(1.0));
    drop(client);
    poll::until(TIMEOUT, "none in flight", || in_flight() == Some(0.0));
    let unanswered = "tallygate_gateway_responses_total{status=\"none\"}";
    assert_eq!(server.metric(unanswered), Some(1.0));
    drop(sender);
}

#[test]
fn decisions_are_counted_and_keys_are_not_labels() {
    let server = Server::start(&[]);
    let before = server.admin("GET", "/metrics", "").body.lines().count();
    for key in 0..200 {
        let body = format!(
            r#"{{"key":"k{key}","quota":"sliding-window-log {}/h"}}"#,
            key + 1
        );
        assert_eq!(server.check(&body).status, 200);
    }
    for _ in 0..7 {
        server.check(r#"{"rule":"login","attributes":{"ip":"192.0.2.1"}}"#);
    }
    server.check(r#"{"key":"k0","quota":"sliding-window-log 1/h"}"#);
    server.check(r#"{"key":"k0","quota":"sliding-window-log 1/h","verb":"peek"}"#);
    let text = server.admin("GET", "/metrics", "").body;
    assert_eq!(text.lines().count(), before);
    assert!(!text.contains("k0"));
    let counted = |outcome: &str, rule: &str| {
        let series = format!("tallygate_decisions_total{{outcome=\"{outcome}\",rule=\"{rule}\"}}");
        server.metric(&series).unwrap()
    };
    assert_eq!(counted("admitted", "(none)"), 200.0);
    assert_eq!(counted("refused", "(none)"), 1.0);
    assert_eq!(counted("admitted", "login"), 5.0);
    assert_eq!(counted("refused", "login"), 2.0);
    assert_eq!(server.metric("tallygate_keys"), Some(201.0));
    assert_eq!(
        server.metric("tallygate_decision_duration_seconds_count"),
        Some(209.0)
    );
    assert_eq!(
        server.metric("tallygate_store_duration_seconds_count{store=\"memory\"}"),
        Some(209.0)
    );
}

#[test]
fn admitted_requests_that_leave_less_than_a_fifth_are_near_the_limit() {
    let folder = TempDir::new();
    let rules = folder.write(
        "rules.yaml",
        "version: 1
rules:
  - { name: api, key: { header: x-user }, limits: [fixed-window 10/d, fixed-window 1000/h] }
  - { name: shadow, limits: fixed-window 2/d, shadow: true }
",
    );
    let server = Server::start(&["--config", &rules]);
    let near =
        |rule: &str| server.metric(&format!("tallygate_near_limit_total{{rule=\"{rule}\"}}"));
    let body = r#"{"rule":"api","attributes":{"headers":{"x-user":"ann"}}}"#;
    let mut counts = Vec::new();
    for _ in 0..12 {
        server.check(body);
        counts.push(near("api").unwrap());
    }
    // Eight leave 2 or more of 10, two leave less, two are refused.
    assert_eq!(counts[6..], [0.0, 0.0, 1.0, 2.0, 2.0, 2.0]);
    for _ in 0..3 {
        server.check(r#"{"rule":"shadow","attributes":{}}"#);
    }
    assert_eq!(
        near("shadow"),
        Some(0.0),
        "what refuses nobody warns nobody"
    );
}
