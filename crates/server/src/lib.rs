//! Tallygate's command line: `tallygate serve`, `replay`, `explain`, `demo`, `race`, `doctor`,
//! `config`, `completions` and `man`.
//!
//! This crate is the binary `tallygate`; the library exists so that the binary stays a few lines
//! and fuzzers can reach the readers of replay lines and rules files. To limit rates in a program, use the
//! `tallygate` crate.

mod answer;
mod behaviour;
mod cli;
mod command;
#[doc(hidden)]
pub mod config;
mod counters;
#[doc(hidden)]
pub mod door;
mod failure;
mod figures;
mod force;
mod mask;
mod metrics;
mod otlp;
mod place;
#[doc(hidden)]
pub mod rules;
mod scratch;
mod serving;
mod token;
mod top;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

#[doc(hidden)]
pub use command::replay::line;

/// Reads the command line, does what it asks and tells the exit code: 0 done, 1 something outside
/// failed, 2 the input is wrong.
pub fn run() -> ExitCode {
    let cli = cli::Cli::parse();
    match command::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.text() {
                // Where standard error is gone too, the exit code has to do.
                let _ = writeln!(io::stderr().lock(), "tallygate: {text}");
            }
            failure.code()
        }
    }
}
