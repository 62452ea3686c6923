//! The latency of decisions while the Redis store is broken, compared with the deadline, the time to
//! recovery, and the server's CPU time of undoing requests.
//!
//! `cargo bench -p tallygate-bench --bench faults`
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::float_arithmetic)]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tallygate::store::RefusalCacheSettings;
use tallygate::{Limiter, OnFailure, Quota, RedisStore, Wait};
use tallygate_bench::entry;
use tallygate_bench::gateway::contender::Setup;
use tallygate_bench::gateway::overload::{self, CONNECTIONS};
use tallygate_bench::gateway::recovery;
use tallygate_bench::options::{Options, Size};
use tallygate_bench::redis::{log_undo, server};
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::{Cluster, Server};

/// The default deadline of a limiter.
const DEADLINE: Duration = Duration::from_millis(50);
/// Concurrent clients.
const CLIENTS: usize = 16;
/// The pause between two requests of one client.
const PAUSE: Duration = Duration::from_millis(1);

/// Delays of replies under which shaping is measured, in milliseconds.
const SHAPING_DELAYS_MS: [u64; 3] = [0, 2, 10];
/// Requests a second that the shaping quota passes.
const SHAPING_RATE: u32 = 2_000;
/// Concurrent requests for the shaped key, fewer than the queue holds.
const SHAPING_CLIENTS: usize = 400;

/// How much is measured.
struct Sizes {
    /// How long the store is broken.
    broken_for: Duration,
    /// How long refusals from the cache are measured.
    cache_run: Duration,
    shaping_run: Duration,
    recovery_runs: usize,
    /// Whether a master is stopped, and requests a second.
    dead_masters: &'static [(bool, u32)],
    connections: &'static [usize],
}

impl Sizes {
    fn new(size: Size) -> Self {
        match size {
            Size::Quick => Sizes {
                broken_for: Duration::from_millis(500),
                cache_run: Duration::from_millis(500),
                shaping_run: Duration::from_secs(1),
                recovery_runs: 1,
                dead_masters: &[(true, 500), (false, 5_000)],
                connections: &CONNECTIONS[..1],
            },
            Size::Usual | Size::Full => Sizes {
                broken_for: Duration::from_secs(3),
                cache_run: Duration::from_secs(2),
                shaping_run: Duration::from_secs(4),
                recovery_runs: 5,
                dead_masters: &[(true, 500), (true, 5_000), (false, 500), (false, 5_000)],
                connections: &CONNECTIONS,
            },
        }
    }
}

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
    let sizes = Sizes::new(options.size);
    println!(
        "Deadline {DEADLINE:?}; {CLIENTS} clients send requests for {:?} during the fault.\n",
        sizes.broken_for
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
        runtime.block_on(measure(&fault, &sizes))?;
    }
    if options.selects_scenario("cached refusals") {
        runtime.block_on(measure_cached_refusals(&sizes))?;
    }
    if options.selects_scenario("dead master") {
        runtime.block_on(measure_dead_master(&sizes))?;
    }
    if options.selects_scenario("shaping") {
        println!("\n| shaping, delay of replies | passed/s | asked/s | passed / asked | delayed |");
        println!("|---|---:|---:|---:|---:|");
        for delay_ms in SHAPING_DELAYS_MS {
            eprintln!("measuring shaping, {delay_ms} ms");
            runtime.block_on(measure_shaping(Duration::from_millis(delay_ms), &sizes))?;
        }
    }
    if options.selects_scenario("overload") {
        measure_overload(&sizes)?;
    }
    if options.selects_scenario("recovery") {
        measure_recovery(&sizes)?;
    }
    if options.selects_scenario("log undo") {
        measure_log_undo()?;
    }
    Ok(())
}

fn measure_log_undo() -> Result<(), Box<dyn Error>> {
    let mut server = server::Server::start()?;
    println!(
        "\n| log undo, server CPU µs | check | undo of the newest | undo of the 256th newest |"
    );
    println!("|---:|---:|---:|---:|");
    for entries in log_undo::LENGTHS {
        eprintln!("measuring log undo, {entries} entries");
        let times = log_undo::measure(&mut server, entries);
        let [check, newest, oldest] =
            [times.check, times.newest, times.oldest].map(|time| time.as_secs_f64() * 1e6);
        println!("| {entries} entries | {check:.1} | {newest:.1} | {oldest:.1} |");
    }
    Ok(())
}

