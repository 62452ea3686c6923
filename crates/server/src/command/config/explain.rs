//! `tallygate config explain`: what the rules do with one request, and the responses to it.

mod request;
mod response;

use std::io::{self, Write};

use serde::Serialize;

use self::response::SampleResponse;
use super::{load, summary};
use crate::cli::ConfigExplainArgs;
use crate::error::Failure;
use crate::format::{write_json, write_wrapped};
use tallygate::http::Head;
use tallygate::rules::{ListedBy, Mismatch, Rule, RuleOutcome, RuleTrace, Rules, TracedValue};

const WIDTH: usize = 80;
const INDENT: usize = 4;

pub(crate) fn run(args: &ConfigExplainArgs, out: &mut impl Write) -> Result<(), Failure> {
    let loaded = load(&args.file)?;
    let request = request::from_args(args)?;
    let head = Head::from(&request);
    let rules = Rules::new(loaded.rules.clone()).expect("loading validates the rules");
    let trace = rules.trace(&head);
    let host = request.uri().host().unwrap_or_default();
    let rules = trace.rules.iter().zip(&loaded.rules.rules);
    let explanation = Explanation {
        // Without the query, which may hold a secret.
        request: format!("{} {host}{}", request.method(), request.uri().path()),
        client: trace.client.map(|client| client.to_string()),
        ignored: trace
            .ignored_headers
            .iter()
            .map(ToString::to_string)
            .collect(),
        rules: rules
            .map(|(trace, rule)| RuleReport::new(trace, rule))
            .collect(),
        seen: SampleResponse::from_plan(trace.plan(), &head),
    };
    match args.json {
        true => Ok(write_json(&explanation, out)?),
        false => Ok(write_text(&explanation, out)?),
    }
}

#[derive(Serialize)]
struct Explanation {
    request: String,
    client: Option<String>,
    /// Headers that only count from trusted proxies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignored: Vec<String>,
    rules: Vec<RuleReport>,
    seen: Vec<SampleResponse>,
}

#[derive(Serialize)]
struct RuleReport {
    rule: String,
    applies: bool,
    shadow: bool,
    why: String,
    key: Vec<SourceReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<String>,
    tier: Option<String>,
    cost: Option<u32>,
    /// Where the response says the actual cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    actual_cost: Option<String>,
    limits: Vec<LimitReport>,
    /// Who shares the limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
}

#[derive(Serialize)]
struct SourceReport {
    part: usize,
    source: String,
    value: Option<String>,
}

#[derive(Serialize)]
struct LimitReport {
    quota: String,
    counter: String,
}

impl RuleReport {
    fn new(trace: &RuleTrace, rule: &Rule) -> Self {
        let key = trace.sources.iter().map(|source| SourceReport {
            part: source.part,
            source: source.source.to_string(),
            value: match &source.value {
                TracedValue::Text(text) => Some(text.clone()),
                TracedValue::Secret(_) => Some("(a secret)".to_owned()),
                TracedValue::Absent => None,
                TracedValue::Conflicting => Some("(conflicting values)".to_owned()),
            },
        });
        let mut report = RuleReport {
            rule: trace.name.to_string(),
            applies: false,
            shadow: trace.shadow,
            why: reason(&trace.outcome, rule),
            key: key.collect(),
            budget: None,
            tier: None,
            cost: None,
            actual_cost: None,
            limits: Vec::new(),
            share: None,
            lease: None,
        };
        if let RuleOutcome::Applies {
            limits, cost, tier, ..
        } = &trace.outcome
        {
            report.applies = true;
            report.budget = rule.budget.as_ref().map(ToString::to_string);
            report.tier = tier.as_ref().map(ToString::to_string);
            report.cost = Some(*cost);
            let actual = rule.actual.as_ref();
            report.actual_cost = actual.map(|actual| summary::actual(Some(actual)));
            let limits = limits.iter().map(|limit| LimitReport {
                quota: limit.quota().to_string(),
                counter: limit.name().to_owned(),
            });
            report.limits = limits.collect();
            let share = rule.share.as_ref();
            report.share = share.map(|share| summary::share(Some(share)));
            report.lease = rule.lease.map(|lease| summary::lease(Some(lease)));
        }
        report
    }
}

