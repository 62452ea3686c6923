//! `tallygate config explain`: what the rules make of one request, and what its client would see.
//! Asks the engine that limits in production, over counters that nobody has used.

mod asked;
mod page;
mod seen;

use std::io::{self, Write};

use serde::Serialize;

use self::seen::Seen;
use super::{load, summary};
use crate::cli::ConfigExplainArgs;
use crate::error::Failure;
use tallygate::rules::{ListedBy, Mismatch, Rule, RuleOutcome, RuleTrace, Rules, TracedValue};

pub(crate) fn run(args: &ConfigExplainArgs, out: &mut impl Write) -> Result<(), Failure> {
    let loaded = load(&args.file)?;
    let asked = asked::Asked::of(args)?;
    let rules = Rules::new(loaded.rules.clone()).expect("a loaded file has no faults");
    let trace = rules.trace(&asked.head());
    let told = trace.rules.iter().zip(&loaded.rules.rules);
    let explained = Explained {
        request: asked.line(),
        client: trace.client.map(|client| client.to_string()),
        rules: told.map(|(step, rule)| Told::of(step, rule)).collect(),
        seen: Seen::of(trace.plan(), &asked.head()),
    };
    let written = match args.json {
        true => serde_json::to_writer_pretty(&mut *out, &explained)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out)),
        false => page::write(&explained, out),
    };
    written.and_then(|()| out.flush()).map_err(Failure::writing)
}

/// Everything there is to say.
#[derive(Serialize)]
struct Explained {
    request: String,
    client: Option<String>,
    rules: Vec<Told>,
    seen: Vec<Seen>,
}

/// What one rule makes of it.
#[derive(Serialize)]
struct Told {
    rule: String,
    applies: bool,
    shadow: bool,
    /// Why it applies or does not.
    why: String,
    key: Vec<FoundPart>,
    tier: Option<String>,
    cost: Option<u32>,
    limits: Vec<LimitTold>,
}

#[derive(Serialize)]
struct FoundPart {
    part: usize,
    source: String,
    value: Option<String>,
}

#[derive(Serialize)]
struct LimitTold {
    quota: String,
    counter: String,
}

impl Told {
    fn of(step: &RuleTrace, rule: &Rule) -> Self {
        let key = step.sources.iter().map(|looked| FoundPart {
            part: looked.part,
            source: looked.source.to_string(),
            value: match &looked.value {
                TracedValue::Text(text) => Some(text.clone()),
                TracedValue::Secret(_) => Some("(a secret)".to_owned()),
                TracedValue::Absent => None,
                TracedValue::Conflicting => Some("(several that differ)".to_owned()),
            },
        });
        let mut told = Told {
            rule: step.name.to_string(),
            applies: false,
            shadow: step.shadow,
            why: reason(&step.outcome, rule),
            key: key.collect(),
            tier: None,
            cost: None,
            limits: Vec::new(),
        };
        if let RuleOutcome::Applies {
            limits, cost, tier, ..
        } = &step.outcome
        {
            told.applies = true;
            told.tier = tier.as_ref().map(ToString::to_string);
            told.cost = Some(*cost);
            let limits = limits.iter().map(|limit| LimitTold {
                quota: limit.quota().to_string(),
                counter: limit.name().to_owned(),
            });
            told.limits = limits.collect();
        }
        told
    }
}

/// Explains the result of a rule.
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
