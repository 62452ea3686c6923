//! Overload: more requests than this process or the store can decide in time. Limits hold. A program
//! of its own: beside the other tests of `serve`, Redis itself does not run for a quarter of a second.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "support/client.rs"]
mod client;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "support/server.rs"]
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tallygate_testkit::poll;
use tallygate_testkit::redis::Server as Redis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use server::{Server, TIMEOUT, TempDir};

const CONNECTIONS: u64 = 4_000;
const BURST: u64 = 600;

/// Raises the limit on open files, which servers inherit. Returns how many connections fit.
fn max_connections() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let files = limit.maximum.unwrap_or(u64::MAX);
    CONNECTIONS.min(files.saturating_sub(500))
}

/// The number of responses with each status.
#[derive(Debug, Default)]
struct Statuses {
    admitted: AtomicU64,
    refused: AtomicU64,
    unavailable: AtomicU64,
}

impl Statuses {
    fn count(&self, status: u16) {
        let counter = match status {
            200 => &self.admitted,
            429 => &self.refused,
            503 => &self.unavailable,
            other => panic!("unexpected status {other}"),
        };
        counter.fetch_add(1, Relaxed);
    }

    fn total(&self) -> u64 {
        let counters = [&self.admitted, &self.refused, &self.unavailable];
        counters.iter().map(|counter| counter.load(Relaxed)).sum()
    }
}

/// A check of one key.
const HOT_KEY: &str = r#"{"rule":"hot","attributes":{"ip":"192.0.2.1"}}"#;

fn check_request(to: SocketAddr) -> String {
    let length = HOT_KEY.len();
    format!(
        "POST /v1/check HTTP/1.1\r\nhost: {to}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{HOT_KEY}"
    )
}

