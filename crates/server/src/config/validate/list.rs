//! Lists of clients, and what holds for some of them. Keys are never told.

use std::collections::HashMap;

use super::{At, Checker, Names, Problem, Span, code, schema};
use crate::config::diagnostic::did_you_mean;
use crate::config::field::OneOrMany;
use tallygate::rules::{Entry, Instead, KeyText, Kinds, Override, Part, Rule, Source};

/// A rule's key, as lists go by it.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    /// How many parts it has.
    pub(super) length: usize,
    /// The parts; none where one of them is wrong, which has been told.
    pub(super) parts: &'a [Part],
}

/// The key of a rule that limits all together.
const NO_KEY: Shape<'_> = Shape {
    length: 0,
    parts: &[],
};

/// The rules that overrides may be for.
pub(super) struct Listed<'a> {
    /// Every name; no rule where it is wrong itself.
    by_name: HashMap<&'a str, Option<&'a Rule>>,
    rules: &'a [Rule],
    kinds: Kinds<'a>,
}

impl<'a> Listed<'a> {
    pub(super) fn of(rules: &'a [Rule], names: &'a Names) -> Self {
        let mut by_name: HashMap<_, _> = names.keys().map(|name| (name.as_str(), None)).collect();
        by_name.extend(rules.iter().map(|rule| (rule.name.as_str(), Some(rule))));
        Listed {
            by_name,
            rules,
            kinds: Kinds::of(rules),
        }
    }
}

