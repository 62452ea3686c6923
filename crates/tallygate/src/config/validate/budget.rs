//! Budgets, and what a rule counts by: its own key and limits, or those of a budget.

use std::collections::BTreeMap;

use super::clients::KeyShape;
use super::limits::LimitFields;
use super::settings::MAX_KEYS;
use super::{OptionalField, Span, Spanned, Text, Validator, code, schema};
use crate::config::diagnostic::did_you_mean;
use crate::rules::{Matcher, Name, Part, RuleLimits, Share, Source};

/// All budgets by name; `None` for those that are invalid.
pub(super) struct Budgets(BTreeMap<String, (Span, Option<CountedBy>)>);

/// A key and limits, of a rule or of a budget that it spends.
#[derive(Clone)]
pub(super) struct CountedBy {
    pub(super) budget: Option<Name>,
    /// `None` if it is invalid.
    pub(super) key: Option<Vec<Part>>,
    /// How many parts the key has, also if some are invalid. `None` if the budget is invalid.
    parts: Option<usize>,
    /// The limits and the spans of the quotas of each tier; `None` if they are invalid.
    pub(super) limits: Option<(RuleLimits, Vec<Vec<Span>>)>,
    pub(super) share: Option<Share>,
    pub(super) keys: Option<usize>,
    pub(super) spans: CountedBySpans,
}

#[derive(Clone, Default)]
pub(super) struct CountedBySpans {
    /// The parts of the key.
    pub(super) key: Vec<Span>,
    pub(super) keys: Option<Span>,
}

impl Budgets {
    /// The names of the valid budgets, and where each is first defined.
    pub(super) fn names(&self) -> Vec<(Name, Span)> {
        let budgets = self.0.values();
        let named =
            budgets.filter_map(|(span, budget)| Some((budget.as_ref()?.budget.clone()?, *span)));
        named.collect()
    }
}

impl CountedBy {
    /// The shape of the key. `None` if it is that of an invalid budget.
    pub(super) fn shape(&self) -> Option<KeyShape<'_>> {
        Some(KeyShape {
            length: self.parts?,
            parts: self.key.as_deref().unwrap_or_default(),
        })
    }

    fn is_valid(&self) -> bool {
        self.budget.is_some() && self.key.is_some() && self.limits.is_some()
    }

    fn same_definition(&self, other: &CountedBy) -> bool {
        let limits = |of: &CountedBy| of.limits.as_ref().map(|(limits, _)| limits.clone());
        self.key == other.key
            && self.keys == other.keys
            && self.share == other.share
            && limits(self) == limits(other)
    }
}