/// A third of the requests is for a master that is dead, without a fail-over.
async fn measure_dead_master(sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    const KEYS: [&str; 3] = ["b", "c", "d"];
    println!(
        "\n| one of three masters dead | requests/s | healthy slots decided by the store | \
         p50 of the dead slot, µs |"
    );
    println!("|---|---:|---:|---:|");
    for &(stopped, rate) in sizes.dead_masters {
        let name = if stopped {
            "stopped (SIGSTOP)"
        } else {
            "killed"
        };
        eprintln!("measuring dead master, {name}, {rate} a second");
        let cluster = Cluster::start();
        for node in cluster.nodes() {
            for setting in [
                ["cluster-require-full-coverage", "no"],
                ["cluster-replica-no-failover", "yes"],
            ] {
                node.command(&["CONFIG", "SET", setting[0], setting[1]]);
            }
        }
        let store = RedisStore::connect(&cluster.url()).await?;
        let quota: Quota = "token-bucket 1000000/s burst 1000000".parse()?;
        let limiter = Limiter::with_store(store, quota).on_failure(OnFailure::Open);
        for key in KEYS {
            limiter.decide(&limiter.request(key)).await;
        }
        let dead = cluster.node(cluster.node_for_slot(cluster.key_slot(KEYS[0])));
        if stopped {
            dead.stop();
        } else {
            dead.kill();
        }
        let started = Instant::now();
        let clients = (0..60).map(|client| {
            let (limiter, broken_for) = (limiter.clone(), sizes.broken_for);
            let pause = Duration::from_secs(60) / rate;
            tokio::spawn(async move {
                let mut results = Vec::new();
                let mut ticks = tokio::time::interval(pause);
                while started.elapsed() < broken_for {
                    ticks.tick().await;
                    let before = Instant::now();
                    let decision = limiter.decide(&limiter.request(KEYS[client % 3])).await;
                    results.push((client % 3, decision.degraded(), before.elapsed()));
                }
                results
            })
        });
        let mut all = Vec::new();
        for client in clients.collect::<Vec<_>>() {
            all.extend(client.await?);
        }
        let healthy: Vec<_> = all.iter().filter(|(key, ..)| *key != 0).collect();
        let exact = healthy.iter().filter(|(_, degraded, _)| !degraded).count();
        let dead_part = all.iter().filter(|(key, ..)| *key == 0);
        let mut latencies: Vec<Duration> = dead_part.map(|(.., latency)| *latency).collect();
        latencies.sort_unstable();
        println!(
            "| {name} | {:.0} | {:.2} % | {} |",
            all.len() as f64 / started.elapsed().as_secs_f64(),
            100.0 * exact as f64 / healthy.len() as f64,
            latencies[latencies.len() / 2].as_micros(),
        );
    }
    Ok(())
}

/// Refuses an exhausted key in this process on one thread.
async fn measure_cached_refusals(sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    eprintln!("measuring cached refusals");
    let server = Server::start();
    let builder = RedisStore::builder(&server.url());
    let store = builder.refusal_cache(RefusalCacheSettings::default());
    let store = store.connect().await?;
    let quota: Quota = "token-bucket 1/d burst 1".parse()?;
    let cached = Limiter::with_store(store.clone(), quota);
    let memory = Limiter::new(quota);
    let started = Instant::now();
    let mut rates = [(); 2].map(|()| (0_u64, Duration::ZERO));
    while started.elapsed() < sizes.cache_run {
        // The entry expires once a second.
        cached.decide(&cached.request("a")).await;
        cached.decide(&cached.request("a")).await;
        rates[0] = add(rates[0], || {
            let decision = cached.try_decide(&cached.request("a"));
            decision.is_some_and(|decision| !decision.allowed())
        });
        let _ = memory.check("a");
        rates[1] = add(rates[1], || !memory.check("a").allowed());
    }
    let [cached, memory] = rates.map(|(count, time)| count as f64 / time.as_secs_f64() / 1e6);
    let misses = store.refusal_cache_stats().misses;
    println!("\n| refusals, one thread | million/s | relative to the memory store |");
    println!("|---|---:|---:|");
    println!(
        "| from the cache ({misses} calls to Redis) | {cached:.1} | {:.2} |",
        cached / memory
    );
    println!("| memory store | {memory:.1} | 1 |");
    Ok(())
}

