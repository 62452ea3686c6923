//! Lints: valid rules that probably do not do what was intended. Reported as warnings with stable
//! codes, documented in docs/rules.md.

mod binding;
mod trust;

use crate::MAX_LIMITS;
use crate::rules::{Cost, Missing, Override, OverrideAction, Rule};

use super::diagnostic::Diagnostics;
use super::source::Span;
use super::validate::{RuleSpans, SpannedConfig};

/// Path segments of endpoints where passwords are guessed.
const LOGIN_SEGMENTS: &str = "login logon signin sign-in sign_in auth authenticate oauth oauth2 \
    token tokens password passwords otp 2fa mfa reset-password forgot-password";

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
    }
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
    }
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
