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
use tallygate::rules::{By, Fate, Mismatch, Rule, Rules, Sight, Step};

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
    fn of(step: &Step, rule: &Rule) -> Self {
        let key = step.looked.iter().map(|looked| FoundPart {
            part: looked.part,
            source: looked.source.to_string(),
            value: match &looked.sight {
                Sight::Text(text) => Some(text.clone()),
                Sight::Secret(_) => Some("(a secret)".to_owned()),
                Sight::Nothing => None,
                Sight::Several => Some("(several that differ)".to_owned()),
            },
        });
        let mut told = Told {
            rule: step.name.to_string(),
            applies: false,
            shadow: step.shadow,
            why: why(&step.fate, rule),
            key: key.collect(),
            tier: None,
            cost: None,
            limits: Vec::new(),
        };
        if let Fate::Applies {
            limits, cost, tier, ..
        } = &step.fate
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

/// Why a rule does what it does.
fn why(fate: &Fate, rule: &Rule) -> String {
    let source = |part: &usize| {
        let part = rule.key.get(*part);
        part.map_or_else(String::new, |part| summary::key(std::slice::from_ref(part)))
    };
    let by = |by: &By, list: &str| match by {
        By::List(number) => format!("the client is number {} of `{list}`", number + 1),
        By::Override(number) => format!("override number {} says so", number + 1),
    };
    match fate {
        Fate::Disabled => "it is switched off".to_owned(),
        Fate::NotReached => "a rule before it ended the walk".to_owned(),
        Fate::Mismatch(mismatch) => {
            let what = match mismatch {
                Mismatch::Method => "the method".to_owned(),
                Mismatch::Host => "the host".to_owned(),
                Mismatch::Path => "the path".to_owned(),
                Mismatch::Header(name) => format!("the header {name}"),
                Mismatch::Grpc => "the gRPC method".to_owned(),
            };
            format!(
                "{what} does not match: it is about {}",
                summary::matcher(&rule.when)
            )
        }
        Fate::Allowed(reason) => format!("allowed: {}", by(reason, "allow")),
        Fate::Denied(reason) => format!("turned away: {}", by(reason, "deny")),
        Fate::NoKey { part } => format!("turned away: there is no {}", source(part)),
        Fate::Passed { part } => format!("let by: there is no {}", source(part)),
        Fate::TooMany => {
            let so = match rule.shadow {
                true => "left out",
                false => "turned away",
            };
            format!("{so}: rules before it took all limits that a request can have")
        }
        Fate::Applies {
            instead,
            shared,
            stop,
            ..
        } => {
            let mut why = summary::matcher(&rule.when);
            if let Some(number) = instead {
                why += &format!("; limits of override number {}", number + 1);
            }
            if let Some(part) = shared {
                why += &format!("; without {}, limited with all such", source(part));
            }
            if *stop {
                why += "; rules after it do not apply";
            }
            why
        }
    }
}
