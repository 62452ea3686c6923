//! Tallygate's command line: `tallygate serve`, `replay`, `explain`, `demo`, `race`,
//! `simulate`, `doctor`, `config`, `completions` and `man`.
//!
//! The library exists for the binary `tallygate` and for fuzzing the parsers of replay lines and
//! rules files. To limit rates in a program, use the `tallygate` crate.

mod access_log;
mod active_rules;
mod admin;
mod api;
mod assets;
mod auth;
mod budgets;
mod cli;
mod command;
#[doc(hidden)]
pub use tallygate::config;
mod cross_site;
mod describe;
mod endpoints;
mod error;
mod format;
#[doc(hidden)]
pub mod gateway;
mod idle_timeout;
mod listener;
mod malformed;
mod metrics;
mod otlp;
mod partitions;
mod playground;
mod problem;
mod random;
mod redact;
mod response;
mod sample_request;
mod state;
mod store;
mod store_url;
mod temp_store;
mod top_keys;
mod verdict_json;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

#[doc(hidden)]
pub use command::replay::request as replay_request;

/// Runs the command line. Exit codes: 0 success, 1 an external failure, 2 bad input.
pub fn run() -> ExitCode {
    let cli = cli::Cli::parse();
    match command::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.text() {
                // If standard error is closed too, only the exit code is left.
                let _ = writeln!(io::stderr().lock(), "tallygate: {text}");
            }
            failure.code()
        }
    }
}