impl Validator<'_> {
    /// The budgets of all files.
    pub(super) fn budgets(&mut self, files: &[schema::RulesFile]) -> Budgets {
        let mut budgets = BTreeMap::<String, (Span, Option<CountedBy>)>::new();
        let tables = files.iter().filter_map(|file| file.budgets.value());
        for (name, field) in tables.flat_map(|table| &table.0) {
            let budget = field.get().and_then(|value| {
                let budget = self.budget(name, value, field.span);
                Some(budget).filter(CountedBy::is_valid)
            });
            let Some(text) = name.get() else { continue };
            let Some((first, known)) = budgets.get(&text.text) else {
                budgets.insert(text.text.clone(), (name.span, budget));
                continue;
            };
            if let (Some(known), Some(budget)) = (known, &budget)
                && !known.same_definition(budget)
            {
                let first = *first;
                let message = format!("budget {} is defined in two ways", text.quoted());
                self.error(code::BUDGET, name.span, message)
                    .label("differs")
                    .related(first, "first defined here")
                    .help("all rules of a budget have its key and limits; define it once");
            }
        }
        Budgets(budgets)
    }

    fn budget(&mut self, name: &Spanned<Text>, field: &schema::Budget, span: Span) -> CountedBy {
        let fields = LimitFields {
            shown: "a budget",
            span,
            limits: &field.limits,
            tier: &field.tier,
            tiers: &field.tiers,
            share: &field.share,
        };
        // Path parameters are those of each rule.
        let mut budget = self.key_and_limits(&field.key, &fields, None);
        budget.budget = self.name(name);
        budget.keys = self.integer("keys", &field.keys, 1..=MAX_KEYS);
        budget.spans.keys = field.keys.span();
        budget
    }

    fn key_and_limits(
        &mut self,
        key: &Option<Spanned<schema::KeyParts>>,
        fields: &LimitFields<'_>,
        matcher: Option<&Matcher>,
    ) -> CountedBy {
        let parts = key.value();
        let (key, spans) = match parts {
            None => (Some(Vec::new()), Vec::new()),
            Some(parts) => self.key(parts, key.span().unwrap_or(fields.span), matcher),
        };
        let mut counted_by = CountedBy {
            budget: None,
            key,
            parts: Some(parts.map_or(0, |parts| parts.0.len())),
            limits: None,
            share: None,
            keys: None,
            spans: CountedBySpans {
                key: spans,
                keys: None,
            },
        };
        let shape = counted_by.shape().unwrap_or_default();
        let limits = self.limits(fields, shape);
        let share = match fields.share {
            None => Some(None),
            Some(share) => self.share(share, limits.as_ref(), matcher).map(Some),
        };
        // An invalid share has been reported.
        if let Some((limits, share)) = limits.zip(share) {
            (counted_by.limits, counted_by.share) = (Some(limits), share);
        }
        counted_by
    }

    /// What a rule counts by.
    pub(super) fn counted_by(
        &mut self,
        rule: &schema::Rule,
        span: Span,
        matcher: &Matcher,
        budgets: &Budgets,
    ) -> CountedBy {
        if let Some(name) = &rule.budget {
            let budget = self.budget_of_rule(rule, name, matcher, budgets);
            return budget.cloned().unwrap_or(CountedBy {
                budget: None,
                key: None,
                parts: None,
                limits: None,
                share: None,
                keys: None,
                spans: CountedBySpans::default(),
            });
        }
        let fields = LimitFields {
            shown: "a rule",
            span,
            limits: &rule.limits,
            tier: &rule.tier,
            tiers: &rule.tiers,
            share: &rule.share,
        };
        let mut own = self.key_and_limits(&rule.key, &fields, Some(matcher));
        own.keys = self.integer("keys", &rule.keys, 1..=MAX_KEYS);
        own.spans.keys = rule.keys.span();
        own
    }

    fn budget_of_rule<'b>(
        &mut self,
        rule: &schema::Rule,
        name: &Spanned<Text>,
        matcher: &Matcher,
        budgets: &'b Budgets,
    ) -> Option<&'b CountedBy> {
        let mut valid = true;
        for (field, span) in [
            ("key", rule.key.span()),
            ("limits", rule.limits.span()),
            ("tier", rule.tier.span()),
            ("tiers", rule.tiers.span()),
            ("share", rule.share.span()),
            ("keys", rule.keys.span()),
        ] {
            if let Some(span) = span {
                let message = format!("`{field}` is not allowed in a rule with a `budget`");
                self.error(code::CONTRADICTION, span, message)
                    .related(name.span, "the budget has a key and limits")
                    .help(format!("remove `{field}`, or `budget`"));
                valid = false;
            }
        }
        let text = name.get()?;
        let Some((_, budget)) = budgets.0.get(&text.text) else {
            let help = did_you_mean(&text.text, budgets.0.keys().map(String::as_str));
            let help = help.filter(|_| text.is_literal());
            let message = format!("unknown budget {}", text.quoted());
            self.error(code::BUDGET, name.span, message)
                .help(help.unwrap_or_else(|| {
                    "define it at the top level: `budgets: { api: { key: ip, limits: 100/min } }`"
                        .to_owned()
                }));
            return None;
        };
        // An invalid budget has been reported.
        let budget = budget.as_ref()?;
        let parts = budget.key.iter().flatten().zip(&budget.spans.key);
        let lacks = |part: &Part| {
            part.sources().any(|source| match source {
                Source::Path(parameter) => !matcher.has_parameter(parameter),
                _ => false,
            })
        };
        for (_, span) in parts.filter(|(part, _)| lacks(part)) {
            let message = format!(
                "not every path of this rule has the parameter by which budget {} counts",
                text.quoted()
            );
            self.error(code::KEY, name.span, message)
                .related(*span, "the key of the budget")
                .help("a path names parameters in braces: `match: { path: '/users/{id}' }`");
            valid = false;
        }
        if let Some(share) = &budget.share
            && share.by.iter().any(lacks)
        {
            let message = format!(
                "not every path of this rule has the parameter by which budget {} tells members \
                 apart",
                text.quoted()
            );
            self.error(code::KEY, name.span, message)
                .help("a path names parameters in braces: `match: { path: '/users/{id}' }`");
            valid = false;
        }
        valid.then_some(budget)
    }
}
