//! One finding of the doctor.

use serde::Serialize;
use tallygate::RedisError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
    pub(super) fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Fail => "fail",
        }
    }
}

#[derive(Clone, Debug, Serialize)]
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

/// Merges the findings of several servers, check by check: one finding where all are equal.
pub(super) fn merge(servers: Vec<(String, Vec<Finding>)>) -> Vec<Finding> {
    if let [(_, _)] = &*servers {
        return servers.into_iter().flat_map(|(_, found)| found).collect();
    }
    let mut checks: Vec<&'static str> = Vec::new();
    for finding in servers.iter().flat_map(|(_, found)| found) {
        if !checks.contains(&finding.check) {
            checks.push(finding.check);
        }
    }
    let mut all = Vec::new();
    for check in checks {
        let select = |found: &[Finding]| -> Vec<Finding> {
            let found = found.iter().filter(|finding| finding.check == check);
            found.cloned().collect()
        };
        let each = servers
            .iter()
            .map(|(server, found)| (server, select(found)))
            .collect::<Vec<_>>();
        let same = |a: &[Finding], b: &[Finding]| {
            let key = |finding: &Finding| (finding.level, finding.text.clone());
            a.iter().map(key).eq(b.iter().map(key))
        };
        if each.windows(2).all(|pair| same(&pair[0].1, &pair[1].1)) {
            all.extend(each.into_iter().next().into_iter().flat_map(|(_, f)| f));
            continue;
        }
        for (server, found) in each {
            all.extend(found.into_iter().map(|finding| Finding {
                server: Some(server.clone()),
                ..finding
            }));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_findings_are_merged() {
        let version = |text: &str| vec![Finding::ok("version", text)];
        let equal = merge(vec![("a".into(), version("7")), ("b".into(), version("7"))]);
        assert_eq!(equal.len(), 1);
        assert_eq!(equal[0].server, None);
        let different = merge(vec![("a".into(), version("7")), ("b".into(), version("6"))]);
        let names: Vec<_> = different
            .iter()
            .map(|found| found.server.as_deref())
            .collect();
        assert_eq!(names, [Some("a"), Some("b")]);
    }
}
