//! Errors between the rules of a set, each of which is valid by itself.

use std::collections::HashMap;

use super::{
    Cost, KeyText, ListEntry, MAX_PARTS, Matcher, Name, OverrideAction, Part, Quotas, Rule,
    RuleLimits, RuleSet, Source, TierBy,
};
use crate::error::debug_is_display;
use crate::limit::LeaseError;
use crate::request::MAX_LIMITS;

/// Pairs of patterns that are compared. Beyond it the check is skipped: a request with too many
/// limits is refused anyway.
const MAX_COMPARISONS: usize = 4_000_000;

/// Why a rule set is invalid. Rules and overrides are given by their index.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleSetError {
    /// Two rules have the same name, so that they would share counters.
    #[error("two rules are named `{name}`")]
    DuplicateName {
        /// The second one.
        rule: usize,
        /// The name.
        name: Name,
    },
    /// A key has more than [`MAX_PARTS`] parts, or a part more than [`MAX_PARTS`] sources.
    #[error("a key has more than {MAX_PARTS} parts, or a part more than {MAX_PARTS} sources")]
    TooManyParts {
        /// The rule.
        rule: usize,
    },
    /// A key or a share has a path parameter that one of the rule's paths does not have.
    #[error("no path of the rule has `{{{parameter}}}`, or not all have it")]
    UnknownParameter {
        /// The rule.
        rule: usize,
        /// The parameter.
        parameter: String,
    },
    /// No client can have a listed key: it has another number of parts than the rule's key, or an
    /// impossible value.
    #[error("no client can have a listed key by the rule's key")]
    ListedKey {
        /// The rule.
        rule: usize,
        /// The list.
        list: ListKind,
        /// The index of the entry.
        entry: usize,
    },
    /// The bounds of a cost exclude its default.
    #[error("the default cost is outside its bounds")]
    CostBounds {
        /// The rule.
        rule: usize,
    },
    /// A limit of the rule cannot be leased.
    #[error("a limit cannot be leased: {error}")]
    Lease {
        /// The rule.
        rule: usize,
        /// Why.
        error: LeaseError,
    },
    /// Rules that always match together have more limits than a request can have.
    #[error("rules that match the same request have more than {MAX_LIMITS} limits together")]
    TooManyLimits {
        /// The first rule whose limits do not fit.
        rule: usize,
    },
    /// Rules of one budget have different keys or limits. Functions are not compared.
    #[error("the rules of budget `{budget}` have different keys or limits")]
    DifferentBudget {
        /// The rule that differs from the first one of the budget.
        rule: usize,
        /// The budget.
        budget: Name,
    },
    /// An override names a rule that does not exist.
    #[error("there is no rule `{name}`")]
    UnknownRule {
        /// The override.
        index: usize,
        /// The rule's name.
        name: Name,
    },
    /// A limit of an override for a leased rule cannot be leased.
    #[error("a limit cannot be leased: {error}")]
    OverrideLease {
        /// The override.
        index: usize,
        /// Why.
        error: LeaseError,
    },
    /// No client can have the key of an override by the key of a rule that it is for.
    #[error("no client can have a listed key by the rule's key")]
    OverrideKey {
        /// The override.
        index: usize,
    },
    /// The key of an override for all rules would mean different clients: the rules whose key
    /// has as many parts have different sources.
    #[error("the key of an override for all rules has different sources in different rules")]
    AmbiguousOverrideKey {
        /// The override.
        index: usize,
    },
}

debug_is_display!(RuleSetError);

/// A list of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Clients that the rule does not apply to.
    Allow,
    /// Clients that are refused.
    Deny,
    /// Clients of a tier.
    Tier,
}