/// Opens connections, then sends requests over all of them at once, one in flight on each.
fn flood(to: SocketAddr, connections: u64, rounds: u64) -> Statuses {
    let runtime = Runtime::new().unwrap();
    let statuses = Arc::new(Statuses::default());
    // One after the other: more than the accept queue holds would be dropped.
    let connect = || runtime.block_on(TcpStream::connect(to)).unwrap();
    let streams: Vec<TcpStream> = (0..connections).map(|_| connect()).collect();
    let clients = streams.into_iter().map(|mut stream| {
        let statuses = Arc::clone(&statuses);
        runtime.spawn(async move {
            let request = check_request(to);
            for _ in 0..rounds {
                stream.write_all(request.as_bytes()).await.unwrap();
                statuses.count(read_status(&mut stream).await);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        runtime.block_on(client).unwrap();
    }
    Arc::into_inner(statuses).unwrap()
}

/// Reads a response with a content length; returns its status.
async fn read_status(stream: &mut TcpStream) -> u16 {
    let (mut response, mut chunk) = (Vec::new(), [0; 4_096]);
    loop {
        let length = stream.read(&mut chunk).await.unwrap();
        assert!(length > 0, "the connection was closed");
        response.extend(&chunk[..length]);
        let text = String::from_utf8_lossy(&response);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let lengths = head.lines().filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.parse::<usize>().unwrap())
        });
        if body.len() >= lengths.sum() {
            return head.split(' ').nth(1).unwrap().parse().unwrap();
        }
    }
}

fn start(redis: &Redis, policy: &str, cache: &str) -> (TempDir, Server) {
    let folder = TempDir::new();
    let rules = format!(
        "version: 1
store: {{ url: '{}', refusal_cache: {cache} }}
rules:
  - name: hot
    key: ip
    limits: token-bucket 1/d burst {BURST}
    on_failure: {policy}
",
        redis.url()
    );
    let rules = folder.write("rules.yaml", &rules);
    let server = Server::start(&["--config", &rules, "--connections-per-client", "0"]);
    poll::until(TIMEOUT, "ready", || {
        server.admin("GET", "/readyz", "").status == 200
    });
    (folder, server)
}

fn overload_total(server: &Server) -> u64 {
    let answers = ["cached", "local", "closed", "shed"];
    let count = |answer: &str| {
        let series = format!("tallygate_overload_total{{answer=\"{answer}\"}}");
        server.metric(&series).unwrap() as u64
    };
    answers.into_iter().map(count).sum()
}

/// Nobody is admitted beyond the store's bound and one local share, and no breaker opens.
#[track_caller]
fn limits_hold(redis: &Redis, server: &Server, statuses: &Statuses, local_share: u64) {
    let admitted = statuses.admitted.load(Relaxed);
    let overload = overload_total(server);
    assert!(
        admitted <= BURST + local_share,
        "{statuses:?}, {overload} under overload"
    );
    let breaker = format!(
        "tallygate_breaker_state{{server=\"127.0.0.1:{}\"}}",
        redis.port()
    );
    assert_eq!(server.metric(&breaker), Some(0.0), "{statuses:?}");
    let errors = |kind: &str| {
        let series = format!("tallygate_store_errors_total{{kind=\"{kind}\"}}");
        server.metric(&series).unwrap() as u64
    };
    for kind in ["refused", "garbled", "other"] {
        assert_eq!(errors(kind), 0, "{kind}");
    }
    // A loaded machine may really keep Redis itself from running for a quarter of a second.
    let unreachable = errors("unreachable");
    assert!(unreachable <= statuses.total() / 20, "{unreachable}");
}

#[test]
fn a_flood_admits_at_most_the_store_bound_and_the_local_share() {
    let connections = max_connections();
    for (policy, cache, local_share) in [
        ("open", "{}", BURST),
        ("open", "off", BURST),
        ("local", "off", BURST),
        ("closed", "off", 0),
    ] {
        let redis = Redis::start();
        let (_folder, server) = start(&redis, policy, cache);
        let statuses = flood(server.api, connections, 4);
        assert_eq!(statuses.total(), 4 * connections, "{policy} {cache}");
        limits_hold(&redis, &server, &statuses, local_share);
        if policy != "closed" {
            assert_eq!(statuses.unavailable.load(Relaxed), 0, "{policy} {cache}");
        }
    }
}

#[test]
fn a_server_that_is_stopped_for_a_moment_does_not_take_its_store_for_dead() {
    let redis = Redis::start();
    let (_folder, server) = start(&redis, "open", "off");
    let api = server.api;
    let load = std::thread::spawn(move || flood(api, 100, 200));
    for _ in 0..6 {
        server.signal("-STOP");
        // The stall itself, longer than the deadline and than the time after which a server that
        // does not reply counts as silent.
        std::thread::sleep(Duration::from_millis(300));
        server.signal("-CONT");
        std::thread::sleep(Duration::from_millis(50));
    }
    let statuses = load.join().unwrap();
    assert_eq!(statuses.total(), 100 * 200);
    limits_hold(&redis, &server, &statuses, BURST);
}

#[test]
fn clients_that_hang_up_are_not_store_timeouts() {
    let redis = Redis::start();
    let (_folder, server) = start(&redis, "open", "off");
    let runtime = Runtime::new().unwrap();
    let api = server.api;
    runtime.block_on(async move {
        for _ in 0..500 {
            let mut stream = TcpStream::connect(api).await.unwrap();
            stream
                .write_all(check_request(api).as_bytes())
                .await
                .unwrap();
            drop(stream);
        }
    });
    let timeouts = "tallygate_store_errors_total{kind=\"timeout\"}";
    let seconds = "tallygate_store_duration_seconds_count{store=\"redis\"}";
    poll::until(TIMEOUT, "some requests reach the store", || {
        server.metric(seconds) >= Some(1.0)
    });
    assert_eq!(server.check(HOT_KEY).status, 200);
    // A loaded machine may really miss a few deadlines.
    assert!(server.metric(timeouts) < Some(50.0));
}

#[test]
fn invented_keys_of_one_rule_leave_newcomers_of_another_rule_their_own_budgets() {
    let folder = TempDir::new();
    let rules = folder.write(
        "rules.yaml",
        "version: 1
store: { url: memory, keys: 4000 }
rules:
  - { name: api, key: [{ header: x-api-key }], limits: fixed-window 5/366d }
  - { name: login, key: ip, limits: fixed-window 5/366d, keys: 1500 }
",
    );
    let server = Server::start(&["--config", &rules]);
    assert_eq!(server.metric("tallygate_keys_capacity"), Some(4_000.0));
    let check = |rule: &str, attributes: Value| json!({"rule": rule, "attributes": attributes});
    let batch = |checks: Vec<Value>| -> Vec<Value> {
        let answer = server.post("/v1/check/batch", &Value::from(checks).to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json().as_array().unwrap().clone()
    };
    let mut shared = 0;
    for round in 0..10 {
        let invented = (0..1_000).map(|i| {
            let key = format!("invented-{round}-{i}");
            check("api", json!({"headers": {"x-api-key": key}}))
        });
        let answers = batch(invented.collect());
        shared += answers
            .iter()
            .filter(|answer| answer["shared"] == true)
            .count();
    }
    assert!(shared > 5_000, "{shared} of 10,000");
    // Newcomers of the other rule have all of their limit.
    let newcomers = (0..1_000).map(|i| {
        let address = format!("198.51.{}.{}", i / 250, i % 250);
        check("login", json!({"ip": address}))
    });
    for answer in batch(newcomers.collect()) {
        assert_eq!(answer["remaining"], 4, "{answer}");
        assert_eq!(answer.get("shared"), None);
    }
    assert!(server.metric("tallygate_shared_budgets_total") >= Some(5_000.0));
    let warned = || {
        server
            .stderr()
            .matches("part of the memory is full")
            .count()
    };
    poll::until(TIMEOUT, "a warning", || warned() > 0);
    let line = server.stderr();
    let line = line.lines().find(|line| line.contains("is full")).unwrap();
    assert!(line.contains("api"), "{line}");
    assert_eq!(warned(), 1);
}
