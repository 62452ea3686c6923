//! What rules cannot be, though each of their parts is right. Knows nothing of the file they are
//! written in: a fault names its rule by number.

use std::collections::HashMap;
use std::fmt;

use crate::MAX_LIMITS;

use super::{Cost, Entry, KeyText, Limits, MAX_PARTS, Name, Part, Rule, RuleSet, Source, TierBy};

/// What is wrong, and with which rule or override, by number from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Two rules have one name, so that they would share counters.
    SameName {
        /// The later one.
        rule: usize,
        /// The name.
        name: Name,
    },
    /// A key, or a part's places, are more than [`MAX_PARTS`].
    TooManyParts {
        /// The rule.
        rule: usize,
    },
    /// A key has a path parameter that a path of its rule does not have.
    NoParameter {
        /// The rule.
        rule: usize,
        /// The parameter.
        parameter: String,
    },
    /// A key in a list has another number of parts than the rule's key, or is one that no client
    /// can have.
    ListedKey {
        /// The rule.
        rule: usize,
        /// Which list.
        list: List,
        /// The entry's number from 0.
        entry: usize,
    },
    /// The bounds of a cost leave nothing, or leave its default out.
    Cost {
        /// The rule.
        rule: usize,
    },
    /// Rules that always meet have more limits together than a request can have.
    TooManyLimits {
        /// The rule that has one too many.
        rule: usize,
    },
    /// An override names a rule that is not there.
    NoRule {
        /// The override.
        number: usize,
        /// The rule's name.
        name: Name,
    },
    /// An override's key has another number of parts than the key of any rule it is for, or is one
    /// that no client can have.
    OverrideKey {
        /// The override.
        number: usize,
    },
    /// An override's key is for no rule in particular, and rules find such a key in different
    /// places: it would stand for different clients.
    OverrideMixed {
        /// The override.
        number: usize,
    },
}

/// A list of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Whom it does not apply to.
    Allow,
    /// Whom it turns away.
    Deny,
    /// Who is in which tier.
    Tier,
}

impl RuleSet {
    /// Everything that is wrong between parts that are right by themselves.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (number, rule) in self.rules.iter().enumerate() {
            let earlier = &self.rules[..number];
            if earlier.iter().any(|other| other.name == rule.name) {
                let name = rule.name.clone();
                faults.push(Fault::SameName { rule: number, name });
            }
            faults.extend(rule.faults(number));
        }
        let crowded = self.without_room();
        faults.extend(crowded.map(|rule| Fault::TooManyLimits { rule }));
        let kinds = Kinds::of(&self.rules);
        for (number, other) in self.overrides.iter().enumerate() {
            let named = |rule: &&Rule| other.rule.as_ref().is_none_or(|name| *name == rule.name);
            let rule = self.rules.iter().find(named);
            match (&other.rule, &other.who) {
                (Some(name), _) if rule.is_none() => {
                    let name = name.clone();
                    faults.push(Fault::NoRule { number, name });
                }
                (named, Entry::Key(key)) => {
                    let (rule, unlike) = match named {
                        Some(_) => (rule, None),
                        None => kinds.of_length(key.parts()).unzip(),
                    };
                    match (rule, unlike.flatten()) {
                        (Some(_), Some(_)) => faults.push(Fault::OverrideMixed { number }),
                        (Some(rule), None) if fits(key, rule) => {}
                        (Some(_) | None, _) => faults.push(Fault::OverrideKey { number }),
                    }
                }
                (_, Entry::Network(_)) => {}
            }
        }
        faults
    }
}

/// Rules by how many parts their keys have, and whether these are of one kind.
pub struct Kinds<'a>(HashMap<usize, (&'a Rule, Option<&'a Rule>)>);

impl<'a> Kinds<'a> {
    /// Groups rules by the number of parts of their keys.
    pub fn of(rules: &'a [Rule]) -> Self {
        let mut kinds = HashMap::new();
        for rule in rules {
            let (first, unlike) = kinds.entry(rule.key.len()).or_insert((rule, None));
            if unlike.is_none() && !first.lists_as(rule) {
                *unlike = Some(rule);
            }
        }
        Kinds(kinds)
    }

