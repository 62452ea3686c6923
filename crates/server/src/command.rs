//! The commands of the binary.

pub(crate) mod busiest_period;
pub(crate) mod config;
mod demo;
mod doctor;
mod explain;
pub(crate) mod race;
pub(crate) mod replay;
mod serve;
mod simulate;
mod top;

use std::io::{self, Write};

use clap::CommandFactory;

use crate::cli::{Cli, Command};
use crate::error::Failure;

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let done = match command {
        Command::Serve(args) => serve::run(&args, &mut out),
        Command::Top(args) => top::run(&args, &mut out),
        Command::Replay(args) => replay::run(&args, &mut out),
        Command::Explain(args) => explain::run(&args, &mut out),
        Command::Demo(args) => demo::run(&args, &mut out),
        Command::Race(args) => race::run(&args, &mut out),
        Command::Doctor(args) => doctor::run(&args, &mut out),
        Command::Simulate(args) => simulate::run(&args, &mut out),
        Command::Config { command } => config::run(&command, &mut out),
        Command::Completions { shell } => {
            // The generator panics if a write fails, so it writes to memory.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tallygate", &mut script);
            out.write_all(&script).map_err(Failure::from)
        }
        Command::Man { dir: None } => {
            let page = clap_mangen::Man::new(Cli::command());
            page.render(&mut out).map_err(Failure::from)
        }
        Command::Man { dir: Some(dir) } => {
            let written = clap_mangen::generate_to(Cli::command(), &dir);
            let dir = dir.display();
            written.map_err(|e| Failure::Input(format!("cannot write the pages to {dir}: {e}")))
        }
    };
    done.and(out.flush().map_err(Failure::from))
}