fn reason(outcome: &RuleOutcome, rule: &Rule) -> String {
    let source = |part: &usize| {
        let part = rule.key.get(*part);
        part.map_or_else(String::new, |part| summary::key(std::slice::from_ref(part)))
    };
    let by = |by: &ListedBy, list: &str| match by {
        ListedBy::List(index) => format!("the client is number {} of `{list}`", index + 1),
        ListedBy::Override(index) => format!("by override number {}", index + 1),
    };
    match outcome {
        RuleOutcome::Disabled => "it is disabled".to_owned(),
        RuleOutcome::NotReached => "the evaluation ended before it".to_owned(),
        RuleOutcome::Mismatch(mismatch) => {
            let what = match mismatch {
                Mismatch::Method => "the method".to_owned(),
                Mismatch::Host => "the host".to_owned(),
                Mismatch::Path => "the path".to_owned(),
                Mismatch::Header(name) => format!("the header {name}"),
                Mismatch::Grpc => "the gRPC method".to_owned(),
                Mismatch::Custom => "the function".to_owned(),
            };
            format!(
                "{what} does not match: it applies to {}",
                summary::matcher(&rule.matcher)
            )
        }
        RuleOutcome::Allowed(reason) => format!("allowed: {}", by(reason, "allow")),
        RuleOutcome::Denied(reason) => format!("refused: {}", by(reason, "deny")),
        RuleOutcome::NoKey { part } => format!("refused: there is no {}", source(part)),
        RuleOutcome::NoAddress => "refused: the address of the client is unknown".to_owned(),
        RuleOutcome::Skipped { part } => format!("skipped: there is no {}", source(part)),
        RuleOutcome::TooManyLimits => {
            let result = match rule.shadow {
                true => "skipped",
                false => "refused",
            };
            format!("{result}: with the rules before it, the request has too many limits")
        }
        RuleOutcome::Applies {
            override_index,
            missing_part,
            stop,
            ..
        } => {
            let mut reason = summary::matcher(&rule.matcher);
            if let Some(index) = override_index {
                reason += &format!("; limits of override number {}", index + 1);
            }
            if let Some(part) = missing_part {
                reason += &format!(
                    "; without {}, shared with others that lack it",
                    source(part)
                );
            }
            if *stop {
                reason += "; later rules are skipped";
            }
            reason
        }
    }
}

fn write_text(explanation: &Explanation, out: &mut impl Write) -> io::Result<()> {
    let client = explanation.client.as_deref().unwrap_or("an unknown client");
    writeln!(out, "{} from {client}", explanation.request)?;
    if !explanation.ignored.is_empty() {
        let headers = explanation.ignored.join(", ");
        let ignored = format!("ignored, because the peer is not in trusted_proxies: {headers}");
        write_wrapped(&ignored, INDENT, WIDTH - INDENT, out)?;
    }
    for report in &explanation.rules {
        write_rule(report, out)?;
    }
    for response in &explanation.seen {
        writeln!(out, "\n{}:", response.when)?;
        match response.status {
            Some(status) => writeln!(out, "    HTTP/1.1 {status} {}", response.reason)?,
            None => writeln!(out, "    ({})", response.reason)?,
        }
        for (name, value) in &response.headers {
            writeln!(out, "    {name}: {value}")?;
        }
        if let Some(body) = &response.body {
            writeln!(out)?;
            write_wrapped(body, INDENT, WIDTH - INDENT, out)?;
        }
    }
    Ok(())
}

fn write_rule(report: &RuleReport, out: &mut impl Write) -> io::Result<()> {
    let mark = if report.applies { "applies" } else { "-" };
    let shadow = if report.shadow { " (shadow mode)" } else { "" };
    writeln!(out, "\n{}  {mark}{shadow}", report.rule)?;
    write_wrapped(&report.why, INDENT, WIDTH - INDENT, out)?;
    for part in &report.key {
        let value = part.value.as_deref().unwrap_or("(missing)");
        writeln!(out, "    key {}: {} = {value}", part.part + 1, part.source)?;
    }
    if let Some(budget) = &report.budget {
        writeln!(out, "    budget: {budget}")?;
    }
    if let Some(tier) = &report.tier {
        writeln!(out, "    tier: {tier}")?;
    }
    if let Some(cost) = report.cost {
        writeln!(out, "    cost: {cost}")?;
    }
    if let Some(actual) = &report.actual_cost {
        writeln!(out, "    actual cost: {actual}")?;
    }
    for limit in &report.limits {
        writeln!(out, "    limit: {}", limit.quota)?;
        writeln!(out, "      counted as \"{}\"", limit.counter)?;
    }
    if let Some(share) = &report.share {
        writeln!(out, "    share: {share}")?;
    }
    if let Some(lease) = &report.lease {
        writeln!(out, "    lease: {lease}")?;
    }
    Ok(())
}
