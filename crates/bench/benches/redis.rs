//! Tallygate's Redis store and its script beside the articles' and the peers: one table, one run.
//!
//! `cargo bench -p tallygate-bench --bench redis -- --help` tells the options.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::float_arithmetic)]

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use tallygate_bench::entry;
use tallygate_bench::figure::Figure;
use tallygate_bench::machine;
use tallygate_bench::options::Options;
use tallygate_bench::redis::client;
use tallygate_bench::redis::concurrency::{self, Flight, Lane, Load};
use tallygate_bench::redis::scenario::Plan;
use tallygate_bench::redis::script;
use tallygate_bench::redis::server::Server;
use tallygate_bench::redis::target;
use tallygate_bench::setting::Setting;
use tallygate_bench::table::Table;
use tokio::runtime::{self, Runtime};

fn main() -> ExitCode {
    entry::run("redis", measure)
}

/// Measures everything in turns and prints the table.
fn measure(options: &Options) -> io::Result<()> {
    let plan = Plan::of(options.size);
    // Before the server takes one of the processors.
    let machine = machine::describe();
    let mut server = Server::start()?;
    let apart = server.keep_apart();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let columns = client::all().into_iter().map(|entry| entry.name);
    let columns = columns.filter(|name| options.wants_contender(name));
    let title = "server CPU, µs a decision, unless said otherwise";
    let mut table = Table::new(title, columns);

    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}: server CPU", plan.rounds);
        on_the_server(&plan, options, &mut server, &mut table);
        eprintln!("round {round} of {}: in flight", plan.rounds);
        in_flight(&plan, options, &mut server, &runtime, &mut table);
    }
    eprintln!("memory");
    in_memory(&plan, options, &mut server, &runtime, &mut table);

    println!("Machine: {machine}.  ");
    let peers = machine::versions(&["redis@1", "limitador@0.6"]);
    println!("Server: {}. Peers: {peers}.  ", server.version());
    println!("Command: `{}`\n", options.command("redis"));
    println!("{table}");
    println!("{NOTES}\n");
    if let Err(error) = apart {
        println!("The server and the client shared their processors: {error}.\n");
    }
    println!("Targets:\n");
    for target in target::targets(&plan, &table) {
        println!("{target}");
    }
    Ok(())
}

const NOTES: &str = "\
In brackets: how many times the first column, the median of each round's. Medians; contenders take \
turns. The server is kept on one processor and the client on another. Server CPU is the process's \
own count of user and system time over the decisions, 64 on their way at once. Contenders without \
batches, or without several limits in one request, send a call for each. A log's decisions come at \
a steady pace, so that half of its limit is in it and each entry that comes finds one that goes. \
INCR and PING limit nobody. Up to there `tallygate` is its script, sent by the same client as the \
others; from there on it is the whole store under a limiter. In flight: tasks of one thread, each waiting for one decision at a time. \
limitador has fixed windows only, needs two round trips, and can be had without RocksDB up to this \
version only. Memory is the sum of MEMORY USAGE over all keys of a user.";

/// One round of what a decision costs the server.
fn on_the_server(plan: &Plan, options: &Options, server: &mut Server, table: &mut Table) {
    for &scenario in &plan.scenarios {
        let row = scenario.to_string();
        if !options.wants_scenario(&row) {
            continue;
        }
        for entry in script::all() {
            let able = entry.can(scenario);
            if able && options.wants_contender(entry.name) {
                table.add(Figure {
                    row: row.clone(),
                    contender: entry.name.to_owned(),
                    value: plan.measure(scenario, &entry, server),
                });
            }
        }
    }
}

/// What is told of many decisions in flight.
const FIGURES: [&str; 5] = [
    concurrency::RATE,
    concurrency::P50,
    concurrency::P99,
    concurrency::SERVER,
    concurrency::CLIENT,
];

/// One round of many decisions in flight.
fn in_flight(
    plan: &Plan,
    options: &Options,
    server: &mut Server,
    runtime: &Runtime,
    table: &mut Table,
) {
    for &flight in &plan.flights {
        let rows = FIGURES.map(|figure| flight.row(figure));
        if !rows.iter().any(|row| options.wants_scenario(row)) {
            continue;
        }
        for entry in client::all() {
            let able = entry.behaviours.contains(&flight.behaviour);
            if !able || !options.wants_contender(entry.name) {
                continue;
            }
            server.forget();
            let setting = Setting::roomy(flight.behaviour, plan.requests.len());
            let lane = (entry.build)(runtime, &server.url(), &setting);
            let values = fly(plan, flight, &*lane, server, runtime, entry.name);
            for (row, value) in rows.iter().zip(values) {
                if options.wants_scenario(row) {
                    table.add(Figure {
                        row: row.clone(),
                        contender: entry.name.to_owned(),
                        value,
                    });
                }
            }
        }
    }
}

/// Gives one contender its turn and tells its [`FIGURES`].
fn fly(
    plan: &Plan,
    flight: Flight,
    lane: &dyn Lane,
    server: &mut Server,
    runtime: &Runtime,
    name: &str,
) -> [f64; FIGURES.len()] {
    let load = |time: Duration| Load {
        in_flight: flight.in_flight,
        time,
    };
    // The counters are to be there already.
    lane.fly(runtime, &plan.requests, load(plan.flight_time / 4));
    let before = server.cpu();
    let flown = lane.fly(runtime, &plan.requests, load(plan.flight_time));
    let cpu = server.cpu() - before;
    let decided = flown.waits.len();
    if flown.admitted != decided {
        let behaviour = flight.behaviour.name();
        eprintln!(
            "{behaviour}: {name} admitted {} of {decided}",
            flown.admitted
        );
    }
    [
        flown.rate() / 1_000.0,
        flown.wait_us(0.5),
        flown.wait_us(0.99),
        cpu.as_secs_f64() * 1e6 / decided as f64,
        flown.cpu.as_secs_f64() * 1e6 / decided as f64,
    ]
}

/// What keys cost the server in memory.
fn in_memory(
    plan: &Plan,
    options: &Options,
    server: &mut Server,
    runtime: &Runtime,
    table: &mut Table,
) {
    for question in &plan.questions {
        let row = question.row();
        if !options.wants_scenario(&row) {
            continue;
        }
        for entry in script::all().into_iter().filter(|entry| entry.limits) {
            let able = entry.behaviours.contains(&question.behaviour);
            if able && options.wants_contender(entry.name) {
                table.add(Figure {
                    row: row.clone(),
                    contender: entry.name.to_owned(),
                    value: match entry.name {
                        script::TALLYGATE => question.answer_of_store(runtime, server),
                        _ => question.answer(&entry, server),
                    },
                });
            }
        }
    }
}
