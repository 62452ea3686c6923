//! The gateway of `tallygate serve`: rules, kill switch and counters are those of the other ports.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;

use tallygate_testkit::poll;

use super::client::{Response, send};
use super::{Server, TIMEOUT, TempDir, tallygate};

/// Starts a server that answers every request with `hello`.
fn upstream() -> SocketAddr {
    let (address, _, go) = slow_upstream();
    go.store(1, SeqCst);
    address
}

const RULES: &str = "\
version: 1
rules:
  - name: all
    key: [{ header: x-user }]
    limits: [sliding-window-log 2/h]
";

struct Gateway {
    server: Server,
    address: SocketAddr,
    _folder: TempDir,
}

impl Gateway {
    fn start() -> Self {
        Gateway::with_rules(RULES)
    }

    fn with_rules(rules: &str) -> Self {
        let folder = TempDir::new();
        let rules = folder.write("rules.yaml", rules);
        let url = format!("http://{}", upstream());
        let args = [
            "--config",
            &rules,
            "--gateway",
            "127.0.0.1:0",
            "--upstream",
            &url,
        ];
        let server = Server::start(&args);
        let address = server.gateway();
        Gateway {
            server,
            address,
            _folder: folder,
        }
    }

    fn get(&self, user: &str) -> Response {
        send(self.address, "GET", "/", &[("x-user", user)], "")
    }
}

#[test]
fn requests_pass_the_rules_and_reach_the_upstream() {
    let gateway = Gateway::start();
    let first = gateway.get("ann");
    assert_eq!((first.status, first.body.as_str()), (200, "hello"));
    assert_eq!(first.header("x-ratelimit-remaining"), Some("1"));
    assert_eq!(gateway.get("ann").status, 200);
    let refused = gateway.get("ann");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), Some("3600"));
    assert_eq!(gateway.get("bob").status, 200);
    let counted = |outcome: &str| {
        let series = format!("tallygate_decisions_total{{outcome=\"{outcome}\",rule=\"all\"}}");
        gateway.server.metric(&series).unwrap()
    };
    assert_eq!((counted("admitted"), counted("refused")), (3.0, 1.0));
    let timed = gateway
        .server
        .metric("tallygate_decision_duration_seconds_count");
    assert_eq!(timed, Some(4.0));
    let top = gateway.server.admin("GET", "/admin/top", "").json();
    assert_eq!(top["hottest"][0]["count"], 3);
    assert_eq!(top["refused"][0]["count"], 1);
    assert_eq!(top["refused"][0]["key"], top["hottest"][0]["key"]);
}

#[test]
fn delayed_requests_are_counted_until_admitted() {
    let gateway = Gateway::with_rules(
        "\
version: 1
rules:
  - name: slow
    key: [{ header: x-user }]
    limits: [leaky-bucket 1/min queue 3]
",
    );
    let depth = || {
        let depth = gateway
            .server
            .metric("tallygate_queue_depth{rule=\"slow\"}");
        depth.unwrap()
    };
    assert_eq!(gateway.get("ann").status, 200);
    assert_eq!(depth(), 0.0);
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            let head = b"GET / HTTP/1.1\r\nhost: a\r\nx-user: ann\r\n\r\n";
            stream.write_all(head).unwrap();
            stream
        })
        .collect();
    poll::until(TIMEOUT, "both to wait", || depth() == 2.0);
    // A client that disconnects leaves the queue.
    drop(waiting);
    poll::until(TIMEOUT, "an empty queue", || depth() == 0.0);
}

#[test]
fn all_ports_share_counters_and_the_kill_switch() {
    let gateway = Gateway::start();
    let server = &gateway.server;
    let body = r#"{"rule":"all","attributes":{"headers":{"x-user":"ann"}}}"#;
    assert_eq!(server.check(body).status, 200);
    assert_eq!(server.check(body).status, 200);
    assert_eq!(gateway.get("ann").status, 429);
    server.admin("DELETE", "/admin/keys/ann", "");
    assert_eq!(gateway.get("ann").status, 200);
    server.admin("PUT", "/admin/kill-switch", r#"{"state":"closed"}"#);
    assert_eq!(gateway.get("bob").status, 503);
    assert_eq!(server.check(body).status, 503);
    let stopped = r#"tallygate_decisions_total{outcome="refused",rule="(kill-switch)"}"#;
    assert_eq!(server.metric(stopped), Some(2.0));
    assert_eq!(server.metric(stopped), Some(2.0), "reading changes nothing");
    server.admin("PUT", "/admin/kill-switch", r#"{"state":"open"}"#);
    assert!((0..5).all(|_| gateway.get("bob").status == 200));
}

#[test]
fn sigterm_shuts_down_the_gateway_too() {
    let mut gateway = Gateway::start();
    assert_eq!(gateway.get("ann").status, 200);
    gateway.server.signal("-TERM");
    assert!(gateway.server.wait().success());
}

/// Starts a server that counts requests and answers once `go` is set.
fn slow_upstream() -> (SocketAddr, Arc<AtomicU32>, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (received, go) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (count, wait) = (Arc::clone(&received), Arc::clone(&go));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (count, wait) = (Arc::clone(&count), Arc::clone(&wait));
            thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while let Some(Ok(line)) = lines.next() {
                    if line.is_empty() {
                        count.fetch_add(1, SeqCst);
                        poll::first(TIMEOUT, || (wait.load(SeqCst) > 0).then_some(())).unwrap();
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
                        stream.write_all(answer).unwrap();
                    }
                }
            });
        }
    });
    (address, received, go)
}

