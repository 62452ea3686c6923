//! The entry point that all benches share.

use std::env;
use std::error::Error;
use std::process::ExitCode;

use crate::options::{Options, USAGE};

/// Parses the arguments and runs the bench, if started by `cargo bench`.
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
    // `cargo test --all-targets` runs this program too, and must not take minutes.
    if !options.bench && options.child.is_none() {
        println!("nothing measured: run `cargo bench -p tallygate-bench --bench {bench}`");
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
