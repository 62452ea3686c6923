//! `tallygate doctor`: checks a store and prints findings with advice.

mod decisions;
mod diagnose;
mod finding;
mod permissions;
mod server;
mod server_info;

use std::io::{self, Write};

use serde::Serialize;
use tallygate::Topology;

use self::finding::{Finding, Level};
use crate::cli::DoctorArgs;
use crate::error::Failure;
use crate::format::wrap;
use crate::store_url::StoreUrl;
use crate::temp_store::TempStore;

const WIDTH: usize = 80;
/// The column where the text of a finding starts.
const INDENT: usize = 22;

pub(crate) fn run(args: &DoctorArgs, out: &mut impl Write) -> Result<(), Failure> {
    let report = match StoreUrl::from_args(&args.store)? {
        StoreUrl::Memory => Report {
            store: "memory",
            findings: diagnose::memory(),
        },
        StoreUrl::Redis(builder) => match TempStore::open(builder, "doctor")? {
            Err(error) => Report {
                store: "unknown",
                findings: vec![diagnose::bad_url(&error)],
            },
            Ok(scratch) => examine(&scratch),
        },
    };
    let written = if args.json {
        report.write_json(out)
    } else {
        report.write_text(out)
    };
    written
        .and_then(|()| out.flush())
        .map_err(Failure::writing)?;
    if report.is_healthy() {
        Ok(())
    } else {
        Err(Failure::CheckFailed)
    }
}

fn examine(scratch: &TempStore) -> Report {
    let store = scratch.store();
    let findings = scratch.run(diagnose::examine(store, scratch.namespace()));
    Report {
        store: match store.topology() {
            Topology::Single => "single",
            Topology::Socket => "socket",
            Topology::Sentinel => "sentinel",
            Topology::Cluster => "cluster",
        },
        findings,
    }
}

struct Report {
    store: &'static str,
    findings: Vec<Finding>,
}

impl Report {
    fn count(&self, level: Level) -> usize {
        let matching = self
            .findings
            .iter()
            .filter(|finding| finding.level == level);
        matching.count()
    }

    fn is_healthy(&self) -> bool {
        self.count(Level::Fail) == 0
    }

    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        for finding in &self.findings {
            let mut head = format!("{:<4}  {:<14}", finding.level.name(), finding.check);
            let text = match &finding.server {
                Some(server) => format!("{server}: {}", finding.text),
                None => finding.text.clone(),
            };
            let advice = finding.advice.iter().map(|advice| format!("> {advice}"));
            for paragraph in std::iter::once(text).chain(advice) {
                for line in wrap(&paragraph, WIDTH - INDENT) {
                    writeln!(out, "{head:INDENT$}{line}")?;
                    head.clear();
                }
            }
        }
        let warnings = match self.count(Level::Warn) {
            0 => String::new(),
            1 => ", 1 warning".to_owned(),
            n => format!(", {n} warnings"),
        };
        match self.count(Level::Fail) {
            0 => writeln!(out, "\nHealthy{warnings}."),
            1 => writeln!(out, "\nNot healthy: 1 failure{warnings}."),
            n => writeln!(out, "\nNot healthy: {n} failures{warnings}."),
        }
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Output<'a> {
            healthy: bool,
            store: &'a str,
            findings: &'a [Finding],
        }
        let output = Output {
            healthy: self.is_healthy(),
            store: self.store,
            findings: &self.findings,
        };
        serde_json::to_writer_pretty(&mut *out, &output)?;
        writeln!(out)
    }
}
