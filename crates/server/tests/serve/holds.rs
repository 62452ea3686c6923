//! Gateways over one Redis that are killed, stopped or asked to end while requests are in flight.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;
use tallygate_testkit::poll;
use tallygate_testkit::redis::Server as Redis;

use super::upstream::Upstream;
use super::{Server, TIMEOUT, TempDir, send};

const RULES: &str = "
version: 1
rules:
  - name: streams
    limits: concurrent 1 for 2s
    on_failure: { policy: closed, deadline: 10s }
";

fn start(folder: &TempDir, upstream: &Upstream, redis: &Redis) -> Server {
    let rules = folder.write("rules.yaml", RULES);
    let (store, url) = (redis.url(), upstream.url());
    let server = Server::start(&[
        "--config",
        &rules,
        "--store",
        &store,
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        &url,
    ]);
    poll::until(TIMEOUT, "ready", || {
        server.admin("GET", "/readyz", "").status == 200
    });
    server
}

fn free(server: &Server) -> u64 {
    let body = json!({"rule":"streams","verb":"peek","cost":0,"attributes":{}});
    let answer = server.check(&body.to_string()).json();
    answer["remaining"].as_u64().unwrap()
}

/// A response that has begun and never ends: its first bytes have been read.
fn open_stream(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.gateway()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    let mut first = Vec::new();
    while !first.ends_with(b"hal") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        first.extend(byte);
    }
    assert!(first.starts_with(b"HTTP/1.1 200"));
    stream
}

#[test]
fn what_a_killed_or_stopped_gateway_holds_is_free_after_the_hold_time() {
    let upstream = Upstream::start(|_| "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal".into());
    for signal in ["-KILL", "-STOP", "-TERM"] {
        let (folder, redis) = (TempDir::new(), Redis::start());
        let mut gateway = start(&folder, &upstream, &redis);
        let other = start(&folder, &upstream, &redis);
        let stream = open_stream(&gateway);
        // It renews: the unit is never free meanwhile, longer than a hold time.
        let since = std::time::Instant::now();
        while since.elapsed().as_millis() < 3_000 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(free(&other), 0);
            assert_eq!(send(other.gateway(), "GET", "/", &[], "").status, 429);
        }
        gateway.signal(signal);
        if signal == "-TERM" {
            // Its client ends the stream: the gateway releases before it ends.
            drop(stream);
            assert!(gateway.wait().success());
            assert_eq!(free(&other), 1);
            continue;
        }
        poll::until(TIMEOUT, "the unit is free", || free(&other) == 1);
        let taken = open_stream(&other);
        if signal == "-STOP" {
            // Gone on, it neither takes the unit back nor ends the hold of the other.
            gateway.signal("-CONT");
            drop(stream);
            poll::until(TIMEOUT, "it answers", || free(&gateway) == 0);
            assert_eq!(free(&other), 0);
            drop(taken);
            poll::until(TIMEOUT, "all is released", || free(&gateway) == 1);
        }
    }
}
