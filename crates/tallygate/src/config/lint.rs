//! Lints: valid rules that probably do not do what was intended. Reported as warnings with stable
//! codes, documented in docs/rules.md.

mod binding;
mod trust;

use std::collections::HashSet;

use ::http::Method;

use crate::rules::{Cost, HeaderMatcher, Matcher, Missing, Name, Override, OverrideAction, Rule};
use crate::{MAX_LIMITS, OnFailure, Replicas};

use super::diagnostic::Diagnostics;
use super::source::Span;
use super::validate::{RuleSpans, SpannedConfig};

/// Path segments of endpoints where passwords are guessed.
const LOGIN_SEGMENTS: &str = "login logon signin sign-in sign_in auth authenticate oauth oauth2 \
    token tokens password passwords otp 2fa mfa reset-password forgot-password";

/// Headers in which frameworks take another method than that of the request line.
const METHOD_OVERRIDES: [&str; 3] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];
/// The methods that are usually sent as a POST with such a header.
const OVERRIDDEN_METHODS: [Method; 3] = [Method::PUT, Method::PATCH, Method::DELETE];

/// The maximum number of rules that are compared pairwise.
const MAX_COMPARED: usize = 1_000;

pub(super) fn lint(config: &SpannedConfig, diagnostics: &mut Diagnostics) {
    if config.set.rules.is_empty() {
        let message = "there are no rules, so every request is admitted";
        diagnostics
            .warning("rules::no-rules", Span::start_of(0), message)
            .help("such as `rules: [{ name: all, key: ip, limits: 100/min }]`");
    }
    for (rule, spans) in config.enabled_rules() {
        login_fails_open(rule, spans, diagnostics);
        colon_parameter(rule, spans, diagnostics);
        if let (Cost::Constant(0), Some(span)) = (&rule.cost, spans.cost) {
            let message = "requests with a cost of 0 are always admitted";
            diagnostics
                .warning("rules::cost-zero", span, message)
                .help("remove `cost` for a cost of 1");
        }
        binding::within_rule(rule, spans, diagnostics);
        lease(rule, spans, config, diagnostics);
        callers(rule, spans, config, diagnostics);
    }
    unused_budgets(config, diagnostics);
    never_reached(config, diagnostics);
    if let Some(rule) = config.set.maybe_too_many_limits() {
        let message = format!("clients of the largest tiers have more than {MAX_LIMITS} limits");
        diagnostics
            .warning("rules::no-room", config.spans[rule].name, message)
            .help("such requests are refused with 503; give the tiers fewer limits");
    }
    binding::between_rules(config, diagnostics);
    trust::spoofable_keys(config, diagnostics);
    trust::invented_keys(config, diagnostics);
    if config.trusted_proxies.is_none() {
        trust::spoofable_stops(config, diagnostics);
        trust::untrusted_proxy(config, diagnostics);
        trust::spoofable_headers(config, diagnostics);
    }
    method_overrides(config, diagnostics);
}

impl SpannedConfig {
    fn enabled_rules(&self) -> impl Iterator<Item = (&Rule, &RuleSpans)> {
        let rules = self.set.rules.iter().zip(&self.spans);
        rules.filter(|(rule, _)| rule.enabled)
    }
}

fn login_fails_open(rule: &Rule, spans: &RuleSpans, diagnostics: &mut Diagnostics) {
    if rule.shadow || !matches!(rule.on_failure.unwrap_or_default(), crate::OnFailure::Open) {
        return;
    }
    let is_login = |segment: &str| {
        let mut logins = LOGIN_SEGMENTS.split(' ');
        logins.any(|login| login.eq_ignore_ascii_case(segment))
    };
    if let Some(span) = span_of_path(rule, spans, is_login) {
        let message = "this looks like a login, but admits requests while the store fails";
        diagnostics
            .warning(
                "rules::login-fails-open",
                spans.on_failure.unwrap_or(span),
                message,
            )
            .help("passwords can be guessed then; use `on_failure: closed` or `local`");
    }
}

/// Rules by method that a POST with an override header evades, if the application honours it and no
/// other rule limits such a POST.
fn method_overrides(config: &SpannedConfig, diagnostics: &mut Diagnostics) {
    let is_override = |header: &HeaderMatcher| METHOD_OVERRIDES.contains(&header.name.as_str());
    let rules: Vec<_> = config
        .enabled_rules()
        .filter(|(rule, _)| !rule.shadow)
        .collect();
    let mut headers = rules.iter().flat_map(|(rule, _)| &rule.matcher.headers);
    if headers.any(is_override) {
        return;
    }
    for (rule, spans) in &rules {
        let methods = &rule.matcher.methods;
        if !methods
            .iter()
            .any(|method| OVERRIDDEN_METHODS.contains(method))
        {
            continue;
        }
        let post = Matcher {
            methods: vec![Method::POST],
            ..rule.matcher.clone()
        };
        let mut others = rules.iter().take(MAX_COMPARED);
        if !others.any(|(other, _)| other.matcher.covers(&post)) {
            let message = "a POST with `X-HTTP-Method-Override` may evade this rule";
            diagnostics
                .warning("rules::method-override", spans.name, message)
                .help("if the application honours it, add POST to `method`");
        }
    }
}

