//! Lists of clients (`allow`, `deny`) and overrides. Keys never appear in messages.

use std::collections::HashMap;

use super::{Names, OneOrMany, OptionalList, Span, Spanned, Validator, code, schema};
use crate::config::diagnostic::did_you_mean;
use crate::config::schema::Shorthand;
use crate::rules::{KeyShapes, KeyText, ListEntry, Override, OverrideAction, Part, Rule, Source};

/// The key of a rule, for the keys in its lists.
#[derive(Clone, Copy, Default)]
pub(super) struct KeyShape<'a> {
    pub(super) length: usize,
    /// The parts; empty if one of them is invalid.
    pub(super) parts: &'a [Part],
}

impl<'a> KeyShape<'a> {
    fn from_rule(rule: &'a Rule) -> Self {
        KeyShape {
            length: rule.key.len(),
            parts: &rule.key,
        }
    }
}

pub(super) struct RuleIndex<'a> {
    /// All names; `None` for rules that are invalid.
    by_name: HashMap<&'a str, Option<&'a Rule>>,
    rules: &'a [Rule],
    shapes: KeyShapes<'a>,
}

impl<'a> RuleIndex<'a> {
    pub(super) fn new(rules: &'a [Rule], names: &'a Names) -> Self {
        let mut by_name: HashMap<_, _> = names.keys().map(|name| (name.as_str(), None)).collect();
        by_name.extend(rules.iter().map(|rule| (rule.name.as_str(), Some(rule))));
        RuleIndex {
            by_name,
            rules,
            shapes: KeyShapes::new(rules),
        }
    }
}

impl Validator<'_> {
    /// The entries of `allow` or `deny`.
    pub(super) fn clients(
        &mut self,
        field: &Option<Spanned<OneOrMany<schema::Client>>>,
        shape: KeyShape<'_>,
    ) -> Vec<ListEntry> {
        let items = field.items().iter();
        items.filter_map(|item| self.client(item, shape)).collect()
    }

    fn client(
        &mut self,
        field: &Spanned<schema::Client>,
        shape: KeyShape<'_>,
    ) -> Option<ListEntry> {
        match field.get()? {
            Shorthand::Value(text) => {
                let help = "expected a network such as 192.0.2.0/24, or a key such as `{ key: … }`";
                self.network(text, help).map(ListEntry::Network)
            }
            Shorthand::Map(entry) => {
                let text = self.key_text(entry.key.get()?, entry.key.span, shape)?;
                Some(ListEntry::Key(text))
            }
        }
    }

    /// A key that the rule can extract from a request.
    pub(super) fn key_text(
        &mut self,
        key: &schema::Key,
        span: Span,
        shape: KeyShape<'_>,
    ) -> Option<KeyText> {
        let mut texts = Vec::new();
        for part in &key.0 {
            texts.push((part.get()?.0.text.as_str(), part.span));
        }
        let (given, length) = (texts.len(), shape.length);
        if given == 0 || given != length {
            let (message, help) = match (given, length) {
                (0, _) => (
                    "the key has no parts".to_owned(),
                    "write a text for each part of the rule's key: `{ key: health-checker }`",
                ),
                (_, 0) => (
                    "the rule has no key".to_owned(),
                    "add a key to the rule: `key: [{ header: x-api-key }]`",
                ),
                _ => (
                    format!("the key has {given} parts, but the rule's key has {length}"),
                    "write a text for each part, in order: `key: [tenant-7, user-42]`",
                ),
            };
            self.error(code::KEY, span, message).help(help);
            return None;
        }
        for ((text, span), part) in texts.iter().zip(shape.parts) {
            if let Some(reason) = part.invalid_text(text) {
                let help = match part.sources().next() {
                    Some(Source::Ip) => {
                        "an address is written like 192.0.2.7; a network without `key`"
                    }
                    Some(Source::Constant(_)) => "the rule's key has a `constant` here",
                    _ => "`on_missing` decides about requests without a part",
                };
                let message = format!("no client has this key: a part of it {reason}");
                self.error(code::KEY, *span, message).help(help);
                return None;
            }
        }
        Some(KeyText::new(texts.into_iter().map(|(text, _)| text)))
    }

    pub(super) fn client_override(
        &mut self,
        field: &schema::Override,
        span: Span,
        index: &RuleIndex<'_>,
    ) -> Option<Override> {
        let action = self.override_action(field, span);
        let mut rule = None;
        if let Some(name) = &field.rule {
            let text = name.get()?;
            let Some(known) = index.by_name.get(text.text.as_str()) else {
                let help = did_you_mean(&text.text, index.by_name.keys().copied());
                let message = format!("unknown rule {}", text.quoted());
                self.error(code::OVERRIDE, name.span, message)
                    .maybe_help(help.filter(|_| text.is_literal()));
                return None;
            };
            // An invalid rule has been reported.
            rule = Some((*known)?);
        }
        if let (Some(OverrideAction::Limits(quotas)), Some(limits)) = (&action, &field.limits) {
            let rules = rule.map_or(index.rules, std::slice::from_ref);
            if let Some(settings) = rules.iter().find_map(|rule| rule.lease) {
                self.leasable_override(&settings, quotas, limits.span);
            }
        }
        let shape = match (rule, field.r#for.get()?) {
            (Some(rule), _) => KeyShape::from_rule(rule),
            (None, Shorthand::Value(_)) => KeyShape::default(),
            (None, Shorthand::Map(entry)) => self.common_shape(entry, index)?,
        };
        Some(Override {
            rule: rule.map(|rule| rule.name.clone()),
            client: self.client(&field.r#for, shape)?,
            action: action?,
        })
    }

    /// The key shape of an override for all rules: that of the rules with as many parts, which must
    /// agree, or else that of the rule with the most parts.
    fn common_shape<'r>(
        &mut self,
        entry: &schema::KeyEntry,
        index: &RuleIndex<'r>,
    ) -> Option<KeyShape<'r>> {
        let rule = match index.shapes.with_parts(entry.key.get()?.0.len()) {
            Some((first, Some(other))) => {
                let (first, other) = (&first.name, &other.name);
                let message = format!("the keys of `{first}` and `{other}` have different parts");
                self.error(code::OVERRIDE, entry.key.span, message)
                    .help(format!("add the rule: `rule: {first}`"));
                return None;
            }
            Some((first, None)) => Some(first),
            None => index.rules.iter().max_by_key(|rule| rule.key.len()),
        };
        Some(rule.map_or(KeyShape::default(), KeyShape::from_rule))
    }

    fn override_action(&mut self, field: &schema::Override, span: Span) -> Option<OverrideAction> {
        for (name, flag) in [("allow", &field.allow), ("deny", &field.deny)] {
            if let Some(flag) = flag
                && flag.get().is_some_and(|flag| !flag.0)
            {
                let message = format!("`{name}: false` has no effect");
                self.error(code::OVERRIDE, flag.span, message)
                    .help(format!("remove `{name}`"));
                return None;
            }
        }
        let fields = [
            ("limits", field.limits.is_some()),
            ("allow", field.allow.is_some()),
            ("deny", field.deny.is_some()),
        ];
        let help = "such as `limits: 1000/min` or `deny: true`";
        self.exactly_one("an override", span, &fields, help)?;
        match &field.limits {
            Some(limits) => Some(OverrideAction::Limits(self.quotas(limits)?.0)),
            None if field.allow.is_some() => Some(OverrideAction::Allow),
            None => Some(OverrideAction::Deny),
        }
    }
}