/// Refuses for a tenth of a second, or until a request is not refused.
fn add((mut count, time): (u64, Duration), refuse: impl Fn() -> bool) -> (u64, Duration) {
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(100) {
        for _ in 0..100 {
            if !refuse() {
                return (count, time + started.elapsed());
            }
            count += 1;
        }
    }
    (count, time + started.elapsed())
}

/// Sends requests for one shaped key over a link that delays replies.
async fn measure_shaping(delay: Duration, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = RedisStore::connect(&proxy.url()).await?;
    let quota: Quota = format!("leaky-bucket {SHAPING_RATE}/s queue 500").parse()?;
    let limiter = Limiter::with_store(store, quota).deadline(Duration::from_secs(1));
    if !delay.is_zero() {
        proxy.set(Mode::Delay(delay));
    }
    let started = Instant::now();
    let clients: Vec<_> = (0..SHAPING_CLIENTS)
        .map(|_| tokio::spawn(pass_shaped(limiter.clone(), started + sizes.shaping_run)))
        .collect();
    let (mut passed, mut delayed) = (0_u64, 0_u64);
    for client in clients {
        let (own_passed, own_delayed) = client.await?;
        passed += own_passed;
        delayed += own_delayed;
    }
    let rate = passed as f64 / sizes.shaping_run.as_secs_f64();
    println!(
        "| {delay:?} | {rate:.0} | {SHAPING_RATE} | {:.2} | {:.0} % |",
        rate / f64::from(SHAPING_RATE),
        100.0 * delayed as f64 / passed.max(1) as f64,
    );
    Ok(())
}

/// Sends one request after the other. Returns how many passed before the end, and how many of them
/// the store delayed.
async fn pass_shaped(limiter: Limiter<RedisStore>, end: Instant) -> (u64, u64) {
    let (mut passed, mut delayed) = (0, 0);
    loop {
        let outcome = limiter.admit(&limiter.request("a"), Wait::forever()).await;
        if Instant::now() >= end {
            return (passed, delayed);
        }
        if let Ok(decision) = outcome
            && decision.allowed()
        {
            passed += 1;
            delayed += u64::from(!decision.delay().is_zero());
        }
    }
}

fn measure_overload(sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    let setup = Setup::new()?;
    println!("\n| connections | passed | may pass | passed / may pass | requests/s | p99 ms |");
    println!("|---:|---:|---:|---:|---:|---:|");
    for &connections in sizes.connections {
        eprintln!("measuring overload, {connections} connections");
        let flood = overload::flood(&setup, connections)?;
        println!(
            "| {connections} | {} | {} | {:.2} | {:.0} | {:.0} |",
            flood.passed,
            flood.bound,
            flood.passed as f64 / flood.bound as f64,
            flood.result.rate,
            flood.result.p99_ms,
        );
    }
    Ok(())
}

fn measure_recovery(sizes: &Sizes) -> Result<(), Box<dyn Error>> {
    let setup = Setup::new()?;
    let runs = sizes.recovery_runs;
    println!("\n| recovery of serve, {runs} runs | median ms | max ms |");
    println!("|---|---:|---:|");
    for fault in recovery::Fault::ALL {
        let mut times = Vec::new();
        for run in 1..=runs {
            eprintln!("measuring recovery, {}, run {run}", fault.name());
            times.push(recovery::measure(&setup, fault)?.as_millis());
        }
        times.sort_unstable();
        let (median, max) = (times[runs / 2], times[runs - 1]);
        println!("| {} | {median} | {max} |", fault.name());
    }
    Ok(())
}

async fn measure(fault: &Fault, sizes: &Sizes) -> Result<(), Box<dyn Error>> {
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
    tokio::time::sleep(sizes.broken_for).await;
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
