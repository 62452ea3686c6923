//! Tallygate's Redis store and its script compared with scripts from articles and with peers.
//!
//! `cargo bench -p tallygate-bench --bench redis -- --help` lists the options.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::float_arithmetic)]

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use tallygate_bench::callers::TURNS;
use tallygate_bench::entry;
use tallygate_bench::machine;
use tallygate_bench::measurement::Measurement;
use tallygate_bench::options::Options;
use tallygate_bench::quota_spec::{QuotaSpec, algorithm_name};
use tallygate_bench::redis::callers;
use tallygate_bench::redis::client;
use tallygate_bench::redis::concurrency::{
    self, ConcurrentScenario, DynClient, Keys, Load, Servers, THREADS,
};
use tallygate_bench::redis::scenario::Plan;
use tallygate_bench::redis::script;
use tallygate_bench::redis::server::Server;
use tallygate_bench::redis::target;
use tallygate_bench::table::Table;
use tallygate_testkit::redis::Cluster;
use tokio::runtime::{self, Runtime};

fn main() -> ExitCode {
    entry::run("redis", measure)
}

/// Measures everything, interleaved, and prints the table.
fn measure(options: &Options) -> io::Result<()> {
    let plan = Plan::new(options.size);
    // Before the processes are pinned.
    let machine = machine::describe();
    let threads = runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()?;
    let needs_cluster = plan.concurrent.iter().any(|scenario| {
        let is_selected = |metric| options.selects_scenario(&scenario.row(metric));
        scenario.servers == Servers::Cluster && METRICS.into_iter().any(is_selected)
    });
    let cluster = needs_cluster.then(start_cluster);
    let mut server = Server::start()?;
    let pinned = server.pin();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let clients = Clients {
        runtime: &runtime,
        threads: &threads,
        cluster: cluster.as_ref(),
    };
    let columns = client::all().into_iter().map(|entry| entry.name);
    let columns = columns.chain([client::HASH_TAGS, client::LEASED, client::UNEQUAL]);
    let columns = columns.filter(|name| options.selects_contender(name));
    let title = "server CPU, µs per decision, unless stated otherwise";
    let mut table = Table::new(title, columns);

    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}: server CPU", plan.rounds);
        measure_server_cpu(&plan, options, &mut server, &mut table);
        measure_callers(options, &mut server, &mut table);
        eprintln!("round {round} of {}: in flight", plan.rounds);
        measure_concurrency(&plan, options, &mut server, &clients, &mut table);
    }
    eprintln!("memory");
    measure_memory(&plan, options, &mut server, &runtime, &mut table);

    println!("Machine: {machine}.  ");
    let peers = machine::versions(&["redis@1", "limitador@0.6"]);
    println!("Server: {}. Peers: {peers}.  ", server.version());
    println!("Command: `{}`\n", options.command("redis"));
    println!("{table}");
    println!("{NOTES}\n");
    if let Err(error) = pinned {
        println!("The server and the client shared their CPUs: {error}.\n");
    }
    println!("Targets:\n");
    for target in target::targets(&plan, &table) {
        println!("{target}");
    }
    Ok(())
}

const NOTES: &str = "\
In brackets: the ratio to the first column, as the median over the rounds. Medians; contenders are \
interleaved. Server and client are pinned to different CPUs, except a cluster and several client \
threads. Server CPU is the user and system time \
that the server reports, divided by the decisions, with 64 in flight. Contenders without batches, or \
without several limits per request, send one call for each. Requests to a log arrive at a steady rate \
that fills half of its limit, so that one entry expires for each new one. INCR and PING enforce no \
limit. In the rows of server CPU, `tallygate` is its script, sent by the same client as the others; in \
the rows in flight it is the whole store with a limiter. In flight: tasks of one thread, each waiting \
for one decision at a time. limitador has fixed windows only, needs two round trips, and later \
versions require RocksDB. Memory is the sum of MEMORY USAGE over all counters of a key.";

/// One round of the server's CPU time.
fn measure_server_cpu(plan: &Plan, options: &Options, server: &mut Server, table: &mut Table) {
    for &scenario in &plan.scenarios {
        let row = scenario.to_string();
        if !options.selects_scenario(&row) {
            continue;
        }
        for entry in script::all() {
            let supported = entry.supports(scenario);
            if supported && options.selects_contender(entry.name) {
                table.add(Measurement {
                    row: row.clone(),
                    contender: entry.name.to_owned(),
                    value: plan.measure(scenario, &entry, server),
                });
            }
        }
    }
}

/// One round of the server's CPU time of calls for callers, one at a time.
fn measure_callers(options: &Options, server: &mut Server, table: &mut Table) {
    for turn in TURNS {
        let row = callers::row(&turn);
        if options.selects_scenario(&row) && options.selects_contender(script::TALLYGATE) {
            table.add(Measurement {
                row,
                contender: script::TALLYGATE.to_owned(),
                value: callers::measure(&turn, server, CALLER_TURNS),
            });
        }
    }
}

/// The calls of each kind for callers in one round.
const CALLER_TURNS: usize = 10_000;

