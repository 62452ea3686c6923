//! Validates the deserialized files and builds rules and settings from them. Reports every invalid
//! value.

mod budget;
mod clients;
mod cost;
mod gateway;
mod key;
mod lease;
mod limits;
mod matcher;
mod rule;
#[cfg(feature = "simulate")]
mod scenario;
mod settings;
mod shards;
mod share;

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderName;
use tallygate_core::Quota;

use super::deserialize::Suggestion;
use super::diagnostic::{Diagnostic, Diagnostics, code, either};
use super::schema::{self, Integer, OneOrMany, OptionalField, OptionalList, Spanned, Text};
use super::source::{Sources, Span};
use crate::http::Network;
use crate::rules::{Name, RuleSet, RuleSetError, TextError};

pub use gateway::{GatewayConfig, GatewaySizes, GatewayTimeouts};
pub(super) use rule::RuleSpans;
#[cfg(feature = "simulate")]
pub(super) use scenario::validate_scenario;
pub use settings::{DEFAULT_KEYS, RefusalCacheConfig, StoreConfig};

/// Every request is matched against all rules.
const MAX_RULES: usize = 2_000;
const MAX_BUDGETS: usize = 2_000;
const MAX_OVERRIDES: usize = 10_000;

/// The validated files, with the spans that lints point at.
pub(super) struct SpannedConfig {
    pub(super) set: RuleSet,
    pub(super) store: StoreConfig,
    /// Whether the file says `memory`.
    pub(super) chose_memory: bool,
    pub(super) gateway: Option<GatewayConfig>,
    pub(super) spans: Vec<RuleSpans>,
    /// The budgets and where they are first defined.
    pub(super) budgets: Vec<(Name, Span)>,
    pub(super) trusted_proxies: Option<Span>,
}

/// Validates the main file and the files it includes. The result must not be used if errors are
/// reported.
pub(super) fn validate(
    files: &[schema::RulesFile],
    sources: &Sources,
    suggestions: &[Suggestion],
    diagnostics: &mut Diagnostics,
) -> SpannedConfig {
    let mut validator = Validator {
        sources,
        suggestions,
        diagnostics,
    };
    let mut names = HashMap::new();
    let mut config = SpannedConfig {
        set: RuleSet::default(),
        store: StoreConfig::default(),
        chose_memory: false,
        gateway: None,
        spans: Vec::new(),
        budgets: Vec::new(),
        trusted_proxies: None,
    };
    let mut defaults = rule::RuleDefaults::default();
    let budgets = validator.budgets(files);
    config.budgets = budgets.names();
    for (index, file) in files.iter().enumerate() {
        validator.version(file);
        if index == 0 {
            config.store = validator.store(file);
            config.chose_memory = validator.chose_memory(file);
            config.gateway = validator.gateway(file);
            config.set.client = validator.client_address(file);
            config.trusted_proxies = file.trusted_proxies.span();
            defaults = validator.rule_defaults(file);
        } else {
            validator.no_settings(file);
        }
        for field in file.rules.items() {
            let Some(rule) = field.get() else { continue };
            validator.unique_name(&rule.name, &mut names);
            if let Some((rule, spans)) = validator.rule(rule, field.span, &defaults, &budgets) {
                config.set.rules.push(rule);
                config.spans.push(spans);
            }
        }
    }
    let index = clients::RuleIndex::new(&config.set.rules, &names);
    let fields = files.iter().flat_map(|file| file.overrides.items());
    let overrides = fields.filter_map(|field| {
        let value = field.get()?;
        validator.client_override(value, field.span, &index)
    });
    config.set.overrides = overrides.collect();
    let rules = files.iter().flat_map(|file| file.rules.items());
    validator.max_items("rules", rules.map(|rule| rule.span), MAX_RULES);
    let budgets = files.iter().filter_map(|file| file.budgets.value());
    let spans = budgets.flat_map(|table| table.0.iter().map(|(name, _)| name.span));
    validator.max_items("budgets", spans, MAX_BUDGETS);
    let overrides = files.iter().flat_map(|file| file.overrides.items());
    let spans = overrides.map(|field| field.span);
    validator.max_items("overrides", spans, MAX_OVERRIDES);
    validator.memory_parts(&config);
    config
}

