//! Memory is bounded for any number of keys. A test binary of its own: it loads the machine, and
//! other tests have deadlines.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::process::Command;

use serde_json::Value;
use tallygate_testkit::ServerProcess;

const KEYS_PER_BATCH: usize = 1_000;

struct Server {
    served: ServerProcess,
    api: BufReader<TcpStream>,
}

impl Server {
    fn start() -> Self {
        let served = ServerProcess::start(Command::new(env!("CARGO_BIN_EXE_tallygate")).args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ]));
        let addresses: Value = serde_json::from_str(&served.first_line).unwrap();
        let api = TcpStream::connect(addresses["api"].as_str().unwrap()).unwrap();
        Server {
            served,
            api: BufReader::new(api),
        }
    }

    /// Checks each key of a range once, in batches.
    fn check(&mut self, keys: Range<usize>) {
        for first in keys.step_by(KEYS_PER_BATCH) {
            let item = |key| format!(r#"{{"key":"k{key}","quota":"1000000000/day"}}"#);
            let items: Vec<String> = (first..first + KEYS_PER_BATCH).map(item).collect();
            let body = format!("[{}]", items.join(","));
            let head = "POST /v1/check/batch HTTP/1.1\r\nhost: localhost\r\n\
                        content-type: application/json\r\ncontent-length";
            let request = format!("{head}: {}\r\n\r\n{body}", body.len());
            self.api.get_mut().write_all(request.as_bytes()).unwrap();
            let response = self.read_response();
            // Beyond the store's capacity keys share budgets, which are large enough here.
            assert_eq!(response.matches(r#""status":200"#).count(), KEYS_PER_BATCH);
        }
    }

    fn read_response(&mut self) -> String {
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.api.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.api.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }

    fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.served.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() << 10
    }
}

#[test]
fn keys_beyond_the_capacity_take_no_memory() {
    let mut server = Server::start();
    // The store has slots for 100,000 keys.
    server.check(0..105_000);
    let first = server.resident_bytes();
    server.check(105_000..150_000);
    let more = server.resident_bytes().saturating_sub(first);
    // Leaves room for the allocator; a key would cost at least 40 bytes.
    assert!(more < 45_000 * 40 / 2, "{more} bytes more than {first}");
}
