//! How long `tallygate serve` decides without its store after a fault is over.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tallygate_testkit::ports;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::{Sentinel, Server};

use super::contender::Setup;
use super::process::{Cores, Process};

/// Clients that check one key each, with a pause in between.
const CLIENTS: usize = 8;
const PAUSE: Duration = Duration::from_millis(1);
/// How long the clients go on after the fault.
const OBSERVED: Duration = Duration::from_secs(8);
/// A client is served again after so many decisions in a row by the store, about 0.1 s. Later ones without
/// it are missed deadlines on a busy machine, up to seconds later, while the breaker stays closed.
const RECOVERED: usize = 80;
/// How long garbage is sent.
const GARBAGE: Duration = Duration::from_millis(50);

/// A fault that passes.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// All replies are garbage for 50 ms.
    Garbage,
    /// One reply is lost, and the connection stays open.
    LostReply,
    /// The master of a Sentinel deployment hangs. Sentinels consider it down after a second.
    StoppedMaster,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 3] = [Fault::Garbage, Fault::LostReply, Fault::StoppedMaster];

    /// The name of its row.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Garbage => "garbage for 50 ms",
            Fault::LostReply => "one reply lost",
            Fault::StoppedMaster => "Sentinel master stopped, down-after 1 s",
        }
    }
}

/// Returns the time from the fault (from its end, for garbage) to the last decision without the store
/// before all clients are served again.
///
/// # Errors
/// When the server cannot be run or does not answer.
pub fn measure(setup: &Setup, fault: Fault) -> io::Result<Duration> {
    match fault {
        Fault::Garbage | Fault::LostReply => {
            let server = Server::start();
            let proxy = Proxy::to(server.port());
            observe(setup, &proxy.url(), || {
                if let Fault::Garbage = fault {
                    proxy.set(Mode::Garbage);
                    thread::sleep(GARBAGE);
                    proxy.set(Mode::Pass);
                } else {
                    proxy.once("EVALSHA", Mode::BlackHole);
                }
            })
        }
        Fault::StoppedMaster => {
            let group = Sentinel::start();
            observe(setup, &group.url(), || group.master().stop())
        }
    }
}

fn observe(setup: &Setup, store: &str, fault: impl FnOnce()) -> io::Result<Duration> {
    let port = ports::free();
    let mut command = Cores::Any.command(setup.program());
    command.args(["serve", "--store", store]);
    command.args(["--listen", &format!("127.0.0.1:{port}")]);
    command.args(["--admin", &format!("127.0.0.1:{}", ports::free())]);
    let process = Process::listening(command, port)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (healthy, started) = mpsc::channel();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (healthy, stop) = (healthy.clone(), Arc::clone(&stop));
            thread::spawn(move || check_repeatedly(port, client, &healthy, &stop))
        })
        .collect();
    // The store has answered each client once.
    for _ in 0..CLIENTS {
        started.recv().map_err(io::Error::other)?;
    }
    fault();
    let over = Instant::now();
    thread::sleep(OBSERVED);
    stop.store(true, Ordering::Relaxed);
    let mut last = Duration::ZERO;
    for client in clients {
        let decisions = client
            .join()
            .map_err(|_| io::Error::other("a client failed"))??;
        let degraded = last_degraded(&decisions, over);
        let since = degraded.map_or(Duration::ZERO, |at| at.saturating_duration_since(over));
        last = last.max(since);
    }
    drop(process);
    Ok(last)
}

/// When a decision arrived, and whether it was made without the store.
type Arrival = (Instant, bool);

/// The last decision after a fault that was made without the store, before the client is served again.
fn last_degraded(decisions: &[Arrival], fault: Instant) -> Option<Instant> {
    let (mut last, mut in_a_row) = (None, 0);
    for (at, degraded) in decisions.iter().filter(|(at, _)| *at >= fault) {
        if *degraded {
            (last, in_a_row) = (Some(*at), 0);
        } else {
            in_a_row += 1;
        }
        if in_a_row == RECOVERED {
            break;
        }
    }
    last
}

/// Checks a key until stopped, and reports the first decision by the store.
fn check_repeatedly(
    port: u16,
    client: usize,
    healthy: &mpsc::Sender<()>,
    stop: &AtomicBool,
) -> io::Result<Vec<Arrival>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let body = format!(r#"{{"key":"{client}","quota":"token-bucket 1000000/s"}}"#);
    let request = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (mut decisions, mut reported) = (Vec::new(), false);
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(request.as_bytes())?;
        let degraded = read_body(&mut reader)?.contains(r#""degraded":true"#);
        decisions.push((Instant::now(), degraded));
        if !degraded && !reported {
            reported = healthy.send(()).is_ok();
        }
        thread::sleep(PAUSE);
    }
    Ok(decisions)
}

fn read_body(reader: &mut impl BufRead) -> io::Result<String> {
    let mut length = 0;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}
