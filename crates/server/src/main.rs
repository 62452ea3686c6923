//! The binary `tollgate`. Knows only where the library begins.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_server::run()
}
