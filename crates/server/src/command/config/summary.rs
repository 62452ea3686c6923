//! One-line summaries of the fields of a rule. They contain no keys of clients.

use std::time::Duration;

use tallygate::{OnFailure, Replicas};
use tallygate_core::Quota;

use tallygate::rules::{
    Cost, HeaderCondition, Matcher, Missing, Part, Quotas, Rule, RuleLimits, StatusFilter,
    StatusRange, TierBy,
};

pub(super) fn matcher(when: &Matcher) -> String {
    let mut parts = Vec::new();
    let list = |texts: Vec<String>| match texts.as_slice() {
        [one] => one.clone(),
        several => format!("({})", several.join(" | ")),
    };
    for texts in [
        texts(&when.methods),
        when.hosts.iter().map(|host| format!("//{host}")).collect(),
        texts(&when.paths),
        when.grpc
            .iter()
            .map(|grpc| format!("grpc {grpc}"))
            .collect(),
    ] {
        if !texts.is_empty() {
            parts.push(list(texts));
        }
    }
    for header in &when.headers {
        let name = &header.name;
        parts.push(match &header.condition {
            HeaderCondition::Present => format!("with {name}"),
            HeaderCondition::Absent => format!("without {name}"),
            HeaderCondition::Matches(globs) => {
                format!("with {name}: {}", list(texts(globs)))
            }
        });
    }
    match parts.is_empty() {
        true => "every request".to_owned(),
        false => parts.join(" "),
    }
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

pub(super) fn key(parts: &[Part]) -> String {
    let part = |part: &Part| {
        let sources: Vec<String> = part.sources().map(ToString::to_string).collect();
        sources.join(" or ")
    };
    let parts: Vec<String> = parts.iter().map(part).collect();
    match parts.is_empty() {
        true => "all clients".to_owned(),
        false => parts.join(", "),
    }
}

pub(super) fn cost(cost: &Cost) -> String {
    match cost {
        Cost::Constant(units) => units.to_string(),
        Cost::Header {
            name,
            default,
            min,
            max,
        } => format!("header {name}, {min} to {max}, else {default}"),
        Cost::Method { costs, default } => {
            let each = costs
                .iter()
                .map(|(method, cost)| format!("{method} {cost}"));
            let each: Vec<String> = each.collect();
            format!("{}, else {default}", each.join(", "))
        }
        Cost::Custom(_) => "function".to_owned(),
    }
}

pub(super) fn on_failure(rule: &Rule) -> String {
    let policy = match rule.on_failure.unwrap_or_default() {
        OnFailure::Open => "open".to_owned(),
        OnFailure::Closed => "closed".to_owned(),
        OnFailure::Local(Replicas::Fixed(number)) => format!("local, {number} replicas"),
        OnFailure::Local(Replicas::Counted { at_least }) => {
            format!("local, at least {at_least} replicas")
        }
    };
    match rule.deadline {
        None => policy,
        Some(deadline) => format!("{policy}, within {deadline:?}"),
    }
}

pub(super) fn on_missing(missing: Missing) -> &'static str {
    match missing {
        Missing::Refuse => "refuse",
        Missing::Pass => "pass",
        Missing::Shared => "shared",
    }
}

pub(super) fn max_delay(delay: Option<Duration>) -> String {
    delay.map_or("any".to_owned(), |delay| format!("{delay:?}"))
}

pub(super) fn answers(answers: &StatusFilter) -> String {
    let list = |statuses: &[StatusRange]| texts(statuses).join(", ");
    match answers {
        StatusFilter::All => "all responses".to_owned(),
        StatusFilter::Only(statuses) => format!("only {}", list(statuses)),
        StatusFilter::Except(statuses) => format!("all except {}", list(statuses)),
        StatusFilter::Custom(_) => "function".to_owned(),
    }
}

pub(super) fn tier_by(limits: &RuleLimits) -> String {
    match limits {
        RuleLimits::Same(_) => "no tiers".to_owned(),
        RuleLimits::Tiered(tiers) => {
            let by = match tiers.by() {
                TierBy::Header(name) => format!("header {name}"),
                TierBy::Keys(keys) => format!("a list of {} keys", keys.len()),
                TierBy::Custom(_) => "function".to_owned(),
            };
            format!("{by}, else {}", tiers.default_tier())
        }
    }
}

/// The limits of a rule: tier and name of the counter, and its quota.
pub(super) fn limits(rule: &Rule) -> Vec<((Option<String>, String), Quota)> {
    let named = |tier: Option<String>, quotas: &Quotas| -> Vec<_> {
        let limits = quotas.under(&rule.name);
        limits
            .map(|(name, quota)| ((tier.clone(), name), *quota))
            .collect()
    };
    match &rule.limits {
        RuleLimits::Same(quotas) => named(None, quotas),
        RuleLimits::Tiered(tiers) => {
            let each = tiers.tiers().iter();
            each.flat_map(|(tier, quotas)| named(Some(tier.to_string()), quotas))
                .collect()
        }
    }
}
