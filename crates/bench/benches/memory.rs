//! Tallygate's memory store compared with its peers.
//!
//! `cargo bench -p tallygate-bench --bench memory -- --help` lists the options.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::float_arithmetic)]

use std::io;
use std::process::ExitCode;

use tallygate_bench::callers::TURNS;
use tallygate_bench::child;
use tallygate_bench::entry;
use tallygate_bench::machine;
use tallygate_bench::measurement::Measurement;
use tallygate_bench::memory::callers;
use tallygate_bench::memory::contender;
use tallygate_bench::memory::scenario::Plan;
use tallygate_bench::memory::target;
use tallygate_bench::options::Options;
use tallygate_bench::table::Table;

fn main() -> ExitCode {
    entry::run("memory", |options| match &options.child {
        Some(task) => run_task(options, task),
        None => measure(options),
    })
}

/// Measures everything, each part in a child process, and prints the table.
fn measure(options: &Options) -> io::Result<()> {
    let plan = Plan::new(options.size);
    let columns = contender::all().into_iter().map(|entry| entry.name);
    let columns = columns.filter(|name| options.selects_contender(name));
    let mut table = Table::new("ns per decision, unless stated otherwise", columns);
    for task in tasks(&plan, options) {
        eprintln!("measuring {}", task.join(" "));
        for measurement in child::measurements(options, &task)? {
            table.add(measurement);
        }
    }

    println!("Machine: {}.  ", machine::describe());
    let peers = ["governor", "throttlecrab", "limitador@0.14", "foldhash"];
    println!("Peers: {}.  ", machine::versions(&peers));
    println!("Command: `{}`\n", options.command("memory"));
    println!("{table}");
    println!("{NOTES}\n");
    println!("Targets:\n");
    for target in target::targets(&plan, &table) {
        println!("{target}");
    }
    Ok(())
}

const NOTES: &str = "\
In brackets: the ratio to the first column. Medians; contenders are interleaved. One thread: CPU \
time; two: wall time divided by the decisions of both. Contenders without batches decide one request \
per call. throttlecrab needs `&mut` and is behind a mutex. limitador has fixed windows only and makes \
25 times fewer decisions. The floor is a hash and one random read-modify-write in a table with a \
cache line of 64 bytes per key; it enforces no limit. While keys expire, governor's worst call is its \
`retain_recent`, which the application must call, and throttlecrab's a check that sweeps; best of \
the runs.";

/// The parts of a run, each the arguments of a child.
fn tasks(plan: &Plan, options: &Options) -> Vec<Vec<String>> {
    let mut tasks = Vec::new();
    for (number, group) in plan.groups.iter().enumerate() {
        let is_selected = |name: String| options.selects_scenario(&name);
        if group
            .iter()
            .any(|scenario| is_selected(scenario.to_string()))
        {
            tasks.push(vec!["decisions".into(), number.to_string()]);
        }
    }
    for (number, scenario) in plan.memory_scenarios.iter().enumerate() {
        if !options.selects_scenario(&scenario.row()) {
            continue;
        }
        for entry in contender::all() {
            if options.selects_contender(entry.name)
                && entry.algorithms.contains(&scenario.algorithm)
            {
                tasks.push(vec!["memory".into(), number.to_string(), entry.name.into()]);
            }
        }
    }
    let mut rows = TURNS.iter().map(callers::row);
    if options.selects_contender(contender::TALLYGATE)
        && rows.any(|row| options.selects_scenario(&row))
    {
        tasks.push(vec!["callers".into()]);
    }
    let rows = [plan.worst_cpu_row(), plan.worst_wall_row()];
    if rows.iter().any(|row| options.selects_scenario(row)) {
        for entry in contender::expiring() {
            if options.selects_contender(entry.name) {
                tasks.push(vec!["expiry".into(), entry.name.into()]);
            }
        }
    }
    tasks
}

/// Runs the task of a child process and prints its measurements.
fn run_task(options: &Options, task: &[String]) -> io::Result<()> {
    let plan = Plan::new(options.size);
    let unknown = || io::Error::other(format!("no task {}", task.join(" ")));
    let task: Vec<&str> = task.iter().map(String::as_str).collect();
    match task[..] {
        ["decisions", group] => {
            let group: usize = group.parse().map_err(io::Error::other)?;
            plan.measure(group, options);
        }
        ["memory", scenario, name] => {
            let scenario: usize = scenario.parse().map_err(io::Error::other)?;
            let scenario = plan.memory_scenarios.get(scenario).ok_or_else(unknown)?;
            let mut entries = contender::all().into_iter();
            let entry = entries.find(|entry| entry.name == name);
            scenario.measure(&entry.ok_or_else(unknown)?)?.print();
        }
        ["callers"] => callers::measure(options, plan.decisions, plan.repetitions),
        ["expiry", name] => {
            let mut entries = contender::expiring().into_iter();
            let entry = entries
                .find(|entry| entry.name == name)
                .ok_or_else(unknown)?;
            let worst = (0..plan.expiry_runs)
                .map(|_| (entry.measure)(plan.expiring))
                .reduce(|one, other| one.min(other))
                .ok_or_else(unknown)?;
            for (row, time) in [
                (plan.worst_cpu_row(), worst.cpu),
                (plan.worst_wall_row(), worst.wall),
            ] {
                Measurement {
                    row,
                    contender: name.to_owned(),
                    value: time.as_nanos() as f64 / 1_000.0,
                }
                .print();
            }
        }
        _ => return Err(unknown()),
    }
    Ok(())
}
