//! `tallygate config check`: the errors and warnings of rules files.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use super::summary;
use crate::cli::CheckArgs;
use crate::config::{self, DiagnosticJson, Report, Style};
use crate::error::Failure;
use crate::format::plural;
use tallygate::rules::RuleSet;

pub(crate) fn run(args: &CheckArgs, style: Style, out: &mut impl Write) -> Result<(), Failure> {
    let files: Vec<CheckedFile<'_>> = args.files.iter().map(|path| check(path)).collect();
    match args.json {
        true => write_json(&files, out)?,
        false => write_text(&files, style, out)?,
    }
    if files.iter().any(|file| file.report.errors() > 0) {
        return Err(Failure::InputReported);
    }
    match args.strict && files.iter().any(|file| file.report.warnings() > 0) {
        true => Err(Failure::CheckFailed),
        false => Ok(()),
    }
}

struct CheckedFile<'a> {
    path: &'a Path,
    report: Report,
    /// `None` if the file has errors.
    size: Option<Size>,
}

#[derive(Clone, Copy, Serialize)]
struct Size {
    rules: usize,
    limits: usize,
    overrides: usize,
}

fn check(path: &Path) -> CheckedFile<'_> {
    let (size, report) = match config::load(path) {
        Ok(config) => (Some(Size::new(&config.rules)), config.warnings),
        Err(report) => (None, report),
    };
    CheckedFile { path, report, size }
}

impl Size {
    fn new(set: &RuleSet) -> Self {
        Size {
            rules: set.rules.len(),
            limits: set
                .rules
                .iter()
                .map(|rule| summary::limits(rule, &rule.name).len())
                .sum(),
            overrides: set.overrides.len(),
        }
    }
}

fn write_text(files: &[CheckedFile<'_>], style: Style, out: &mut impl Write) -> io::Result<()> {
    for file in files {
        let report = &file.report;
        let text = report.render(style);
        if !text.is_empty() {
            writeln!(out, "{text}")?;
        }
        let warnings = match report.warnings() {
            0 => String::new(),
            warnings => format!(", {}", plural(warnings, "warning")),
        };
        let path = file.path.display();
        match file.size {
            None => {
                let errors = plural(report.errors(), "error");
                writeln!(out, "{path}: {errors}{warnings}")?;
            }
            Some(size) => {
                let (rules, limits) = (plural(size.rules, "rule"), plural(size.limits, "limit"));
                let overrides = match size.overrides {
                    0 => String::new(),
                    overrides => format!(", {}", plural(overrides, "override")),
                };
                writeln!(out, "{path}: good: {rules}, {limits}{overrides}{warnings}")?;
            }
        }
    }
    Ok(())
}

fn write_json(files: &[CheckedFile<'_>], out: &mut impl Write) -> io::Result<()> {
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
    let json = |file: &'_ CheckedFile<'_>| -> io::Result<()> {
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
    files.iter().try_for_each(json)
}
