//! The binary `tallygate`. Knows only where the library begins.

use std::process::ExitCode;

fn main() -> ExitCode {
    tallygate_server::run()
}
