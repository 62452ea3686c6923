//! `tallygate config explain`: what the rules do with one request, and the responses to it.

mod request;
mod response;
mod text;

use std::io::Write;

use serde::Serialize;

use self::request::ExplainedRequest;
use self::response::SampleResponse;
use super::{load, summary};
use crate::cli::ConfigExplainArgs;
use crate::error::Failure;
use crate::format::write_json;
use tallygate::rules::{ListedBy, Mismatch, Rule, RuleOutcome, RuleTrace, Rules, TracedValue};

pub(crate) fn run(args: &ConfigExplainArgs, out: &mut impl Write) -> Result<(), Failure> {
    let loaded = load(&args.file)?;
    let request = ExplainedRequest::from_args(args)?;
    let rules = Rules::new(loaded.rules.clone()).expect("loading validates the rules");
    let trace = rules.trace(&request.head());
    let rules = trace.rules.iter().zip(&loaded.rules.rules);
    let explanation = Explanation {
        request: request.line(),
        client: trace.client.map(|client| client.to_string()),
        rules: rules
            .map(|(trace, rule)| RuleReport::new(trace, rule))
            .collect(),
        seen: SampleResponse::from_plan(trace.plan(), &request.head()),
    };
    match args.json {
        true => Ok(write_json(&explanation, out)?),
        false => Ok(text::write(&explanation, out)?),
    }
}

#[derive(Serialize)]
struct Explanation {
    request: String,
    client: Option<String>,
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
    tier: Option<String>,
    cost: Option<u32>,
    limits: Vec<LimitReport>,
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
            tier: None,
            cost: None,
            limits: Vec::new(),
        };
        if let RuleOutcome::Applies {
            limits, cost, tier, ..
        } = &trace.outcome
        {
            report.applies = true;
            report.tier = tier.as_ref().map(ToString::to_string);
            report.cost = Some(*cost);
            let limits = limits.iter().map(|limit| LimitReport {
                quota: limit.quota().to_string(),
                counter: limit.name().to_owned(),
            });
            report.limits = limits.collect();
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
        RuleOutcome::NotReached => "an earlier rule ended the evaluation".to_owned(),
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
