//! `tallygate completions`: a shell's completion script.

use std::io::Write;

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::error::Failure;

pub(crate) fn run(args: &CompletionsArgs, out: &mut impl Write) -> Result<(), Failure> {
    // The generator panics if a write fails, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tallygate", &mut script);
    out.write_all(&script)
        .and_then(|()| out.flush())
        .map_err(Failure::writing)
}
