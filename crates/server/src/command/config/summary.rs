//! One-line summaries of the fields of a rule. They contain no keys of clients.

use std::time::Duration;

use tallygate::http::{ActualCost, ActualSource};
use tallygate::{LeaseSettings, OnFailure, Replicas};
use tallygate_core::Quota;

use tallygate::rules::{
    Cost, CostSource, HeaderCondition, Matcher, Missing, Name, Part, Quotas, Rule, RuleLimits,
    Share, StatusFilter, StatusRange, TierBy,
};

pub(in crate::command) fn matcher(when: &Matcher) -> String {
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

pub(in crate::command) fn key(parts: &[Part]) -> String {
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
        Cost::FirstOf {
            sources,
            default,
            min,
            max,
        } => {
            let each = sources.iter().map(|source| match source {
                CostSource::Header(name) => format!("header {name}, {min} to {max}"),
                CostSource::Json(path) => format!("json {path}, {min} to {max}"),
                CostSource::JsonText { path, costs } => {
                    let texts = costs.iter().map(|(text, cost)| format!("{text} {cost}"));
                    let texts: Vec<String> = texts.collect();
                    format!("json {path} ({})", texts.join(", "))
                }
            });
            let each: Vec<String> = each.collect();
            format!("{}, else {default}", each.join(", else "))
        }
        Cost::Method { costs, default } => {
            let each = costs
                .iter()
                .map(|(method, cost)| format!("{method} {cost}"));
            let each: Vec<String> = each.collect();
            format!("{}, else {default}", each.join(", "))
        }
        Cost::Path { costs, default } => {
            let each = costs.iter().map(|(path, cost)| format!("{path} {cost}"));
            let each: Vec<String> = each.collect();
            format!("{}, else {default}", each.join(", "))
        }
        Cost::Custom(_) => "function".to_owned(),
    }
}

pub(super) fn actual(actual: Option<&ActualCost>) -> String {
    let sources = actual.map_or(&[][..], ActualCost::sources).iter();
    let each = sources.map(|source| match source {
        ActualSource::Header(name) => format!("header {name}"),
        ActualSource::Json(path) => format!("json {path}"),
    });
    let each: Vec<String> = each.collect();
    match each.is_empty() {
        true => "none".to_owned(),
        false => each.join(", else "),
    }
}

pub(super) fn share(share: Option<&Share>) -> String {
    let Some(share) = share else {
        return "none".to_owned();
    };
    // The names of members may be keys.
    let named = match share.weights.len() {
        0 => String::new(),
        1 => ", 1 with a weight".to_owned(),
        count => format!(", {count} with weights"),
    };
    format!(
        "by {}, weight {}{named}",
        key(&share.by),
        share.default.get()
    )
}

pub(super) fn budget(rule: &Rule) -> String {
    let budget = rule.budget.as_ref();
    budget.map_or_else(|| "none".to_owned(), ToString::to_string)
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

pub(super) fn lease(lease: Option<LeaseSettings>) -> String {
    lease.map_or("none".to_owned(), |lease| {
        let LeaseSettings { max, hold, .. } = lease;
        let keys = if lease.hot_only {
            ", hot keys only"
        } else {
            ""
        };
        let units = max.map_or("its share of the units".to_owned(), |max| {
            format!("at most {max} units")
        });
        format!("{units} for {hold:?}{keys}")
    })
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

/// The limits of a rule: tier and name of the counter in a scope, and its quota.
pub(super) fn limits(rule: &Rule, scope: &Name) -> Vec<((Option<String>, String), Quota)> {
    let named = |tier: Option<String>, quotas: &Quotas| -> Vec<_> {
        let limits = quotas.under(scope);
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
