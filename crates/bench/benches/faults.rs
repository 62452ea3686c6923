//! How long a decision takes while the Redis store is broken, against its deadline, and how soon
//! the store is used again: one table, one run.
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

/// The deadline that a limiter has unless told otherwise.
const DEADLINE: Duration = Duration::from_millis(50);
/// How many ask at the same time, and for how long the store is broken.
const CLIENTS: usize = 16;
const BROKEN_FOR: Duration = Duration::from_secs(3);
/// The pause between two questions of one client.
const PAUSE: Duration = Duration::from_millis(1);

/// A way to break a store, and to mend it.
struct Fault {
    name: &'static str,
    breaks: fn(&Server, &Proxy),
    mends: fn(&Server, &Proxy),
}

const FAULTS: [Fault; 7] = [
    Fault {
        name: "nothing",
        breaks: |_, _| {},
        mends: |_, _| {},
    },
    Fault {
        name: "server stopped (SIGSTOP)",
        breaks: |server, _| server.stop(),
        mends: |server, _| server.resume(),
    },
    Fault {
        name: "server killed",
        breaks: |server, _| server.kill(),
        mends: |server, _| server.restart(),
    },
    Fault {
        name: "network cut without a word",
        breaks: |_, proxy| proxy.set(Mode::BlackHole),
        mends: |_, proxy| proxy.set(Mode::Pass),
    },
    Fault {
        name: "connection refused",
        breaks: |_, proxy| proxy.set(Mode::Refuse),
        mends: |_, proxy| proxy.set(Mode::Pass),
    },
    Fault {
        name: "garbage for answers",
        breaks: |_, proxy| proxy.set(Mode::Garbage),
        mends: |_, proxy| proxy.set(Mode::Pass),
    },
    Fault {
        name: "reset after each call",
        breaks: |_, proxy| proxy.set(Mode::ResetAfter),
        mends: |_, proxy| proxy.set(Mode::Pass),
    },
];

fn main() -> ExitCode {
    entry::run("faults", measure_all)
}

fn measure_all(options: &Options) -> Result<(), Box<dyn Error>> {
    println!(
        "Deadline {DEADLINE:?}; {CLIENTS} clients ask for {BROKEN_FOR:?} while it is broken.\n"
    );
    println!(
        "| fault | decisions | degraded | p50 µs | p99 µs | max µs | max / deadline | used again after ms |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    for fault in FAULTS {
        if !options.wants_scenario(fault.name) {
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
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| tokio::spawn(ask(limiter.clone(), client, Arc::clone(&over))))
        .collect();
    tokio::time::sleep(BROKEN_FOR).await;
    over.store(true, Ordering::Relaxed);
    let mut waits = Vec::new();
    let mut degraded = 0;
    for client in clients {
        let (own, without) = client.await?;
        waits.extend(own);
        degraded += without;
    }
    (fault.mends)(&server, &proxy);
    let mended = Instant::now();
    while limiter.decide(&limiter.request("a")).await.degraded() {
        tokio::time::sleep(PAUSE).await;
    }
    let again = mended.elapsed().as_millis();
    waits.sort_unstable();
    let at = |percent: usize| waits[(waits.len() - 1) * percent / 100].as_micros();
    let (all, max) = (waits.len(), at(100));
    println!(
        "| {} | {all} | {degraded} | {} | {} | {max} | {:.2} | {again} |",
        fault.name,
        at(50),
        at(99),
        max as f64 / DEADLINE.as_micros() as f64,
    );
    Ok(())
}

/// Asks until told to stop: how long each answer took, and how many came without the store.
async fn ask(
    limiter: Limiter<RedisStore>,
    client: usize,
    over: Arc<AtomicBool>,
) -> (Vec<Duration>, usize) {
    let key = client.to_string();
    let (mut waits, mut degraded) = (Vec::new(), 0);
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let decision = limiter.decide(&limiter.request(&key)).await;
        waits.push(began.elapsed());
        degraded += usize::from(decision.degraded());
        tokio::time::sleep(PAUSE).await;
    }
    (waits, degraded)
}
