//! `tallygate man`: the manual pages.

use std::io::Write;

use clap::CommandFactory;

use crate::cli::{Cli, ManArgs};
use crate::error::Failure;

pub(crate) fn run(args: &ManArgs, out: &mut impl Write) -> Result<(), Failure> {
    match &args.dir {
        Some(dir) => clap_mangen::generate_to(Cli::command(), dir).map_err(|error| {
            Failure::Input(format!(
                "cannot write the pages to {}: {error}",
                dir.display()
            ))
        }),
        None => clap_mangen::Man::new(Cli::command())
            .render(out)
            .and_then(|()| out.flush())
            .map_err(Failure::writing),
    }
}
