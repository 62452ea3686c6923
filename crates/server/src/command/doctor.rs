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
use crate::format::{wrap, write_json};
use crate::store_url::StoreUrl;
use crate::temp_store::TempStore;

const WIDTH: usize = 80;
/// The column where the text of a finding starts.
const INDENT: usize = 22;

pub(crate) fn run(args: &DoctorArgs, out: &mut impl Write) -> Result<(), Failure> {
    let report = match StoreUrl::from_args(&args.store)? {
        StoreUrl::Memory => Report::new("memory", diagnose::memory()),
        StoreUrl::Redis(builder) => match TempStore::open(builder, "doctor")? {
            Err(error) => Report::new("unknown", vec![Finding::failed("url", &error)]),
            Ok(temp_store) => examine(&temp_store),
        },
    };
    match args.json {
        true => write_json(&report, out)?,
        false => report.write_text(out)?,
    }
    match report.healthy {
        true => Ok(()),
        false => Err(Failure::CheckFailed),
    }
}

fn examine(temp_store: &TempStore) -> Report {
    let store = temp_store.store();
    let topology = match store.topology() {
        Topology::Single => "single",
        Topology::Socket => "socket",
        Topology::Sentinel => "sentinel",
        Topology::Cluster => "cluster",
    };
    let findings = temp_store.run(diagnose::examine(store, temp_store.namespace()));
    Report::new(topology, findings)
}

#[derive(Serialize)]
struct Report {
    healthy: bool,
    store: &'static str,
    findings: Vec<Finding>,
}

impl Report {
    fn new(store: &'static str, findings: Vec<Finding>) -> Self {
        Report {
            healthy: findings.iter().all(|finding| finding.level != Level::Fail),
            store,
            findings,
        }
    }

    fn count(&self, level: Level) -> usize {
        let findings = self.findings.iter();
        findings.filter(|finding| finding.level == level).count()
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
}
