//! How every bench begins and ends. Knows the arguments; knows nothing of what is measured.

use std::env;
use std::error::Error;
use std::process::ExitCode;

use crate::options::{Options, USAGE};

/// Runs a bench of that name, if `cargo bench` asked for it, and says how it went.
pub fn run<E: Into<Box<dyn Error>>>(
    bench: &str,
    measure: impl FnOnce(&Options) -> Result<(), E>,
) -> ExitCode {
    let options = match Options::from_args(env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if options.help {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    // `cargo test --all-targets` comes by here too and is not to wait for minutes.
    if !options.bench && options.child.is_none() {
        println!("not asked to measure: run `cargo bench -p tallygate-bench --bench {bench}`");
        return ExitCode::SUCCESS;
    }
    match measure(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.into());
            ExitCode::FAILURE
        }
    }
}