impl RuleSet {
    /// Returns all errors of the rule set.
    pub fn validate(&self) -> Vec<RuleSetError> {
        let mut errors = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let earlier = &self.rules[..index];
            if earlier.iter().any(|other| other.name == rule.name) {
                let name = rule.name.clone();
                errors.push(RuleSetError::DuplicateName { rule: index, name });
            }
            let first = earlier.iter().find(|other| rule.same_budget(other));
            if let (Some(first), Some(budget)) = (first, &rule.budget)
                && !rule.same_key_and_limits(first)
            {
                let budget = budget.clone();
                errors.push(RuleSetError::DifferentBudget {
                    rule: index,
                    budget,
                });
            }
            rule.validate(index, &mut errors);
        }
        let crowded = self.always_too_many_limits();
        errors.extend(crowded.map(|rule| RuleSetError::TooManyLimits { rule }));
        let shapes = KeyShapes::new(&self.rules);
        for (index, own) in self.overrides.iter().enumerate() {
            let mut rules = self.rules.iter();
            let rule = rules.find(|rule| Some(&rule.name) == own.rule.as_ref());
            if let (None, Some(name)) = (rule, own.rule.clone()) {
                errors.push(RuleSetError::UnknownRule { index, name });
                continue;
            }
            let leased = match rule {
                Some(rule) => std::slice::from_ref(rule),
                None => &self.rules[..],
            };
            if let OverrideAction::Limits(quotas) = &own.action
                && let Some(error) = leased.iter().find_map(|rule| rule.lease_error(quotas))
            {
                errors.push(RuleSetError::OverrideLease { index, error });
            }
            let ListEntry::Key(key) = &own.client else {
                continue;
            };
            let (rule, different) = match rule {
                Some(_) => (rule, None),
                None => shapes.with_parts(key.parts()).unzip(),
            };
            match (rule, different.flatten()) {
                (Some(_), Some(_)) => errors.push(RuleSetError::AmbiguousOverrideKey { index }),
                (Some(rule), None) if is_possible(key, rule) => {}
                (Some(_) | None, _) => errors.push(RuleSetError::OverrideKey { index }),
            }
        }
        errors
    }
}

/// Rules by the number of parts of their keys, and whether these have the same sources.
#[derive(Debug)]
pub struct KeyShapes<'a>(HashMap<usize, (&'a Rule, Option<&'a Rule>)>);

impl<'a> KeyShapes<'a> {
    /// Groups rules by the number of parts of their keys.
    pub fn new(rules: &'a [Rule]) -> Self {
        let mut shapes = HashMap::new();
        for rule in rules {
            let (first, different) = shapes.entry(rule.key.len()).or_insert((rule, None));
            if different.is_none() && !first.same_key_sources(rule) {
                *different = Some(rule);
            }
        }
        KeyShapes(shapes)
    }

    /// The first rule whose key has this number of parts, and the first with other sources.
    pub fn with_parts(&self, parts: usize) -> Option<(&'a Rule, Option<&'a Rule>)> {
        self.0.get(&parts).copied()
    }
}

impl Rule {
    /// Whether a listed key means the same clients as for another rule. Only the first source of
    /// each part matters, as listed keys never match the others.
    pub fn same_key_sources(&self, other: &Rule) -> bool {
        fn first_sources(rule: &Rule) -> impl Iterator<Item = &Source> {
            rule.key.iter().filter_map(|part| part.sources().next())
        }
        // The value of a path parameter depends on the paths.
        let by_path = first_sources(self).any(|source| matches!(source, Source::Path(_)));
        first_sources(self).eq(first_sources(other))
            && (!by_path || self.matcher.paths == other.matcher.paths)
    }

    fn validate(&self, rule: usize, errors: &mut Vec<RuleSetError>) {
        let too_long = |part: &Part| part.sources().count() > MAX_PARTS;
        if self.key.len() > MAX_PARTS || self.key.iter().any(too_long) {
            errors.push(RuleSetError::TooManyParts { rule });
        }
        let members = self.share.iter().flat_map(|share| &share.by);
        for source in self.key.iter().chain(members).flat_map(Part::sources) {
            let Source::Path(name) = source else { continue };
            if !self.matcher.has_parameter(name) {
                let parameter = name.clone();
                errors.push(RuleSetError::UnknownParameter { rule, parameter });
            }
        }
        let quotas = self.limits.each();
        if let Some(error) = quotas.iter().find_map(|quotas| self.lease_error(quotas)) {
            errors.push(RuleSetError::Lease { rule, error });
        }
        let mut check = |list: ListKind, keys: &mut dyn Iterator<Item = (usize, &KeyText)>| {
            let impossible = keys.filter(|(_, key)| !is_possible(key, self));
            errors.extend(impossible.map(|(entry, _)| RuleSetError::ListedKey {
                rule,
                list,
                entry,
            }));
        };
        check(ListKind::Allow, &mut keys(&self.allow));
        check(ListKind::Deny, &mut keys(&self.deny));
        if let RuleLimits::Tiered(tiers) = &self.limits
            && let TierBy::Keys(keys) = tiers.by()
        {
            let mut keys = keys.iter().map(|(key, _)| key).enumerate();
            check(ListKind::Tier, &mut keys);
        }
        let bounds = match &self.cost {
            Cost::Header {
                default, min, max, ..
            }
            | Cost::FirstOf {
                default, min, max, ..
            } => (*min..=*max).contains(default),
            Cost::Constant(_) | Cost::Method { .. } | Cost::Path { .. } | Cost::Custom(_) => true,
        };
        if !bounds {
            errors.push(RuleSetError::CostBounds { rule });
        }
    }
}

