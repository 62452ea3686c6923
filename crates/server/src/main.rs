//! The binary `tallygate`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tallygate_server::run()
}