/// The metrics of a run with many decisions in flight.
const METRICS: [&str; 5] = [
    concurrency::RATE,
    concurrency::P50,
    concurrency::P99,
    concurrency::SERVER,
    concurrency::CLIENT,
];

/// Where clients run, and the cluster, if it is needed.
struct Clients<'a> {
    runtime: &'a Runtime,
    /// Not pinned.
    threads: &'a Runtime,
    cluster: Option<&'a Cluster>,
}

/// Three masters without replicas, not pinned.
fn start_cluster() -> Cluster {
    let cluster = Cluster::start();
    let masters = cluster.masters();
    let replicas = (0..cluster.nodes().len()).filter(|node| !masters.contains(node));
    replicas.for_each(|node| cluster.node(node).kill());
    cluster
}

/// One round of many decisions in flight.
fn measure_concurrency(
    plan: &Plan,
    options: &Options,
    server: &mut Server,
    clients: &Clients<'_>,
    table: &mut Table,
) {
    for &scenario in &plan.concurrent {
        let rows = METRICS.map(|metric| scenario.row(metric));
        if !rows.iter().any(|row| options.selects_scenario(row)) {
            continue;
        }
        let is_plain = scenario.threads == 1 && scenario.servers == Servers::One;
        // CPU times are those of one server and one thread.
        let rows = if is_plain { &rows[..] } else { &rows[..3] };
        let runtime = match scenario.threads {
            1 => clients.runtime,
            _ => clients.threads,
        };
        let (entries, url) = match (scenario.servers, clients.cluster) {
            (Servers::Cluster, Some(cluster)) => (client::in_cluster(), cluster.url()),
            (Servers::Cluster, None) | (Servers::One, _) => match scenario.keys {
                Keys::Uniform => (client::all(), server.url()),
                Keys::Hot | Keys::Zipf => (client::on_skewed_keys(), server.url()),
            },
        };
        for entry in entries {
            let supported = entry.algorithms.contains(&scenario.algorithm);
            if !supported || !options.selects_contender(entry.name) {
                continue;
            }
            server.flush();
            for master in clients.cluster.into_iter().flat_map(|cluster| {
                let masters = cluster.masters().into_iter();
                masters.map(|master| cluster.node(master))
            }) {
                master.command(&["FLUSHALL"]);
            }
            // Skewed: nearly all requests may be for one key.
            let keys = match scenario.keys {
                Keys::Uniform => plan.requests.len(),
                Keys::Hot | Keys::Zipf => 1,
            };
            let spec = QuotaSpec::unreached(scenario.algorithm, keys);
            let client = (entry.build)(runtime, &url, &spec);
            let values = run(plan, scenario, &*client, server, runtime, entry.name);
            for (row, value) in rows.iter().zip(values) {
                if options.selects_scenario(row) {
                    table.add(Measurement {
                        row: row.clone(),
                        contender: entry.name.to_owned(),
                        value,
                    });
                }
            }
        }
    }
}

/// Measures the [`METRICS`] of one contender.
fn run(
    plan: &Plan,
    scenario: ConcurrentScenario,
    client: &dyn DynClient,
    server: &mut Server,
    runtime: &Runtime,
    name: &str,
) -> [f64; METRICS.len()] {
    let load = |time: Duration| Load {
        in_flight: scenario.in_flight,
        time,
    };
    let requests = plan.requests_of(scenario);
    // Creates the counters.
    let warm_up = match scenario.keys {
        Keys::Uniform => plan.load_time / 4,
        Keys::Hot | Keys::Zipf => plan.skewed_warm_up,
    };
    client.run(runtime, requests, load(warm_up));
    let before = server.cpu();
    let result = client.run(runtime, requests, load(plan.load_time));
    let cpu = server.cpu() - before;
    let decided = result.decided;
    if result.admitted != decided {
        let algorithm = algorithm_name(scenario.algorithm);
        eprintln!(
            "{algorithm}: {name} admitted {} of {decided}",
            result.admitted
        );
    }
    [
        result.rate() / 1_000.0,
        result.latency_us(0.5),
        result.latency_us(0.99),
        cpu.as_secs_f64() * 1e6 / decided as f64,
        result.cpu.as_secs_f64() * 1e6 / decided as f64,
    ]
}

/// The server's memory per key.
fn measure_memory(
    plan: &Plan,
    options: &Options,
    server: &mut Server,
    runtime: &Runtime,
    table: &mut Table,
) {
    for scenario in &plan.memory {
        let row = scenario.row();
        if !options.selects_scenario(&row) {
            continue;
        }
        for entry in script::all()
            .into_iter()
            .filter(|entry| entry.enforces_limit)
        {
            let supported = entry.algorithms.contains(&scenario.algorithm);
            if supported && options.selects_contender(entry.name) {
                table.add(Measurement {
                    row: row.clone(),
                    contender: entry.name.to_owned(),
                    value: match entry.name {
                        script::TALLYGATE => scenario.measure_store(runtime, server),
                        _ => scenario.measure_script(&entry, server),
                    },
                });
            }
        }
    }
}
