//! What open live views cost the server: its CPU time with none and with 50, at rest and while it
//! decides. Here and not with the other benches because it runs the binary itself; it has no peer.
//!
//! `cargo bench -p tallygate-server --bench live [-- SECONDS]`

// Figures for people.
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
/// How many requests a second are decided while it is not at rest.
const RATE: u64 = 1_000;

fn main() {
    let seconds = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    let span = Duration::from_secs(seconds.unwrap_or(20));
    let server = Server::start();
    println!(
        "CPU time of the server over {} s, in percent of one core",
        span.as_secs()
    );
    println!("| | no live view | {VIEWERS} live views | events a view | bytes an event |");
    println!("|---|--:|--:|--:|--:|");
    for (what, rate) in [("at rest", 0), ("1,000 decisions a second", RATE)] {
        let none = server.measure(span, 0, rate);
        let all = server.measure(span, VIEWERS, rate);
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

struct Measured {
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
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = |name: &str| said[name].as_str().unwrap().parse().unwrap();
        Server {
            api: address("api"),
            admin: address("admin"),
            child,
        }
    }

    fn measure(&self, span: Duration, viewers: usize, rate: u64) -> Measured {
        let over = Arc::new(AtomicBool::new(false));
        let figures = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let streams: Vec<TcpStream> = (0..viewers)
            .map(|_| view(self.admin, Arc::clone(&figures)))
            .collect();
        let api = self.api;
        let told = Arc::clone(&over);
        let asking = thread::spawn(move || ask(api, rate, &told));
        // The first second opens connections.
        thread::sleep(Duration::from_secs(1));
        figures.0.store(0, Ordering::Relaxed);
        figures.1.store(0, Ordering::Relaxed);
        let (began, before) = (Instant::now(), self.cpu());
        thread::sleep(span);
        let used = self.cpu() - before;
        let percent = used / began.elapsed().as_secs_f64() * 100.0;
        over.store(true, Ordering::Relaxed);
        asking.join().unwrap();
        for stream in &streams {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        Measured {
            percent,
            events: figures.0.load(Ordering::Relaxed),
            bytes: figures.1.load(Ordering::Relaxed),
        }
    }

    /// CPU seconds so far, user and system, of all threads, to the nanosecond.
    fn cpu(&self) -> f64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of = |thread: fs::DirEntry| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        let all: u64 = threads.filter_map(|thread| of(thread.ok()?)).sum();
        all as f64 / 1e9
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens a view that reads until its connection is shut.
fn view(admin: SocketAddr, figures: Arc<(AtomicU64, AtomicU64)>) -> TcpStream {
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(stream, "GET /live/events HTTP/1.1\r\nhost: {admin}\r\n\r\n").unwrap();
    let kept = stream.try_clone().unwrap();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            if line.starts_with("data: ") {
                figures.0.fetch_add(1, Ordering::Relaxed);
                figures.1.fetch_add(line.len() as u64, Ordering::Relaxed);
            }
        }
    });
    kept
}

/// Asks at an even rate until it is over.
fn ask(api: SocketAddr, rate: u64, over: &AtomicBool) {
    let mut stream = TcpStream::connect(api).unwrap();
    stream.set_nodelay(true).unwrap();
    let began = Instant::now();
    let mut asked = 0;
    let mut answer = [0; 4096];
    while !over.load(Ordering::Relaxed) {
        let due = began.elapsed().as_micros() as u64 * rate / 1_000_000;
        if asked >= due {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let body = format!(r#"{{"key":"k{}","quota":"100/min"}}"#, asked % 100);
        let length = body.len();
        let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\n";
        write!(stream, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
        let read = stream.read(&mut answer).unwrap();
        assert!(read > 0, "the server went away");
        asked += 1;
    }
}