#[test]
fn arguments_override_the_gateway_section_of_the_rules_file() {
    let folder = TempDir::new();
    let text = format!(
        "version: 1
gateway:
  listen: 127.0.0.1:0
  upstreams: http://{}
  sizes: {{ body_bytes: 10 }}
rules: []
",
        upstream()
    );
    let rules = folder.write("rules.yaml", &text);
    let server = Server::start(&["--config", &rules]);
    let address = server.gateway();
    assert_eq!(send(address, "GET", "/", &[], "").body, "hello");
    let large = send(address, "POST", "/", &[], "more than ten bytes");
    assert_eq!(large.status, 413, "{large:?}");

    // Nothing listens there.
    let nowhere = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let nowhere = format!("http://{nowhere}");
    let server = Server::start(&["--config", &rules, "--upstream", &nowhere]);
    assert_eq!(send(server.gateway(), "GET", "/", &[], "").status, 502);
    // One of two upstreams is up.
    let other = format!("http://{}", upstream());
    let args = [
        "--config",
        &rules,
        "--upstream",
        &nowhere,
        "--upstream",
        &other,
    ];
    let server = Server::start(&args);
    let answers = (0..4).map(|_| send(server.gateway(), "GET", "/", &[], "").status);
    assert!(answers.into_iter().all(|status| status == 200));
}

#[test]
fn identical_requests_share_a_call_with_single_flight() {
    let folder = TempDir::new();
    let (address, received, go) = slow_upstream();
    let text = format!(
        "version: 1
gateway: {{ listen: '127.0.0.1:0', upstreams: 'http://{address}' }}
rules:
  - {{ name: mine, match: {{ path: /mine }}, limits: 1000/s, single_flight: true }}
  - name: tenants
    match: {{ path: /tenants }}
    limits: 1000/s
    single_flight: {{ by: [{{ header: x-tenant }}] }}
"
    );
    let rules = folder.write("rules.yaml", &text);
    // On one thread an admitted request joins its call before anything else runs.
    let server = Server::start_with_env(&["--config", &rules], &[("TOKIO_WORKER_THREADS", "1")]);
    let gateway = server.gateway();
    let ask_later = |path: &'static str, headers: &[(&'static str, &'static str)]| {
        let headers = headers.to_vec();
        thread::spawn(move || send(gateway, "GET", path, &headers, "").status)
    };
    let admitted = |rule: &str| {
        let series = format!("tallygate_decisions_total{{outcome=\"admitted\",rule=\"{rule}\"}}");
        server.metric(&series).unwrap_or(0.0)
    };
    let mut asking = Vec::new();
    // Two identical requests, one with other credentials.
    for cookie in ["a=1", "a=1", "a=2"] {
        asking.push(ask_later("/mine", &[("cookie", cookie)]));
    }
    // Identical whatever the credentials; one of another tenant, two without a tenant.
    for (tenant, cookie) in [("1", "a=1"), ("1", "a=2"), ("2", "a=1")] {
        asking.push(ask_later(
            "/tenants",
            &[("x-tenant", tenant), ("cookie", cookie)],
        ));
    }
    for _ in 0..2 {
        asking.push(ask_later("/tenants", &[]));
    }
    let all = || (admitted("mine") + admitted("tenants") >= 8.0).then_some(());
    poll::first(TIMEOUT, all).unwrap();
    poll::first(TIMEOUT, || (received.load(SeqCst) >= 6).then_some(())).unwrap();
    go.store(1, SeqCst);
    assert!(
        asking
            .into_iter()
            .all(|asking| asking.join().unwrap() == 200)
    );
    assert_eq!(received.load(SeqCst), 2 + 4);
}

#[test]
fn a_gateway_without_an_upstream_or_with_a_bad_certificate_does_not_start() {
    let folder = TempDir::new();
    let nowhere = folder.write("nowhere.yaml", "version: 1\ngateway: {}\nrules: []\n");
    let bad = folder.write("bad.pem", "no certificate");
    let upstream = ["--upstream", "http://127.0.0.1:1"];
    let tls = ["--tls-cert", &bad, "--tls-key", &bad];
    for (args, word) in [
        (
            vec!["--config", &nowhere],
            "neither it nor --upstream names an upstream",
        ),
        (tls.to_vec(), "which needs an --upstream"),
        ([&upstream[..], &tls].concat(), "cannot be used for TLS"),
        (vec!["--upstream", "ftp://a"], "--upstream: "),
        (vec!["--proxy-protocol"], "which needs an --upstream"),
        (
            [&upstream[..], &["--proxy-protocol"]].concat(),
            "trusted_proxies: [10.0.0.0/8]",
        ),
    ] {
        for check in [&["--check"][..], &[]] {
            let output = tallygate(&[&["serve"], &args[..], check].concat())
                .output()
                .unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{stderr}");
            assert!(stderr.contains(word), "{stderr}");
        }
    }
}
