//! The findings of the doctor, as text and JSON.

use std::collections::HashSet;
use std::io::{self, Write};
use std::iter;

use serde::Serialize;
use tallygate::RedisError;

use crate::format::{plural, wrap};

const WIDTH: usize = 80;
/// The column where the text of a finding starts.
const INDENT: usize = 22;

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    Info,
    /// Limits are enforced for now.
    Warn,
    /// Limits cannot be enforced.
    Fail,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Fail => "fail",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) level: Level,
    /// The server, if there are several and they differ.
    pub(super) server: Option<String>,
    pub(super) text: String,
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Level::Ok, text.into(), None)
    }

    pub(super) fn info(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Level::Info, text.into(), None)
    }

    pub(super) fn warn(
        check: &'static str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(check, Level::Warn, text.into(), Some(advice.into()))
    }

    pub(super) fn fail(
        check: &'static str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(check, Level::Fail, text.into(), Some(advice.into()))
    }

    pub(super) fn failed(check: &'static str, error: &RedisError) -> Self {
        Self::fail(check, error.problem(), error.advice())
    }

    pub(super) fn not_permitted(check: &'static str, command: &str) -> Self {
        Self::info(
            check,
            format!("not checked: the user may not call {command}"),
        )
    }

    fn new(check: &'static str, level: Level, text: String, advice: Option<String>) -> Self {
        Finding {
            check,
            level,
            server: None,
            text,
            advice,
        }
    }
}

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) healthy: bool,
    store: &'static str,
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(store: &'static str, findings: Vec<Finding>) -> Self {
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

    pub(super) fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        for finding in &self.findings {
            let mut head = format!("{:<4}  {:<14}", finding.level.name(), finding.check);
            let text = match &finding.server {
                Some(server) => format!("{server}: {}", finding.text),
                None => finding.text.clone(),
            };
            let advice = finding.advice.iter().map(|advice| format!("> {advice}"));
            for paragraph in iter::once(text).chain(advice) {
                for line in wrap(&paragraph, WIDTH - INDENT) {
                    writeln!(out, "{head:INDENT$}{line}")?;
                    head.clear();
                }
            }
        }
        let warnings = match self.count(Level::Warn) {
            0 => String::new(),
            n => format!(", {}", plural(n, "warning")),
        };
        match self.count(Level::Fail) {
            0 => writeln!(out, "\nHealthy{warnings}."),
            n => writeln!(out, "\nNot healthy: {}{warnings}.", plural(n, "failure")),
        }
    }
}

/// Merges the findings of several servers, check by check: one finding where all are equal.
pub(super) fn merge(servers: &[(String, Vec<Finding>)]) -> Vec<Finding> {
    let all = servers.iter().flat_map(|(_, found)| found);
    let mut seen = HashSet::new();
    let checks = all
        .map(|finding| finding.check)
        .filter(|check| seen.insert(*check));
    let merged = checks.flat_map(|check| {
        let select = |found: &[Finding]| -> Vec<Finding> {
            let found = found.iter().filter(|finding| finding.check == check);
            found.cloned().collect()
        };
        let first = select(&servers[0].1);
        if servers.iter().all(|(_, found)| select(found) == first) {
            return first;
        }
        let named = servers.iter().flat_map(|(server, found)| {
            let server = Some(server.clone());
            select(found).into_iter().map(move |finding| Finding {
                server: server.clone(),
                ..finding
            })
        });
        named.collect()
    });
    merged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_findings_are_merged() {
        let version = |text: &str| vec![Finding::ok("version", text)];
        let equal = merge(&[("a".into(), version("7")), ("b".into(), version("7"))]);
        assert_eq!(equal.len(), 1);
        assert_eq!(equal[0].server, None);
        let different = merge(&[("a".into(), version("7")), ("b".into(), version("6"))]);
        let names: Vec<_> = different
            .iter()
            .map(|found| found.server.as_deref())
            .collect();
        assert_eq!(names, [Some("a"), Some("b")]);
    }
}
