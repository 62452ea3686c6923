//! The latency of decisions while the Redis store is broken, compared with the deadline, and the
//! time to recovery.
//!
//! `cargo bench -p tallygate-bench --bench faults`
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::float_arithmetic)]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tallygate::{Limiter, Quota, RedisStore};
use tallygate_bench::entry;
use tallygate_bench::options::Options;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Server;

/// The default deadline of a limiter.
const DEADLINE: Duration = Duration::from_millis(50);
/// Concurrent clients.
const CLIENTS: usize = 16;
/// How long the store is broken.
const BROKEN_FOR: Duration = Duration::from_secs(3);
/// The pause between two requests of one client.
const PAUSE: Duration = Duration::from_millis(1);

/// A way to break a store, and to repair it.
struct Fault {
    name: &'static str,
    breaks: fn(&Server, &Proxy),
    repairs: fn(&Server, &Proxy),
}

const FAULTS: [Fault; 7] = [
    Fault {
        name: "none",
        breaks: |_, _| {},
        repairs: |_, _| {},
    },
    Fault {
        name: "server stopped (SIGSTOP)",
        breaks: |server, _| server.stop(),
        repairs: |server, _| server.resume(),
    },
    Fault {
        name: "server killed",
        breaks: |server, _| server.kill(),
        repairs: |server, _| server.restart(),
    },
    Fault {
        name: "network black hole",
        breaks: |_, proxy| proxy.set(Mode::BlackHole),
        repairs: |_, proxy| proxy.set(Mode::Pass),
    },
    Fault {
        name: "connection refused",
        breaks: |_, proxy| proxy.set(Mode::Refuse),
        repairs: |_, proxy| proxy.set(Mode::Pass),
    },
    Fault {
        name: "garbage replies",
        breaks: |_, proxy| proxy.set(Mode::Garbage),
        repairs: |_, proxy| proxy.set(Mode::Pass),
    },
    Fault {
        name: "reset after each call",
        breaks: |_, proxy| proxy.set(Mode::ResetAfter),
        repairs: |_, proxy| proxy.set(Mode::Pass),
    },
];

fn main() -> ExitCode {
    entry::run("faults", measure_all)
}

fn measure_all(options: &Options) -> Result<(), Box<dyn Error>> {
    println!(
        "Deadline {DEADLINE:?}; {CLIENTS} clients send requests for {BROKEN_FOR:?} during the fault.\n"
    );
    println!(
        "| fault | decisions | degraded | p50 µs | p99 µs | max µs | max / deadline | recovery ms |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    for fault in FAULTS {
        if !options.selects_scenario(fault.name) {
            continue;
        }
        eprintln!("measuring {}", fault.name);
        runtime.block_on(measure(&fault))?;
    }
    Ok(())
}

async fn measure(fault: &Fault) -> Result<(), Box<dyn Error>> {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = RedisStore::connect(&proxy.url()).await?;
    let quota: Quota = "token-bucket 1000000/s".parse()?;
    let limiter = Limiter::with_store(store, quota).deadline(DEADLINE);
    (fault.breaks)(&server, &proxy);
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| tokio::spawn(send_requests(limiter.clone(), client, Arc::clone(&stop))))
        .collect();
    tokio::time::sleep(BROKEN_FOR).await;
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    let mut degraded = 0;
    for client in clients {
        let (own, own_degraded) = client.await?;
        latencies.extend(own);
        degraded += own_degraded;
    }
    (fault.repairs)(&server, &proxy);
    let repaired = Instant::now();
    while limiter.decide(&limiter.request("a")).await.degraded() {
        tokio::time::sleep(PAUSE).await;
    }
    let recovery = repaired.elapsed().as_millis();
    latencies.sort_unstable();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100].as_micros();
    let (all, max) = (latencies.len(), at(100));
    println!(
        "| {} | {all} | {degraded} | {} | {} | {max} | {:.2} | {recovery} |",
        fault.name,
        at(50),
        at(99),
        max as f64 / DEADLINE.as_micros() as f64,
    );
    Ok(())
}

/// Sends requests until stopped. Returns the latency of each decision and the number of degraded
/// ones.
async fn send_requests(
    limiter: Limiter<RedisStore>,
    client: usize,
    stop: Arc<AtomicBool>,
) -> (Vec<Duration>, usize) {
    let key = client.to_string();
    let (mut latencies, mut degraded) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let decision = limiter.decide(&limiter.request(&key)).await;
        latencies.push(start.elapsed());
        degraded += usize::from(decision.degraded());
        tokio::time::sleep(PAUSE).await;
    }
    (latencies, degraded)
}
