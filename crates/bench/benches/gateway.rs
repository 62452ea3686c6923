//! The gateway and the check API compared with nginx's `limit_req` and bare hyper, over loopback.
//! Needs nginx and wrk.
//!
//! `cargo bench -p tallygate-bench --bench gateway`
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::process::ExitCode;

use tallygate_bench::entry;
use tallygate_bench::gateway::bare::Bare;
use tallygate_bench::gateway::contender::{Contender, Setup};
use tallygate_bench::gateway::scenario::{METRICS, Scenario};
use tallygate_bench::gateway::target::targets;
use tallygate_bench::gateway::wrk::Load;
use tallygate_bench::machine;
use tallygate_bench::measurement::Measurement;
use tallygate_bench::options::{Options, Size};
use tallygate_bench::table::Table;

fn main() -> ExitCode {
    entry::run("gateway", |options| match &options.child {
        Some(task) => Bare::run(task),
        None => measure(options),
    })
}

fn measure(options: &Options) -> Result<(), Box<dyn Error>> {
    let (rounds, seconds) = match options.size {
        Size::Quick => (1, 2),
        Size::Usual => (5, 3),
        Size::Full => (15, 10),
    };
    let load = Load {
        connections: 32,
        seconds,
    };
    let setup = Setup::new()?;
    let mut table = Table::new("over loopback", Contender::ALL.map(Contender::name));
    for round in 1..=rounds {
        for scenario in Scenario::all() {
            if !options.selects_scenario(&scenario.to_string()) {
                continue;
            }
            eprintln!("round {round} of {rounds}: {scenario}");
            for contender in Contender::ALL {
                if !contender.supports(scenario.workload)
                    || !options.selects_contender(contender.name())
                {
                    continue;
                }
                let values = scenario.measure(contender, &setup, load)?;
                for (metric, value) in METRICS.iter().zip(values) {
                    table.add(Measurement {
                        row: scenario.row(metric),
                        contender: contender.name().to_owned(),
                        value,
                    });
                }
            }
        }
    }
    println!("Machine: {}.  ", machine::describe());
    println!("Peers: {}.  ", machine::versions(&["hyper", "hyper-util"]));
    println!("Command: `{}`\n\n{table}", options.command("gateway"));
    println!("Targets:\n");
    targets(&table)
        .iter()
        .for_each(|target| println!("{target}"));
    Ok(())
}
