//! A server's memory is bounded however many keys there are. Apart from other tests: it keeps the
//! machine busy, and they have deadlines.

// A test that cannot go on may say so by panicking, helpers included.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::process::Command;

use serde_json::Value;
use tallygate_testkit::Served;

/// How many keys a batch asks about.
const BATCH: usize = 1_000;

struct Server {
    served: Served,
    api: BufReader<TcpStream>,
}

impl Server {
    fn start() -> Self {
        let served = Served::start(Command::new(env!("CARGO_BIN_EXE_tallygate")).args([
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

    /// Asks once about each key of a range, in batches.
    fn ask(&mut self, keys: Range<usize>) {
        for first in keys.step_by(BATCH) {
            let question = |key| format!(r#"{{"key":"k{key}","quota":"1000000000/day"}}"#);
            let questions: Vec<String> = (first..first + BATCH).map(question).collect();
            let body = format!("[{}]", questions.join(","));
            let head = "POST /v1/check/batch HTTP/1.1\r\nhost: localhost\r\ncontent-length";
            let request = format!("{head}: {}\r\n\r\n{body}", body.len());
            self.api.get_mut().write_all(request.as_bytes()).unwrap();
            let answer = self.answer();
            // Beyond the store's capacity keys share budgets; these are large.
            assert_eq!(answer.matches(r#""status":200"#).count(), BATCH);
        }
    }

    fn answer(&mut self) -> String {
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

    /// The memory in use, in bytes.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.served.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() << 10
    }
}

#[test]
fn more_keys_than_there_is_room_for_take_no_more_memory() {
    let mut server = Server::start();
    // The store has room for 100,000; from there on nothing grows.
    server.ask(0..105_000);
    let first = server.memory();
    server.ask(105_000..150_000);
    let more = server.memory().saturating_sub(first);
    // What an allocator keeps for later is a matter of luck; a key would cost 40 bytes at least.
    assert!(more < 45_000 * 40 / 2, "{more} bytes more than {first}");
}
