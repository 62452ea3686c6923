//! `tallygate config check`: everything that is wrong with rules files, or questionable.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::cli::CheckArgs;
use crate::config::{self, DiagnosticJson, Report, Style};
use crate::error::Failure;
use tallygate::rules::{Limits, RuleSet};

pub(crate) fn run(args: &CheckArgs, style: Style, out: &mut impl Write) -> Result<(), Failure> {
    let checked: Vec<Checked<'_>> = args.files.iter().map(|path| Checked::of(path)).collect();
    let written = match args.json {
        true => write_json(&checked, out),
        false => write_text(&checked, style, out),
    };
    written
        .and_then(|()| out.flush())
        .map_err(Failure::writing)?;
    if checked.iter().any(|file| file.report.errors() > 0) {
        return Err(Failure::Wrong);
    }
    match args.strict && checked.iter().any(|file| file.report.warnings() > 0) {
        true => Err(Failure::No),
        false => Ok(()),
    }
}

/// One file and what was found.
struct Checked<'a> {
    path: &'a Path,
    report: Report,
    /// What was read; none if it cannot be used.
    size: Option<Size>,
}

/// How much a file says.
#[derive(Clone, Copy, Serialize)]
struct Size {
    rules: usize,
    limits: usize,
    overrides: usize,
}

impl<'a> Checked<'a> {
    fn of(path: &'a Path) -> Self {
        match config::load(path) {
            Ok(loaded) => Checked {
                path,
                size: Some(Size::of(&loaded.rules)),
                report: loaded.warnings,
            },
            Err(report) => Checked {
                path,
                report,
                size: None,
            },
        }
    }
}

impl Size {
    fn of(set: &RuleSet) -> Self {
        let limits = |limits: &Limits| match limits {
            Limits::Same(quotas) => quotas.len(),
            Limits::Tiered(tiers) => tiers.tiers().iter().map(|(_, quotas)| quotas.len()).sum(),
        };
        Size {
            rules: set.rules.len(),
            limits: set.rules.iter().map(|rule| limits(&rule.limits)).sum(),
            overrides: set.overrides.len(),
        }
    }
}

/// A number and what it counts.
pub(super) fn number(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

fn write_text(checked: &[Checked<'_>], style: Style, out: &mut impl Write) -> io::Result<()> {
    for file in checked {
        let report = &file.report;
        let text = report.render(style);
        if !text.is_empty() {
            writeln!(out, "{text}")?;
        }
        let warnings = match report.warnings() {
            0 => String::new(),
            warnings => format!(", {}", number(warnings, "warning")),
        };
        let path = file.path.display();
        match file.size {
            None => {
                let errors = number(report.errors(), "error");
                writeln!(out, "{path}: {errors}{warnings}")?;
            }
            Some(size) => {
                let (rules, limits) = (number(size.rules, "rule"), number(size.limits, "limit"));
                let overrides = match size.overrides {
                    0 => String::new(),
                    overrides => format!(", {}", number(overrides, "override")),
                };
                writeln!(out, "{path}: good: {rules}, {limits}{overrides}{warnings}")?;
            }
        }
    }
    Ok(())
}

fn write_json(checked: &[Checked<'_>], out: &mut impl Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct FileJson<'a> {
        file: String,
        good: bool,
        #[serde(flatten)]
        size: Option<Size>,
        errors: usize,
        warnings: usize,
        problems: Vec<DiagnosticJson<'a>>,
    }
    let json = |file: &'_ Checked<'_>| -> io::Result<()> {
        let json = FileJson {
            file: file.path.display().to_string(),
            good: file.size.is_some(),
            size: file.size,
            errors: file.report.errors(),
            warnings: file.report.warnings(),
            problems: file.report.to_json(),
        };
        serde_json::to_writer(&mut *out, &json)?;
        writeln!(out)
    };
    checked.iter().try_for_each(json)
}
