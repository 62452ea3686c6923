//! `tallygate config diff`: the differences of two rules files, and which counters they keep.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use tallygate_core::Quota;

use super::{load, summary};
use crate::cli::DiffArgs;
use crate::config::Config;
use crate::error::Failure;
use crate::format::write_json;
use tallygate::rules::Rule;

pub(crate) fn run(args: &DiffArgs, out: &mut impl Write) -> Result<(), Failure> {
    let (old, new) = (load(&args.old)?, load(&args.new)?);
    let changes = changes(&old, &new);
    match args.json {
        true => write_json(&changes, out)?,
        false => write_text(&changes, out)?,
    }
    match changes.is_empty() {
        true => Ok(()),
        false => Err(Failure::CheckFailed),
    }
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Change {
    /// The rule; `None` for a setting of the whole file.
    rule: Option<String>,
    /// `added`, `removed`, `renamed`, or the name of a field.
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
    from: Option<String>,
    to: Option<String>,
    /// What happens to the counters, if they are affected.
    counts: Option<&'static str>,
}

const KEPT: &str = "kept";
const RESET: &str = "reset";
const DELETED: &str = "deleted";

impl Change {
    fn new(rule: Option<&Rule>, what: &'static str) -> Self {
        Change {
            rule: rule.map(|rule| rule.name.to_string()),
            what,
            tier: None,
            from: None,
            to: None,
            counts: None,
        }
    }

    fn values(mut self, from: impl Into<String>, to: impl Into<String>) -> Self {
        (self.from, self.to) = (Some(from.into()), Some(to.into()));
        self
    }

    fn counts(mut self, counts: &'static str) -> Self {
        self.counts = Some(counts);
        self
    }
}

fn changes(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = Vec::new();
    if old.store != new.store {
        // The URLs are not shown: they may contain passwords.
        changes.push(Change::new(None, "store").counts(RESET));
    }
    if old.gateway != new.gateway {
        changes.push(Change::new(None, "gateway"));
    }
    if old.rules.client != new.rules.client {
        changes.push(Change::new(None, "client address"));
    }
    let (before, after) = (&old.rules.rules, &new.rules.rules);
    let find = |rules: &[Rule], rule: &Rule| rules.iter().position(|other| other.name == rule.name);
    let mut removed: Vec<&Rule> = before
        .iter()
        .filter(|rule| find(after, rule).is_none())
        .collect();
    for rule in after {
        if let Some(number) = find(before, rule) {
            rule_changes(&before[number], rule, &mut changes);
            continue;
        }
        let same_but_name = |other: &&Rule| {
            let mut other = (*other).clone();
            other.name = rule.name.clone();
            other == *rule
        };
        match removed.iter().position(same_but_name) {
            Some(number) => {
                let old = removed.remove(number);
                let change = Change::new(Some(rule), "renamed");
                let change = change.values(old.name.to_string(), rule.name.to_string());
                changes.push(change.counts(kept_by_budget(rule, before, RESET)));
            }
            None => {
                let change = Change::new(Some(rule), "added");
                changes.push(change.counts(kept_by_budget(rule, before, RESET)));
            }
        }
    }
    for rule in removed {
        let change = Change::new(Some(rule), "removed");
        changes.push(change.counts(kept_by_budget(rule, after, DELETED)));
    }
    let order = |rules: &[Rule], others: &[Rule]| -> Vec<String> {
        let common = rules.iter().filter(|rule| find(others, rule).is_some());
        common.map(|rule| rule.name.to_string()).collect()
    };
    let (from, to) = (order(before, after), order(after, before));
    if from != to {
        let change = Change::new(None, "order of rules");
        changes.push(change.values(from.join(", "), to.join(", ")));
    }
    if old.rules.overrides != new.rules.overrides {
        let number = |loaded: &Config| loaded.rules.overrides.len().to_string();
        let change = Change::new(None, "overrides");
        changes.push(change.values(number(old), number(new)));
    }
    changes
}

/// What happens to the counters of a rule that others may have as its budget.
fn kept_by_budget(rule: &Rule, others: &[Rule], otherwise: &'static str) -> &'static str {
    let scope = rule.counter_scope();
    let is_shared = |other: &Rule| other.budget.is_some() && other.counter_scope() == scope;
    match rule.budget.is_some() && others.iter().any(is_shared) {
        true => KEPT,
        false => otherwise,
    }
}

fn rule_changes(old: &Rule, new: &Rule, changes: &mut Vec<Change>) {
    type Summary = fn(&Rule) -> String;
    let fields: [(&'static str, Summary, Option<&'static str>); 15] = [
        ("match", |rule| summary::matcher(&rule.matcher), Some(KEPT)),
        ("key", |rule| summary::key(&rule.key), Some(RESET)),
        ("budget", summary::budget, Some(RESET)),
        ("tier", |rule| summary::tier_by(&rule.limits), None),
        ("share", |rule| summary::share(rule.share.as_ref()), None),
        ("cost", |rule| summary::cost(&rule.cost), None),
        (
            "actual cost",
            |rule| summary::actual(rule.actual.as_ref()),
            None,
        ),
        ("on_failure", summary::on_failure, None),
        (
            "on_missing",
            |rule| summary::on_missing(rule.on_missing).to_owned(),
            None,
        ),
        ("count", |rule| summary::answers(&rule.count_if), None),
        ("enabled", |rule| rule.enabled.to_string(), None),
        ("shadow", |rule| rule.shadow.to_string(), None),
        ("stop", |rule| rule.stop.to_string(), None),
        (
            "longest_delay",
            |rule| summary::max_delay(rule.max_delay),
            None,
        ),
        ("lease", |rule| summary::lease(rule.lease), None),
    ];
    for (what, summary, counts) in fields {
        let (from, to) = (summary(old), summary(new));
        if from != to {
            let mut change = Change::new(Some(new), what).values(from, to);
            change.counts = match what {
                // A shadow rule counts apart from its budget.
                "shadow" if new.budget.is_some() => Some(RESET),
                _ => counts,
            };
            changes.push(change);
        }
    }
    for (what, changed) in [
        ("headers", old.headers != new.headers),
        ("single_flight", old.coalesce != new.coalesce),
        ("allow", old.allow != new.allow),
        ("deny", old.deny != new.deny),
    ] {
        if changed {
            changes.push(Change::new(Some(new), what));
        }
    }
    limit_changes(old, new, changes);
}

/// Compares limits. A counter is kept if its name, algorithm and period are the same.
fn limit_changes(old: &Rule, new: &Rule, changes: &mut Vec<Change>) {
    let scope = new.counter_scope();
    let counters = |rule: &Rule| -> BTreeMap<_, Quota> {
        // A changed scope is a change of the budget.
        summary::limits(rule, &scope).into_iter().collect()
    };
    let (before, after) = (counters(old), counters(new));
    let same_key = old.key == new.key && old.counter_scope() == scope;
    for (counter, to) in &after {
        let from = before.get(counter);
        let same_period = |from: &Quota| from.period_us() == to.period_us();
        let known = match from {
            Some(from) if from == to => continue,
            Some(from) => same_period(from) && from.algorithm() == to.algorithm(),
            // Another tier may have used the same counter.
            None => before
                .iter()
                .any(|((_, name), quota)| *name == counter.1 && same_period(quota)),
        };
        changes.push(Change {
            tier: counter.0.clone(),
            from: from.map(ToString::to_string),
            to: Some(to.to_string()),
            counts: Some(if known && same_key { KEPT } else { RESET }),
            ..Change::new(Some(new), "limits")
        });
    }
    for (counter, from) in &before {
        if !after.contains_key(counter) {
            let still_used = after.keys().any(|(_, name)| *name == counter.1);
            changes.push(Change {
                tier: counter.0.clone(),
                from: Some(from.to_string()),
                counts: Some(if still_used { KEPT } else { DELETED }),
                ..Change::new(Some(new), "limits")
            });
        }
    }
}

fn write_text(changes: &[Change], out: &mut impl Write) -> io::Result<()> {
    if changes.is_empty() {
        return writeln!(out, "No differences.");
    }
    let mut last = None;
    for change in changes {
        if last != Some(&change.rule) {
            let blank = if last.is_some() { "\n" } else { "" };
            let name = change.rule.as_deref().unwrap_or("all rules");
            writeln!(out, "{blank}{name}")?;
            last = Some(&change.rule);
        }
        let tier = match &change.tier {
            Some(tier) => format!(" of {tier}"),
            None => String::new(),
        };
        let values = match (&change.from, &change.to) {
            (Some(from), Some(to)) => format!(": {from} -> {to}"),
            (None, Some(to)) => format!(": + {to}"),
            (Some(from), None) => format!(": - {from}"),
            (None, None) if matches!(change.what, "added" | "removed") => String::new(),
            (None, None) => ": changed".to_owned(),
        };
        let counts = match change.counts {
            Some(counts) => format!("  (counters {counts})"),
            None => String::new(),
        };
        writeln!(out, "  {}{tier}{values}{counts}", change.what)?;
    }
    Ok(())
}
