//! Shutdown by signal: requests in flight are answered.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use tallygate_testkit::poll;

use super::client::Connection;
use super::{JSON, Server, TIMEOUT, TempDir};

#[test]
fn sigterm_and_sigint_shut_down_cleanly() {
    for signal in ["-TERM", "-INT"] {
        let mut server = Server::start(&[]);
        let _idle = Connection::open(server.api);
        server.signal(signal);
        assert!(server.wait().success());
        assert!(TcpStream::connect(server.api).is_err());
    }
}

#[test]
fn a_partially_received_request_is_answered_during_shutdown() {
    let mut server = Server::start(&[]);
    let body = r#"{"key":"a","quota":"1/h"}"#;
    let mut connection = Connection::open(server.api);
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{}",
        body.len(),
        &body[..5]
    );
    connection.stream.write_all(head.as_bytes()).unwrap();
    // Once a later request is answered, this one is being read.
    assert_eq!(server.check(r#"{"key":"b","quota":"1/h"}"#).status, 200);
    server.signal("-TERM");
    poll::until(TIMEOUT, "it drains", || {
        server.stderr().contains("draining")
    });
    // Load balancers see that it is not ready.
    let ready = server.admin("GET", "/readyz", "");
    assert_eq!(
        (ready.status, ready.json()["why"].as_str()),
        (503, Some("draining"))
    );
    assert_eq!(server.admin("GET", "/healthz", "").status, 200);
    // The listener closes once its connections are told.
    poll::until(TIMEOUT, "it stops listening", || {
        TcpStream::connect(server.api).is_err()
    });
    connection.stream.write_all(&body.as_bytes()[5..]).unwrap();
    let answer = connection.read().unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(server.wait().success());
}

#[test]
fn a_delayed_request_is_admitted_during_shutdown() {
    let folder = TempDir::new();
    let rules = "version: 1\ntrusted_proxies: [127.0.0.1]\nrules:\n  - name: slow\n    limits: leaky-bucket 2/s queue 5\n";
    let mut server = Server::start(&["--config", &folder.write("rules.yaml", rules)]);
    let headers = [("x-original-method", "GET"), ("x-original-uri", "/")];
    thread::scope(|scope| {
        let send = || {
            let mut connection = Connection::open(server.api);
            connection
                .send("GET", "/v1/auth", &headers, "")
                .map(|answer| answer.status)
        };
        let asking: Vec<_> = (0..3).map(|_| scope.spawn(send)).collect();
        let series = "tallygate_queue_depth{rule=\"slow\"}";
        poll::until(TIMEOUT, "one is delayed", || {
            server.metric(series) >= Some(1.0)
        });
        server.signal("-TERM");
        for one in asking {
            assert_eq!(one.join().unwrap(), Some(200));
        }
    });
    assert!(server.wait().success());
}

#[test]
fn no_accepted_request_is_lost_under_load() {
    let mut server = Server::start(&[]);
    let answered = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    // One connection per request: every accepted one is answered.
                    let Ok(stream) = TcpStream::connect(server.api) else {
                        return;
                    };
                    drop(stream);
                    let connected = std::panic::catch_unwind(|| Connection::open(server.api));
                    let Ok(mut connection) = connected else {
                        return;
                    };
                    let body = r#"{"key":"a","quota":"1000000/h"}"#;
                    match connection.send("POST", "/v1/check", &[JSON], body) {
                        Some(answer) => {
                            assert_eq!(answer.status, 200);
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        // Not accepted: nothing was decided.
                        None => return,
                    }
                }
            });
        }
        poll::until(TIMEOUT, "it is busy", || {
            answered.load(Ordering::Relaxed) > 100
        });
        server.signal("-TERM");
    });
    assert!(server.wait().success());
    poll::until(TIMEOUT, "it is logged", || {
        server.stderr().contains("every request was answered")
    });
}
