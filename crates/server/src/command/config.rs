//! `tallygate config`: checks, explains and compares rules files.

mod check;
mod diff;
mod explain;
pub(super) mod summary;

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use crate::cli::ConfigCommand;
use crate::config::{self, Config, Report, Style};
use crate::error::Failure;
use crate::format::{no_color, plural};

pub(crate) fn run(command: &ConfigCommand, out: &mut impl Write) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check(args) => check::run(args, style(&io::stdout()), out),
        ConfigCommand::Explain(args) => explain::run(args, out),
        ConfigCommand::Diff(args) => diff::run(args, out),
        ConfigCommand::Schema => Ok(out.write_all(config::json_schema().as_bytes())?),
    }
}

pub(super) fn style(stream: &impl IsTerminal) -> Style {
    match stream.is_terminal() {
        true => Style::Terminal {
            colour: !no_color(),
        },
        false => Style::Plain,
    }
}

fn load(path: &Path) -> Result<Config, Failure> {
    let failure = |report: Report| {
        let text = report.render(style(&io::stderr()));
        Failure::Input(format!(
            "cannot use {}: {}\n\n{}",
            path.display(),
            plural(report.errors(), "error"),
            text.trim_end()
        ))
    };
    config::load(path).map_err(failure)
}
