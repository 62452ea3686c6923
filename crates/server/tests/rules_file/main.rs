//! Rules files as people write them, right and wrong.

// A test that cannot go on may say so by panicking, helpers included.
#![allow(clippy::unwrap_used)]

mod good;
mod include;
mod malformed;
mod warnings;

use tallygate_server::config::{Config, Report, load_bytes};

/// Loads a text in an empty environment.
fn load(text: &str) -> Result<Config, Report> {
    load_bytes("rules.yaml", text.as_bytes(), &|_| None)
}

/// Loads a text that is right.
fn good(text: &str) -> Config {
    load(text).unwrap_or_else(|report| panic!("{report}\n{text}"))
}
