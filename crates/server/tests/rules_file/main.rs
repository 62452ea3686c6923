//! Rules files as people write them, right and wrong.

// A test that cannot go on may say so by panicking, helpers included.
#![allow(clippy::unwrap_used)]

mod good;
mod include;
mod malformed;
mod reload;
mod warnings;

use tallygate_server::config::{Loaded, Report, load_text};

/// Loads a text in an empty environment.
fn load(text: &str) -> Result<Loaded, Report> {
    load_text("rules.yaml", text.as_bytes(), &|_| None)
}

/// Loads a text that is right.
fn good(text: &str) -> Loaded {
    load(text).unwrap_or_else(|report| panic!("{report}\n{text}"))
}
