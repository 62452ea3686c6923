//! Limits that clients can evade because they depend on what clients can forge.

use crate::rules::{HeaderCondition, Part, Rule, RuleLimits, Source, TierBy};

use super::{Diagnostics, RuleSpans, SpannedConfig};
use crate::config::source::Span;

/// Lists to which proxies append: clients can write the start of them.
const FORWARDED_HEADERS: [&str; 2] = ["x-forwarded-for", "forwarded"];
/// Addresses that some proxies set. Without a proxy, clients can set them.
const ADDRESS_HEADERS: [&str; 6] = [
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fly-client-ip",
];

/// Keys by a header in which a client can send another address with every request.
pub(super) fn spoofable_keys(config: &SpannedConfig, diagnostics: &mut Diagnostics) {
    for (rule, spans) in config.enabled_rules() {
        for (part, span) in rule.key.iter().zip(&spans.key) {
            let name = part.sources().find_map(|source| {
                let Source::Header(name) = source else {
                    return None;
                };
                let name = name.as_str();
                let list = FORWARDED_HEADERS.contains(&name);
                let address = ADDRESS_HEADERS.contains(&name) && config.trusted_proxies.is_none();
                (list || address).then_some(name)
            });
            if let Some(name) = name {
                diagnostics
                    .warning(
                        "rules::spoofable-key",
                        *span,
                        format!("clients can forge `{name}`"),
                    )
                    .help("use `ip`, the client's address, and `trusted_proxies`");
            }
        }
    }
}

/// A key that clients can invent, without a rule by address that bounds how many: they can fill the
/// rule's part of the memory. Only if the file itself chooses the memory store, and not by default
/// or by a variable, as in a test.
pub(super) fn invented_keys(config: &SpannedConfig, diagnostics: &mut Diagnostics) {
    if !config.chose_memory {
        return;
    }
    let by_ip = |rule: &Rule| {
        let mut parts = rule.key.iter().flat_map(Part::sources);
        !rule.shadow && rule.key.len() == 1 && parts.all(|source| *source == Source::Ip)
    };
    let is_bounded = |rule: &Rule| {
        let mut rules = config.enabled_rules();
        rules.any(|(other, _)| by_ip(other) && other.matcher.covers(&rule.matcher))
    };
    let invented = config.enabled_rules().find_map(|(rule, spans)| {
        let span = span_of_source(rule, spans, |source| {
            matches!(
                source,
                Source::Header(_) | Source::Cookie(_) | Source::Query(_)
            )
        })?;
        (!is_bounded(rule)).then_some(span)
    });
    if let Some(span) = invented {
        let message = "clients can invent keys until the rule's part of the memory is full";
        diagnostics
            .warning("rules::invented-keys", span, message)
            .help("new clients share a budget then; add a rule by `ip` for the same requests");
    }
}

/// Rules with `stop: true` that match by a header, without a proxy that could remove it: clients
/// can evade the rules after them.
pub(super) fn spoofable_stops(config: &SpannedConfig, diagnostics: &mut Diagnostics) {
    let rules: Vec<_> = config
        .enabled_rules()
        .filter(|(rule, _)| !rule.shadow)
        .collect();
    let Some((_, before_last)) = rules.split_last() else {
        return;
    };
    for (rule, spans) in before_last.iter().filter(|(rule, _)| rule.stop) {
        if let Some(header) = rule.matcher.headers.first() {
            let how = match header.condition {
                HeaderCondition::Absent => "without",
                HeaderCondition::Present | HeaderCondition::Matches(_) => "with",
            };
            let name = &header.name;
            let message = format!("clients can evade the rules after this one, {how} `{name}`");
            diagnostics
                .warning(
                    "rules::spoofable-stop",
                    spans.stop.unwrap_or(spans.name),
                    message,
                )
                .help(
                    "match by what clients cannot choose; if a proxy removes the header, add it to \
                     `trusted_proxies`",
                );
        }
    }
}

/// A limit by address in a file that relies on a proxy, but trusts none: all clients would have the
/// address of the proxy.
pub(super) fn untrusted_proxy(config: &SpannedConfig, diagnostics: &mut Diagnostics) {
    let mut rules = config.enabled_rules();
    let Some((evidence, label)) = rules.find_map(|(rule, spans)| relies_on_proxy(rule, spans))
    else {
        return;
    };
    let by_ip = |(rule, spans)| span_of_source(rule, spans, |source| *source == Source::Ip);
    if let Some(span) = config.enabled_rules().find_map(by_ip) {
        let message = "behind an untrusted proxy, all clients have the same address";
        diagnostics
            .warning("rules::untrusted-proxy", span, message)
            .related(evidence, label)
            .help("add the proxy: `trusted_proxies: [10.0.0.0/8]`");
    }
}

/// Tiers, costs and claims by a header, with no proxy that could set it: clients write it.
pub(super) fn spoofable_headers(config: &SpannedConfig, diagnostics: &mut Diagnostics) {
    for (rule, spans) in config.enabled_rules() {
        let mut chosen: Vec<&str> = Vec::new();
        for (what, _) in rule.proxy_headers() {
            if !chosen.contains(&what) {
                chosen.push(what);
            }
        }
        if !chosen.is_empty() {
            let message = format!("clients can choose their own {}", chosen.join(" and "));
            diagnostics
                .warning("rules::spoofable-header", spans.name, message)
                .help("add the proxy that sets the header: `trusted_proxies: [10.0.0.0/8]`");
        }
    }
}

/// The span of a header that only a proxy can set reliably.
fn relies_on_proxy(rule: &Rule, spans: &RuleSpans) -> Option<(Span, &'static str)> {
    let is_claim = |source: &Source| matches!(source, Source::Claim { .. });
    if let Some(span) = span_of_source(rule, spans, is_claim) {
        return Some((span, "a claim that a proxy has verified"));
    }
    if let RuleLimits::Tiered(tiers) = &rule.limits
        && matches!(tiers.by(), TierBy::Header(_))
    {
        return Some((spans.name, "its tiers are set by a proxy"));
    }
    let forwarded = rule.matcher.headers.iter().any(|header| {
        let name = header.name.as_str();
        name.starts_with("x-forwarded-") && !matches!(header.condition, HeaderCondition::Absent)
    });
    forwarded.then_some((spans.name, "it matches a header of a proxy"))
}

/// The span of the first key part with a source for which `test` holds.
fn span_of_source(rule: &Rule, spans: &RuleSpans, test: impl Fn(&Source) -> bool) -> Option<Span> {
    let has = |part: &Part| part.sources().any(&test);
    let mut parts = rule.key.iter().zip(&spans.key);
    parts.find(|(part, _)| has(part)).map(|(_, span)| *span)
}
