//! The gateway as `--upstream` opens it: the same rules, switches and counts as at the other doors.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::Value;
use tollgate_testkit::poll;

use super::client::{Answer, ask};
use super::{Folder, SOON, Server};

/// A service that answers every request alike, for as long as the test runs.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while let Some(Ok(line)) = lines.next() {
                    if line.is_empty() {
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
                        stream.write_all(answer).unwrap();
                    }
                }
            });
        }
    });
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
    _folder: Folder,
}

impl Gateway {
    fn start() -> Self {
        Gateway::under(RULES)
    }

    fn under(rules: &str) -> Self {
        let folder = Folder::new();
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
        let line: Value = serde_json::from_str(&server.first_line).unwrap();
        let address = line["gateway"].as_str().unwrap().parse().unwrap();
        Gateway {
            server,
            address,
            _folder: folder,
        }
    }

    fn get(&self, user: &str) -> Answer {
        ask(self.address, "GET", "/", &[("x-user", user)], "")
    }
}

#[test]
fn requests_go_through_the_rules_to_the_upstream() {
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
        let series = format!("tollgate_decisions_total{{outcome=\"{outcome}\",rule=\"all\"}}");
        gateway.server.metric(&series).unwrap()
    };
    assert_eq!((counted("admitted"), counted("refused")), (3.0, 1.0));
    let timed = gateway.server.metric("tollgate_decision_seconds_count");
    assert_eq!(timed, Some(4.0));
    let top = gateway.server.admin("GET", "/admin/top", "").json();
    assert_eq!(top["hottest"][0]["count"], 3);
    assert_eq!(top["refused"][0]["count"], 1);
    assert_eq!(top["refused"][0]["key"], top["hottest"][0]["key"]);
}

#[test]
fn who_is_held_back_is_counted_until_they_go_ahead() {
    let gateway = Gateway::under(
        "\
version: 1
rules:
  - name: slow
    key: [{ header: x-user }]
    limits: [leaky-bucket 1/min queue 3]
",
    );
    let depth = || {
        let depth = gateway.server.metric("tollgate_queue_depth{rule=\"slow\"}");
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
    poll::until(SOON, "both to wait", || depth() == 2.0);
    // A client that leaves gives its place up.
    drop(waiting);
    poll::until(SOON, "nobody to wait", || depth() == 0.0);
}

#[test]
fn all_doors_share_counts_and_the_kill_switch() {
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
    server.admin("PUT", "/admin/kill-switch", r#"{"state":"open"}"#);
    assert!((0..5).all(|_| gateway.get("bob").status == 200));
}

#[test]
fn told_to_stop_it_ends_with_the_others() {
    let mut gateway = Gateway::start();
    assert_eq!(gateway.get("ann").status, 200);
    gateway.server.signal("-TERM");
    assert!(gateway.server.ended().success());
}