impl SpannedConfig {
    /// Reports contradictions between valid rules.
    pub(super) fn report_faults(&self, diagnostics: &mut Diagnostics) {
        for fault in self.set.validate() {
            let message = fault.to_string();
            if let RuleSetError::TooManyLimits { rule } = fault {
                diagnostics
                    .error(code::TOO_MANY, self.spans[rule].name, message)
                    .help("its requests would be refused; merge limits, or use `stop` earlier");
            } else {
                // Not expected: the fields have been validated one by one.
                diagnostics.error(code::CONTRADICTION, Span::start_of(0), message);
            }
        }
    }
}

/// Parses a duration from 1 ms to 366 days.
fn parse_duration(text: &str) -> Option<Duration> {
    if text.contains([' ', '/']) {
        return None;
    }
    let quota = format!("1/{text}").parse::<Quota>().ok()?;
    Some(quota.period())
}

struct Validator<'a> {
    sources: &'a Sources,
    suggestions: &'a [Suggestion],
    diagnostics: &'a mut Diagnostics,
}

/// The names of all rules, invalid ones included, and their spans.
type Names = HashMap<String, Span>;

impl Validator<'_> {
    fn error(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.diagnostics.error(code, span, message)
    }

    fn exactly_one(
        &mut self,
        name: &str,
        span: Span,
        fields: &[(&str, bool)],
        help: &str,
    ) -> Option<()> {
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        match fields.iter().filter(|(_, given)| *given).count() {
            1 => return Some(()),
            // An unknown field with a suggestion has been reported.
            0 if self.suggestions.iter().any(|(of, _)| *of == span) => {}
            0 => {
                let message = format!("missing field in {name}: expected {}", either(&names));
                self.error(code::MISSING_FIELD, span, message).help(help);
            }
            _ => {
                let message = format!("{name}: expected only one of {}", either(&names));
                let message = message.replace(" or ", " and ");
                self.error(code::CONTRADICTION, span, message).help(help);
            }
        }
        None
    }

    fn non_empty<'f, T>(
        &mut self,
        name: &str,
        field: impl Into<Option<&'f Spanned<OneOrMany<T>>>>,
        help: impl Into<String>,
    ) -> &'f [Spanned<T>] {
        let Some((field, list)) = field.into().and_then(|field| Some((field, field.get()?))) else {
            return &[];
        };
        if list.0.is_empty() {
            let message = format!("`{name}` is an empty list");
            self.error(code::NO_VALUE, field.span, message).help(help);
        }
        &list.0
    }

    fn max_items(&mut self, name: &str, mut spans: impl Iterator<Item = Span>, max: usize) {
        if let Some(span) = spans.nth(max) {
            let message = format!("more than {max} {name}");
            self.error(code::TOO_MANY, span, message);
        }
    }

    fn unique_name(&mut self, name: &Spanned<Text>, names: &mut Names) {
        let Some(text) = name.get() else { return };
        if let Some(&first) = names.get(&text.text) {
            let message = format!("duplicate rule name {}", text.quoted());
            self.error(code::DUPLICATE_NAME, name.span, message)
                .label("duplicate")
                .related(first, "first defined here")
                .help("counters and metrics use the name; rename one of the rules");
            return;
        }
        names.insert(text.text.clone(), name.span);
    }

    fn name(&mut self, field: &Spanned<Text>) -> Option<Name> {
        if !field.get()?.is_literal() {
            let message = "a name must not contain variables";
            self.error(code::VARIABLE, field.span, message)
                .help("names are public in counters and metrics");
            return None;
        }
        self.parse(code::NAME, field)
    }

    /// An integer within bounds, if the field is given.
    fn integer<'f, T>(
        &mut self,
        name: &str,
        field: impl Into<Option<&'f Spanned<Integer>>>,
        range: RangeInclusive<T>,
    ) -> Option<T>
    where
        T: TryFrom<u64> + PartialOrd + Display + Copy,
    {
        let field = field.into()?;
        let Integer(number) = *field.get()?;
        let value = T::try_from(number).ok();
        if let Some(value) = value.filter(|value| range.contains(value)) {
            return Some(value);
        }
        // Do not show a value from the environment.
        let is_literal = self.text_start(field.span, &number.to_string()).is_some();
        let found = if is_literal {
            format!(" {number}")
        } else {
            String::new()
        };
        let message = match value.is_some_and(|value| value < *range.start()) {
            true => format!("`{name}`{found} is below the minimum of {}", range.start()),
            false => format!("`{name}`{found} is above the maximum of {}", range.end()),
        };
        self.error(code::OUT_OF_RANGE, field.span, message);
        None
    }

    fn cost_or(
        &mut self,
        name: &str,
        field: &Option<Spanned<Integer>>,
        default: u32,
    ) -> Option<u32> {
        match field {
            None => Some(default),
            Some(field) => self.integer(name, field, 0..=u32::MAX),
        }
    }

    fn parse<T: FromStr<Err = TextError>>(
        &mut self,
        code: &'static str,
        field: &Spanned<Text>,
    ) -> Option<T> {
        let help = |error: &TextError| format!("expected something like {}", error.example());
        self.parse_or_help(code, field, help)
    }

    fn network(&mut self, field: &Spanned<Text>, help: &str) -> Option<Network> {
        self.parse_or_help(code::NETWORK, field, |_| help.to_owned())
    }

    fn parse_or_help<T: FromStr<Err = TextError>>(
        &mut self,
        code: &'static str,
        field: &Spanned<Text>,
        help: impl FnOnce(&TextError) -> String,
    ) -> Option<T> {
        let text = field.get()?;
        let error = match text.text.parse() {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let message = format!("{} {}", text.quoted(), error.reason());
        self.error(code, field.span, message).help(help(&error));
        None
    }

    /// A quota. Errors point inside its text.
    fn quota(&mut self, field: &Spanned<Text>) -> Option<Quota> {
        let text = field.get()?;
        let error = match text.text.parse::<Quota>() {
            Ok(quota) => return Some(quota),
            Err(error) => error,
        };
        let mut span = field.span;
        let mut message = format!("invalid quota {}", text.quoted());
        // The value of a variable may be a secret.
        let mut help = format!("a valid quota: `{}`", error.example_text());
        if text.is_literal() {
            message = error.problem().to_string();
            if let Some(meant) = error.suggestion() {
                help = format!("did you mean `{meant}`?");
            }
            if let Some(range) = error.span()
                && let Some(start) = self.text_start(span, &text.text)
            {
                span = Span::new(span.file, start + range.start..start + range.end);
            }
        }
        self.error(code::QUOTA, span, message).help(help);
        None
    }

    /// A duration, in the syntax of a quota's period.
    fn duration<'f>(&mut self, field: impl Into<Option<&'f Spanned<Text>>>) -> Option<Duration> {
        let field = field.into()?;
        let text = field.get()?;
        let duration = parse_duration(&text.text);
        if duration.is_some() {
            return duration;
        }
        let message = format!("invalid duration {}, expected 1ms to 366d", text.quoted());
        self.error(code::DURATION, field.span, message)
            .help("expected a duration such as `20ms`, `5s` or `1min30s`");
        None
    }

    fn header_name(&mut self, field: &Spanned<Text>) -> Option<HeaderName> {
        let text = field.get()?;
        let name = HeaderName::from_bytes(text.text.as_bytes());
        if name.is_err() {
            let message = format!("invalid header name {}", text.quoted());
            self.error(code::HEADER, field.span, message)
                .help("expected a name such as `x-api-key`, without `:` and spaces");
        }
        name.ok()
    }

    fn non_empty_text(&mut self, name: &str, field: &Spanned<Text>) -> Option<String> {
        let text = &field.get()?.text;
        if text.is_empty() {
            self.error(code::NO_VALUE, field.span, format!("`{name}` is empty"));
            return None;
        }
        Some(text.clone())
    }

    /// The offset at which a text starts in its file, if it is there literally.
    fn text_start(&self, span: Span, text: &str) -> Option<usize> {
        let source = self.sources.slice(span);
        let at = source.find(text)?;
        // It may only be surrounded by quotes.
        (at <= 1 && source.len() <= text.len() + 2).then_some(span.start as usize + at)
    }
}
