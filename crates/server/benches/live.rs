//! CPU time of the server without and with 50 live views, idle and under load. Not in the bench
//! crate, because it runs the binary.
//!
//! `cargo bench -p tallygate-server --bench live [-- SECONDS]`

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::float_arithmetic)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const VIEWERS: usize = 50;
const REQUESTS_PER_SECOND: u64 = 1_000;

fn main() {
    let seconds = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    let duration = Duration::from_secs(seconds.unwrap_or(20));
    let server = Server::start();
    println!(
        "CPU time of the server over {} s, in percent of one core",
        duration.as_secs()
    );
    println!("| | no live view | {VIEWERS} live views | events per view | bytes per event |");
    println!("|---|--:|--:|--:|--:|");
    for (what, rate) in [
        ("idle", 0),
        ("1,000 decisions per second", REQUESTS_PER_SECOND),
    ] {
        let none = server.measure(duration, 0, rate);
        let all = server.measure(duration, VIEWERS, rate);
        println!(
            "| {what} | {:.2} % | {:.2} % | {} | {} |",
            none.percent,
            all.percent,
            all.events / VIEWERS as u64,
            all.bytes / all.events.max(1),
        );
    }
}

struct Server {
    child: Child,
    api: SocketAddr,
    admin: SocketAddr,
}

struct Measurement {
    percent: f64,
    events: u64,
    bytes: u64,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tallygate"))
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let addresses: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = |name: &str| addresses[name].as_str().unwrap().parse().unwrap();
        Server {
            api: address("api"),
            admin: address("admin"),
            child,
        }
    }

    fn measure(&self, duration: Duration, viewers: usize, rate: u64) -> Measurement {
        let stop = Arc::new(AtomicBool::new(false));
        let counters = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let streams: Vec<TcpStream> = (0..viewers)
            .map(|_| view(self.admin, Arc::clone(&counters)))
            .collect();
        let api = self.api;
        let stopped = Arc::clone(&stop);
        let load = thread::spawn(move || send_requests(api, rate, &stopped));
        // The first second opens connections and is not measured.
        thread::sleep(Duration::from_secs(1));
        counters.0.store(0, Ordering::Relaxed);
        counters.1.store(0, Ordering::Relaxed);
        let (started, before) = (Instant::now(), self.cpu_seconds());
        thread::sleep(duration);
        let used = self.cpu_seconds() - before;
        let percent = used / started.elapsed().as_secs_f64() * 100.0;
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap();
        for stream in &streams {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        Measurement {
            percent,
            events: counters.0.load(Ordering::Relaxed),
            bytes: counters.1.load(Ordering::Relaxed),
        }
    }

    /// CPU seconds of all threads so far.
    fn cpu_seconds(&self) -> f64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let nanos = |thread: fs::DirEntry| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        let all: u64 = threads.filter_map(|thread| nanos(thread.ok()?)).sum();
        all as f64 / 1e9
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens a view that reads until the connection is shut down.
fn view(admin: SocketAddr, counters: Arc<(AtomicU64, AtomicU64)>) -> TcpStream {
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(stream, "GET /live/events HTTP/1.1\r\nhost: {admin}\r\n\r\n").unwrap();
    let handle = stream.try_clone().unwrap();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            if line.starts_with("data: ") {
                counters.0.fetch_add(1, Ordering::Relaxed);
                counters.1.fetch_add(line.len() as u64, Ordering::Relaxed);
            }
        }
    });
    handle
}

/// Sends requests at a constant rate until stopped.
fn send_requests(api: SocketAddr, rate: u64, stop: &AtomicBool) {
    let mut stream = TcpStream::connect(api).unwrap();
    stream.set_nodelay(true).unwrap();
    let started = Instant::now();
    let mut sent = 0;
    let mut response = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        let due = started.elapsed().as_micros() as u64 * rate / 1_000_000;
        if sent >= due {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let body = format!(r#"{{"key":"k{}","quota":"100/min"}}"#, sent % 100);
        let length = body.len();
        let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\n\
                    content-type: application/json\r\n";
        write!(stream, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
        let read = stream.read(&mut response).unwrap();
        assert!(read > 0, "the server closed the connection");
        sent += 1;
    }
}
