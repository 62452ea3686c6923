//! Fair shares: what greedy and light members of one limit get, with shares and without.
//!
//! `cargo bench -p tallygate-bench --bench shares -- --svg $PWD/docs/images/shares.svg` draws it too: a
//! bench runs in the directory of its crate.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::float_arithmetic)]

use std::fs;
use std::io;
use std::process::ExitCode;

use tallygate_bench::entry;
use tallygate_bench::options::{Options, Size};
use tallygate_bench::shares::run::Quotas;
use tallygate_bench::shares::scenario::SCENARIOS;
use tallygate_bench::shares::{picture, table, target};

fn main() -> ExitCode {
    entry::run("shares", measure)
}

/// Decides the rows and prints the table.
fn measure(options: &Options) -> io::Result<()> {
    let quotas = Quotas::new();
    if let Some(path) = &options.svg {
        let written = fs::write(path, picture::draw(&quotas));
        written.map_err(|e| io::Error::other(format!("cannot write {}: {e}", path.display())))?;
    }
    println!("Quotas: `{}`, `{}`.  ", quotas.without, quotas.shared);
    println!("Command: `{}`\n", options.command("shares"));
    println!("{}", table::HEAD);
    let mut targets = Vec::new();
    let mut worst = Vec::new();
    for scenario in SCENARIOS {
        if !options.selects_scenario(scenario.name) {
            continue;
        }
        eprintln!("deciding {}", scenario.name);
        let seeds = match options.size {
            Size::Quick => 1,
            Size::Usual | Size::Full => scenario.seeds,
        };
        let results = scenario.measure(&quotas, seeds);
        println!("{}", table::line(&scenario, seeds, &results));
        targets.push(target::target(&scenario, &results));
        worst.extend(results.worst_light.map(|worst| (scenario.name, worst)));
    }
    println!("\n{NOTES}\n");
    for (name, worst) in worst {
        println!("- The worst light member of {name}: {worst:.1} %.");
    }
    println!("\nTargets:\n");
    for target in targets {
        println!("{target}");
    }
    Ok(())
}

const NOTES: &str = "\
Light: percent of what light members asked that they got. Used: percent of what the limit allows in \
these seconds, with the burst if they start at 0. Means over the seeds; in brackets the figures of the \
reference model, whose random numbers are others. The core decides at supplied times; every admission \
is also added to a leaky bucket of the limit that is kept apart, and must not overflow. Worst light \
member: of all seeds, among those that asked at least 50 times.";