    /// The first rule whose key has so many parts, and the first that finds them elsewhere.
    pub fn of_length(&self, parts: usize) -> Option<(&'a Rule, Option<&'a Rule>)> {
        self.0.get(&parts).copied()
    }
}

impl Rule {
    /// Whether a listed key stands for the same clients as with another rule: the address that one
    /// has is what anybody can write into another's header.
    pub fn lists_as(&self, other: &Rule) -> bool {
        // What is found in place of a part is never meant by a listed key.
        fn firsts(rule: &Rule) -> impl Iterator<Item = &Source> {
            rule.key.iter().filter_map(|part| part.sources().next())
        }
        // A parameter is what the paths make of it.
        let by_path = firsts(self).any(|source| matches!(source, Source::Path(_)));
        firsts(self).eq(firsts(other)) && (!by_path || self.when.paths == other.when.paths)
    }

    fn faults(&self, number: usize) -> Vec<Fault> {
        let rule = number;
        let mut faults = Vec::new();
        let long = |part: &Part| part.sources().count() > MAX_PARTS;
        if self.key.len() > MAX_PARTS || self.key.iter().any(long) {
            faults.push(Fault::TooManyParts { rule });
        }
        for source in self.key.iter().flat_map(|part| part.sources()) {
            let Source::Path(name) = source else { continue };
            let paths = &self.when.paths;
            let has = |path: &super::PathPattern| path.parameter_names().any(|own| own == name);
            if paths.is_empty() || !paths.iter().all(has) {
                let parameter = name.clone();
                faults.push(Fault::NoParameter { rule, parameter });
            }
        }
        let mut listed = |list: List, keys: &mut dyn Iterator<Item = (usize, &KeyText)>| {
            let wrong = keys.filter(|(_, key)| !fits(key, self));
            faults.extend(wrong.map(|(entry, _)| Fault::ListedKey { rule, list, entry }));
        };
        listed(List::Allow, &mut keys(&self.allow));
        listed(List::Deny, &mut keys(&self.deny));
        if let Limits::Tiered(tiers) = &self.limits
            && let TierBy::Keys(keys) = tiers.by()
        {
            listed(List::Tier, &mut keys.iter().map(|(key, _)| key).enumerate());
        }
        if let Cost::Header {
            default,
            least,
            most,
            ..
        } = self.cost
            && !(least..=most).contains(&default)
        {
            faults.push(Fault::Cost { rule });
        }
        faults
    }
}

fn keys(entries: &[Entry]) -> impl Iterator<Item = (usize, &KeyText)> {
    let numbered = entries.iter().enumerate();
    numbered.filter_map(|(number, entry)| match entry {
        Entry::Key(key) => Some((number, key)),
        Entry::Network(_) => None,
    })
}

/// Whether some client may have a key, by a rule's.
fn fits(key: &KeyText, rule: &Rule) -> bool {
    let says = |(part, text): (&Part, &str)| part.never_says(text).is_none();
    key.parts() > 0 && key.parts() == rule.key.len() && rule.key.iter().zip(key.texts()).all(says)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::SameName { name, .. } => write!(f, "two rules are called `{name}`"),
            Fault::TooManyParts { .. } => {
                write!(
                    f,
                    "a key, or a part of one, has more than {MAX_PARTS} parts"
                )
            }
            Fault::NoParameter { parameter, .. } => {
                write!(
                    f,
                    "no path of the rule has `{{{parameter}}}`, or not all have it"
                )
            }
            Fault::ListedKey { .. } | Fault::OverrideKey { .. } => {
                f.write_str("a listed key is one that nobody can have by the rule's key")
            }
            Fault::OverrideMixed { .. } => {
                f.write_str("rules find such a key in different places; the override names no rule")
            }
            Fault::Cost { .. } => f.write_str("the default cost is outside its bounds"),
            Fault::TooManyLimits { .. } => write!(
                f,
                "rules that meet in one request have more than {MAX_LIMITS} limits together"
            ),
            Fault::NoRule { name, .. } => write!(f, "there is no rule `{name}`"),
        }
    }
}

impl std::error::Error for Fault {}