/// Leases that never happen.
fn lease(rule: &Rule, spans: &RuleSpans, config: &SpannedConfig, diagnostics: &mut Diagnostics) {
    let (Some(_), Some(span)) = (rule.lease, spans.lease) else {
        return;
    };
    if config.chose_memory {
        let message = "the memory store needs no leases, and ignores them";
        diagnostics
            .warning("rules::lease-in-memory", span, message)
            .help("remove `lease`, or use Redis or Valkey");
        return;
    }
    let replicas = match rule.on_failure.unwrap_or_default() {
        OnFailure::Local(Replicas::Fixed(replicas))
        | OnFailure::Local(Replicas::Counted { at_least: replicas }) => replicas.get(),
        OnFailure::Open | OnFailure::Closed => 1,
    };
    // Two units, of a fourth for each process.
    let least = replicas.saturating_mul(8);
    for (quotas, quota_spans) in rule.limits.each().into_iter().zip(&spans.quotas) {
        for ((_, quota), quota_span) in quotas.iter().zip(quota_spans) {
            if quota.capacity() < least {
                let message = format!(
                    "a limit of {} is never leased: with {replicas} processes at least {least} \
                     are needed",
                    quota.capacity()
                );
                diagnostics
                    .warning("rules::lease-too-small", *quota_span, message)
                    .related(span, "the lease")
                    .help("its requests are checked one by one; remove `lease`");
            }
        }
    }
}

/// Shared limits without members, and concurrency limits that nobody releases.
fn callers(rule: &Rule, spans: &RuleSpans, config: &SpannedConfig, diagnostics: &mut Diagnostics) {
    for (quotas, quota_spans) in rule.limits.each().into_iter().zip(&spans.quotas) {
        for ((_, quota), span) in quotas.iter().zip(quota_spans) {
            if quota.algorithm().is_shared() && rule.share.is_none() {
                let message = "all requests are of one member, which gets all of this limit";
                diagnostics
                    .warning("rules::no-members", *span, message)
                    .help("such as `share: { by: [{ header: x-tenant }] }`");
            }
            if quota.algorithm().is_concurrent() && config.gateway.is_none() {
                let message = "forward-auth sees no end of a request, and cannot release its hold";
                diagnostics
                    .warning("rules::cannot-release", *span, message)
                    .help(
                        "behind /v1/auth a request counts for the whole hold time; use the gateway, \
                         the tower layer, or /v1/check with `release`",
                    );
            }
        }
    }
}

fn unused_budgets(config: &SpannedConfig, diagnostics: &mut Diagnostics) {
    let used: HashSet<&Name> = config
        .set
        .rules
        .iter()
        .filter_map(|rule| rule.budget.as_ref())
        .collect();
    for (name, span) in config
        .budgets
        .iter()
        .filter(|(name, _)| !used.contains(name))
    {
        let message = format!("no rule spends the budget `{name}`");
        diagnostics
            .warning("rules::unused-budget", *span, message)
            .help(format!("add `budget: {name}` to a rule, or remove it"));
    }
}

fn colon_parameter(rule: &Rule, spans: &RuleSpans, diagnostics: &mut Diagnostics) {
    let is_parameter = |segment: &str| segment.len() > 1 && segment.starts_with([':', '<']);
    if let Some(span) = span_of_path(rule, spans, is_parameter) {
        let message = "a segment that starts with `:` or `<` is matched literally";
        diagnostics
            .warning("rules::colon-parameter", span, message)
            .help("a parameter is written `{id}`");
    }
}

/// The span of the first path with a segment for which `test` holds.
fn span_of_path(rule: &Rule, spans: &RuleSpans, test: impl Fn(&str) -> bool) -> Option<Span> {
    let mut paths = rule.matcher.paths.iter().zip(&spans.paths);
    let found = paths.find(|(path, _)| path.as_str().split('/').any(&test));
    found.map(|(_, span)| *span)
}

/// Rules after one that has `stop: true` and matches all their requests.
fn never_reached(config: &SpannedConfig, diagnostics: &mut Diagnostics) {
    let rules: Vec<_> = config.enabled_rules().collect();
    for (number, (rule, spans)) in rules.iter().enumerate() {
        let stops = |(earlier, _): &&(&Rule, _)| {
            always_stops(earlier, &config.set.overrides) && earlier.matcher.covers(&rule.matcher)
        };
        let mut earlier = rules[..number].iter().take(MAX_COMPARED);
        if let Some((earlier, earlier_spans)) = earlier.find(stops) {
            let label = format!("`{}` matches all its requests and stops", earlier.name);
            let message = format!("`{}` never applies", rule.name);
            diagnostics
                .warning("rules::never-reached", spans.name, message)
                .related(earlier_spans.name, label)
                .help("move it before that rule, or remove `stop`");
        }
    }
}

fn always_stops(rule: &Rule, overrides: &[Override]) -> bool {
    let allows = |exception: &Override| {
        let mut rules = exception.rule.iter();
        rules.all(|name| *name == rule.name) && matches!(exception.action, OverrideAction::Allow)
    };
    rule.stop
        && !rule.shadow
        && rule.allow.is_empty()
        && (rule.on_missing != Missing::Pass || rule.key.is_empty())
        && !overrides.iter().any(allows)
}
