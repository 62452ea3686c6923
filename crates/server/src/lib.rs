//! Tallygate's command line: `tallygate serve`, `replay`, `explain`, `demo`, `race`, `doctor`,
//! `config`, `completions` and `man`.
//!
//! This crate is the binary `tallygate`; the library exists so that the binary stays a few lines
//! and fuzzers can reach the readers of replay lines and rules files. To limit rates in a program, use the
//! `tallygate` crate.

mod active_rules;
mod admin;
mod api;
mod assets;
mod auth;
mod cli;
mod command;
#[doc(hidden)]
pub mod config;
mod describe;
mod error;
mod format;
#[doc(hidden)]
pub mod gateway;
mod listener;
mod malformed;
mod metrics;
mod otlp;
mod playground;
mod problem;
mod redact;
mod response;
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
