//! The commands of the binary.

mod completions;
mod config;
mod demo;
mod doctor;
mod explain;
mod man;
pub(crate) mod race;
pub(crate) mod replay;
mod serve;

use std::io;

use crate::cli::Command;
use crate::error::Failure;

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match command {
        Command::Serve(args) => serve::run(&args, &mut out),
        Command::Replay(args) => replay::run(&args, &mut out),
        Command::Explain(args) => explain::run(&args, &mut out),
        Command::Demo(args) => demo::run(&args, &mut out),
        Command::Race(args) => race::run(&args, &mut out),
        Command::Doctor(args) => doctor::run(&args, &mut out),
        Command::Config(args) => config::run(&args.command, &mut out),
        Command::Completions(args) => completions::run(&args, &mut out),
        Command::Man(args) => man::run(&args, &mut out),
    }
}
