//! Where log lines go: standard error, as text on a terminal and as JSON elsewhere. Knows nothing
//! of what is logged.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// What is logged unless `TALLYGATE_LOG` says otherwise.
const USUAL: &str = "info";

/// Starts to log. What was started before stays.
pub(super) fn init() {
    let filter = EnvFilter::try_from_env("TALLYGATE_LOG").unwrap_or_else(|_| EnvFilter::new(USUAL));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let _ = match io::stderr().is_terminal() {
        true => lines
            .with_ansi(std::env::var_os("NO_COLOR").is_none())
            .try_init(),
        false => lines.json().flatten_event(true).try_init(),
    };
}
