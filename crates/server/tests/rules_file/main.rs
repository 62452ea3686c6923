//! Valid and invalid rules files.

#![allow(clippy::unwrap_used)]

mod good;
mod include;
mod malformed;
mod warnings;

use tallygate_server::config::{Config, Report, load_bytes};

/// Loads a file without environment variables.
fn load(text: &str) -> Result<Config, Report> {
    load_bytes("rules.yaml", text.as_bytes(), &|_| None)
}

/// Loads a valid file.
fn load_valid(text: &str) -> Config {
    load(text).unwrap_or_else(|report| panic!("{report}\n{text}"))
}
