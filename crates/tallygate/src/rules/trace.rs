//! A trace of what every rule does with a request. It shows no secret, only that two are equal.

use std::net::IpAddr;

use ::http::HeaderName;

use super::compile::CompiledRule;
use super::evaluate::{Evaluation, ListedBy, Visitor};
use super::extract::Extracted;
use super::matcher::Mismatch;
use super::{Name, Rule, Source};
use crate::http::{Head, Plan};
use crate::key::Key;
use crate::limit::Limit;

const MAX_SHOWN_CHARS: usize = 80;

/// What the rules do with a request.
#[derive(Debug, Default)]
pub struct Trace {
    /// The client's address, grouped by its IPv6 prefix.
    pub client: Option<IpAddr>,
    /// Headers of the request that the rules ignore, because the peer is no trusted proxy.
    pub ignored_headers: Vec<HeaderName>,
    /// Every rule, in order.
    pub rules: Vec<RuleTrace>,
    plan: Plan,
    sources: Vec<SourceTrace>,
}

/// What one rule does with a request.
#[derive(Debug)]
pub struct RuleTrace {
    /// The name of the rule.
    pub name: Name,
    /// Whether it is in shadow mode.
    pub shadow: bool,
    /// The sources that were tried for the parts of the key, in order.
    pub sources: Vec<SourceTrace>,
    /// The result.
    pub outcome: RuleOutcome,
}

/// A source that was tried for a part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTrace {
    /// The index of the part.
    pub part: usize,
    /// The source.
    pub source: Source,
    /// Its value.
    pub value: TracedValue,
}

/// The value of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TracedValue {
    /// The value, shortened and escaped.
    Text(String),
    /// A fingerprint such as `#9f3a` of a secret; within a process, equal secrets have equal
    /// fingerprints.
    Secret(String),
    /// No value.
    Absent,
    /// Values that differ, which count as missing.
    Conflicting,
}

/// The result of a rule.
#[derive(Debug)]
pub enum RuleOutcome {
    /// The rule is disabled.
    Disabled,
    /// The evaluation ended before it: a rule stopped it, or the path has too many segments.
    NotReached,
    /// The rule does not match.
    Mismatch(Mismatch),
    /// The rule does not apply: the client is on an allow list.
    Allowed(ListedBy),
    /// The client is on a deny list. The request is refused, unless the rule is in shadow mode.
    Denied(ListedBy),
    /// The key is missing. The request is refused, unless the rule is in shadow mode.
    NoKey {
        /// The index of the first missing part.
        part: usize,
    },
    /// The rule needs the address of the client, and the server did not record it. The request is
    /// refused, unless the rule is in shadow mode.
    NoAddress,
    /// The rule does not apply: the key is missing.
    Skipped {
        /// The index of the first missing part.
        part: usize,
    },
    /// The limits do not fit into the request besides those of the rules before. The request is
    /// refused, unless the rule is in shadow mode.
    TooManyLimits,
    /// The rule limits the request.
    Applies {
        /// The limits.
        limits: Vec<Limit>,
        /// The cost of the request.
        cost: u32,
        /// The client's tier, if the limits are by tier.
        tier: Option<Name>,
        /// The index of the override that the limits are from.
        override_index: Option<usize>,
        /// The index of the first missing part of the key: the client shares its counters with all
        /// that lack the same parts and are equal in the others.
        missing_part: Option<usize>,
        /// Whether later rules are skipped.
        stop: bool,
    },
}

impl Trace {
    /// The plan for the request.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn ignore_headers(&mut self, rule: &Rule, head: &Head<'_>) {
        for (_, name) in rule.proxy_headers() {
            if head.headers().contains_key(name) && !self.ignored_headers.contains(name) {
                self.ignored_headers.push(name.clone());
            }
        }
    }

    pub(super) fn not_reached(&mut self, rule: &Rule) {
        let outcome = match rule.enabled {
            true => RuleOutcome::NotReached,
            false => RuleOutcome::Disabled,
        };
        self.add(rule, outcome);
    }

    fn add(&mut self, rule: &Rule, outcome: RuleOutcome) {
        self.rules.push(RuleTrace {
            name: rule.name.clone(),
            shadow: rule.shadow,
            sources: std::mem::take(&mut self.sources),
            outcome,
        });
    }
}

impl Visitor for Trace {
    fn source(&mut self, part: usize, source: &Source, value: &Extracted<Key<'_>>) {
        self.sources.push(SourceTrace {
            part,
            source: source.clone(),
            value: match value {
                Extracted::Value(key) => shown_key(key),
                Extracted::Absent => TracedValue::Absent,
                Extracted::Conflicting => TracedValue::Conflicting,
            },
        });
    }

    fn rule(&mut self, compiled: &CompiledRule, evaluation: Evaluation<'_>) {
        let outcome = match &evaluation {
            Evaluation::Disabled => RuleOutcome::Disabled,
            Evaluation::Mismatch(mismatch) => RuleOutcome::Mismatch(mismatch.clone()),
            Evaluation::Allowed(by) => RuleOutcome::Allowed(*by),
            Evaluation::Denied(by) => RuleOutcome::Denied(*by),
            Evaluation::NoKey(missing) => RuleOutcome::NoKey { part: missing.part },
            Evaluation::NoAddress => RuleOutcome::NoAddress,
            Evaluation::Skipped(missing) => RuleOutcome::Skipped { part: missing.part },
            Evaluation::TooManyLimits => RuleOutcome::TooManyLimits,
            Evaluation::Applies(applies) => RuleOutcome::Applies {
                limits: applies.limits.to_vec(),
                cost: applies.cost,
                tier: applies.tier.cloned(),
                override_index: applies.override_index,
                missing_part: applies.missing.map(|missing| missing.part),
                stop: applies.stop,
            },
        };
        self.add(&compiled.rule, outcome);
        self.plan.rule(compiled, evaluation);
    }

    fn too_many_segments(&mut self) {
        self.plan.too_many_segments();
    }
}

/// A value in clear text; a fingerprint if it is secret or has several parts.
fn shown_key(key: &Key<'_>) -> TracedValue {
    let mut parts = key.parts();
    match (parts.next(), parts.next()) {
        (Some(part), None) if !part.secret => TracedValue::Text(shown(part.bytes)),
        _ => {
            let debug = format!("{key:?}");
            let fingerprint = debug
                .strip_prefix("Key(")
                .and_then(|debug| debug.strip_suffix(')'));
            TracedValue::Secret(fingerprint.unwrap_or("#").to_owned())
        }
    }
}

/// A value on one line, truncated.
fn shown(value: &[u8]) -> String {
    let start = &value[..value.len().min(4 * MAX_SHOWN_CHARS)];
    let text = String::from_utf8_lossy(start);
    let mut escaped = text.chars().flat_map(char::escape_debug);
    let mut short: String = escaped.by_ref().take(MAX_SHOWN_CHARS).collect();
    if escaped.next().is_some() {
        short.push('…');
    }
    short
}