impl Rule {
    /// Why quotas cannot be leased, if the rule leases.
    fn lease_error(&self, quotas: &Quotas) -> Option<LeaseError> {
        let settings = self.lease?;
        let mut quotas = quotas.iter();
        quotas.find_map(|(_, quota)| settings.validate(quota).err())
    }
}

fn keys(entries: &[ListEntry]) -> impl Iterator<Item = (usize, &KeyText)> {
    let entries = entries.iter().enumerate();
    entries.filter_map(|(index, entry)| match entry {
        ListEntry::Key(key) => Some((index, key)),
        ListEntry::Network(_) => None,
    })
}

/// Whether a client can have a key, by the key of a rule.
fn is_possible(key: &KeyText, rule: &Rule) -> bool {
    let mut parts = rule.key.iter().zip(key.texts());
    key.parts() > 0
        && key.parts() == rule.key.len()
        && parts.all(|(part, text)| part.invalid_text(text).is_none())
}

impl RuleSet {
    /// The first rule whose limits never fit in a request, whatever the tiers.
    fn always_too_many_limits(&self) -> Option<usize> {
        self.too_many_limits(|limits| sizes(limits).min().unwrap_or(0))
    }

    /// The first rule whose limits may not fit in a request, if clients are in the tiers with the
    /// most limits.
    pub fn maybe_too_many_limits(&self) -> Option<usize> {
        self.too_many_limits(|limits| sizes(limits).max().unwrap_or(0))
    }

    fn too_many_limits(&self, size: impl Fn(&RuleLimits) -> usize) -> Option<usize> {
        let enforced = |(_, rule): &(usize, &Rule)| rule.enabled && !rule.shadow;
        let rules: Vec<_> = self.rules.iter().enumerate().filter(enforced).collect();
        let all = rules.iter().map(|(_, rule)| size(&rule.limits));
        if all.sum::<usize>() <= MAX_LIMITS {
            return None;
        }
        let mut comparisons = 0;
        for narrow in rules.iter().flat_map(|(_, rule)| each_path(&rule.matcher)) {
            let mut limits = 0;
            for (index, rule) in &rules {
                comparisons += weight(&rule.matcher) * weight(&narrow);
                if comparisons > MAX_COMPARISONS {
                    return None;
                }
                if !rule.matcher.covers(&narrow) {
                    continue;
                }
                limits += size(&rule.limits);
                if limits > MAX_LIMITS {
                    return Some(*index);
                }
                if rule.stop {
                    break;
                }
            }
        }
        None
    }
}

fn sizes(limits: &RuleLimits) -> impl Iterator<Item = usize> {
    limits.each().into_iter().map(Quotas::len)
}

/// A matcher for each path, which more rules may cover than all paths together.
fn each_path(matcher: &Matcher) -> Vec<Matcher> {
    let mut any_path = matcher.clone();
    let paths = std::mem::take(&mut any_path.paths);
    if paths.is_empty() {
        return vec![any_path];
    }
    let single = |path| Matcher {
        paths: vec![path],
        ..any_path.clone()
    };
    paths.into_iter().map(single).collect()
}

fn weight(matcher: &Matcher) -> usize {
    let Matcher {
        methods,
        hosts,
        paths,
        headers,
        grpc,
        custom: _,
    } = matcher;
    1 + methods.len() + hosts.len() + paths.len() + headers.len() + grpc.len()
}