impl Checker<'_> {
    /// The entries of `allow` or `deny`.
    pub(super) fn entries(
        &mut self,
        at: Option<&At<OneOrMany<schema::Entry>>>,
        shape: Shape<'_>,
    ) -> Vec<Entry> {
        let list = at.and_then(At::get).map_or(&[][..], |list| &list.0);
        let entry = |at: &At<schema::Entry>| self.entry(at, shape);
        list.iter().filter_map(entry).collect()
    }

    fn entry(&mut self, at: &At<schema::Entry>, shape: Shape<'_>) -> Option<Entry> {
        match at.get()? {
            schema::Entry::Text(at) => {
                let network = self.network(at);
                if network.is_none()
                    && let Some(problem) = self.problems.last_mut()
                {
                    let hint = "a network is like 192.0.2.0/24, a key like `{ key: … }`";
                    problem.help = Some(hint.to_owned());
                }
                network.map(Entry::Network)
            }
            schema::Entry::Map(map) => {
                let key = map.key.get()?;
                let text = self.key_text(key, map.key.span, shape)?;
                Some(Entry::Key(text))
            }
        }
    }

    /// A key that some client may have by the rule's.
    pub(super) fn key_text(
        &mut self,
        raw: &schema::Key,
        span: Span,
        shape: Shape<'_>,
    ) -> Option<KeyText> {
        let texts: Vec<(&str, Span)> = match raw {
            schema::Key::Text(secret) => vec![(secret.0.text.as_str(), span)],
            schema::Key::List(list) => list
                .iter()
                .map(|at| at.get().map(|secret| (secret.0.text.as_str(), at.span)))
                .collect::<Option<_>>()?,
        };
        let (given, length) = (texts.len(), shape.length);
        if given == 0 || given != length {
            return self.other_length(given, length, span);
        }
        for ((text, span), part) in texts.iter().zip(shape.parts) {
            if let Some(why) = part.never_says(text) {
                let message = format!("nobody has this key: a part of it {why}");
                let problem = Problem::error(code::KEY, *span, message);
                let hint = match part.sources().next() {
                    Some(Source::Ip) => "an address is like 192.0.2.7; a network has no `key`",
                    Some(Source::Constant(_)) => "the rule's key has it as a `constant`",
                    _ => "what happens to those who lack a part is up to `on_missing`",
                };
                return self.refuse(problem.help(hint));
            }
        }
        Some(KeyText::new(texts.into_iter().map(|(text, _)| text)))
    }

    fn other_length<T>(&mut self, given: usize, length: usize, span: Span) -> Option<T> {
        let (message, hint) = match (given, length) {
            (0, _) => (
                "a key without any part is listed".to_owned(),
                "write a text for each part of the rule's key: `{ key: health-checker }`",
            ),
            (_, 0) => (
                "a key is listed, and this rule limits all together".to_owned(),
                "say who is limited: `key: [{ header: x-api-key }]`",
            ),
            (_, _) => (
                format!("a key of {given} parts is listed, and the rule's has {length}"),
                "write a text for each part, in order: `key: [tenant-7, user-42]`",
            ),
        };
        self.refuse(Problem::error(code::KEY, span, message).help(hint))
    }

    /// What holds for some instead of a rule.
    pub(super) fn over<'r>(
        &mut self,
        raw: &schema::Override,
        span: Span,
        listed: &Listed<'r>,
    ) -> Option<Override> {
        let instead = self.instead(raw, span);
        let mut rule = None;
        if let Some(at) = &raw.rule {
            let text = at.get()?;
            let Some(known) = listed.by_name.get(text.text.as_str()) else {
                let message = format!("there is no rule {}", text.shown());
                let problem = Problem::error(code::OVERRIDE, at.span, message);
                let known = listed.by_name.keys().copied();
                let near = did_you_mean(&text.text, known).filter(|_| text.is_public());
                return self.refuse(problem.maybe_help(near));
            };
            // The rule itself may be wrong; that has been told.
            rule = Some((*known)?);
        }
        let of = |rule: &'r Rule| Shape {
            length: rule.key.len(),
            parts: &rule.key,
        };
        let shape = match (rule, raw.who.get()?) {
            (Some(rule), _) => of(rule),
            (None, schema::Entry::Text(_)) => NO_KEY,
            (None, schema::Entry::Map(map)) => self.rule_for_all(map, listed)?.map_or(NO_KEY, of),
        };
        let who = self.entry(&raw.who, shape)?;
        Some(Override {
            rule: rule.map(|rule| rule.name.clone()),
            who,
            instead: instead?,
        })
    }

    /// A rule whose key stands for all that a listed one without a rule is for: where none has as
    /// many parts, the one with the most. None if it would stand for different clients.
    fn rule_for_all<'r>(
        &mut self,
        map: &schema::KeyEntry,
        listed: &Listed<'r>,
    ) -> Option<Option<&'r Rule>> {
        let given = match map.key.get()? {
            schema::Key::Text(_) => 1,
            schema::Key::List(list) => list.len(),
        };
        match listed.kinds.of_length(given) {
            Some((first, Some(other))) => {
                let (first, other) = (&first.name, &other.name);
                let message =
                    format!("`{first}` and `{other}` find such a key in different places");
                let problem = Problem::error(code::OVERRIDE, map.key.span, message);
                self.refuse(problem.help(format!("name the rule it is for: `rule: {first}`")))
            }
            Some((first, None)) => Some(Some(first)),
            None => Some(listed.rules.iter().max_by_key(|rule| rule.key.len())),
        }
    }

    fn instead(&mut self, raw: &schema::Override, span: Span) -> Option<Instead> {
        for (field, at) in [("allow", &raw.allow), ("deny", &raw.deny)] {
            if let Some(at) = at
                && at.get().is_some_and(|flag| !flag.0)
            {
                let message = format!("`{field}: false` says nothing");
                let problem = Problem::error(code::OVERRIDE, at.span, message);
                return self.refuse(problem.help(format!("leave `{field}` out")));
            }
        }
        match (&raw.limits, &raw.allow, &raw.deny) {
            (Some(limits), None, None) => {
                let (quotas, _) = self.quotas(limits)?;
                Some(Instead::Limits(quotas))
            }
            (None, Some(_), None) => Some(Instead::Allow),
            (None, None, Some(_)) => Some(Instead::Deny),
            (None, None, None) if self.meant_in(span) => None,
            (None, None, None) => {
                let message = "an override needs `limits`, `allow` or `deny`";
                let problem = Problem::error(code::MISSING_FIELD, span, message);
                self.refuse(problem.help("such as `limits: 1000/min`, or `deny: true`"))
            }
            (Some(_), _, _) | (None, Some(_), Some(_)) => {
                let message = "an override has one of `limits`, `allow` and `deny`";
                self.refuse(Problem::error(code::CONTRADICTION, span, message))
            }
        }
    }
}
