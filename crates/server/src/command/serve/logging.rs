//! Logs on standard error: text on a terminal, JSON elsewhere.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

const DEFAULT_FILTER: &str = "info";

pub(super) fn init() {
    let filter = EnvFilter::try_from_env("TALLYGATE_LOG");
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER)))
        .with_writer(io::stderr);
    // Fails if a subscriber is installed already, which then stays.
    let _ = match io::stderr().is_terminal() {
        true => subscriber
            .with_ansi(std::env::var_os("NO_COLOR").is_none())
            .try_init(),
        false => subscriber.json().flatten_event(true).try_init(),
    };
}
