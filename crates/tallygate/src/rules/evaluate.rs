//! Evaluates the rules for a request. [`Plan`] and [`Trace`] visit the same evaluation, so that
//! they cannot disagree.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::compile::{CompiledOverride, CompiledRule};
use super::extract::{Extracted, MissingPart, extract, listed_keys};
use super::matcher::{Matched, Mismatch, Route};
use super::request_view::RequestView;
use super::trace::Trace;
use super::{KeyText, Missing, Name, Override, Rule, RuleSet, RuleSetError, Source};
use crate::http::{Charge, ClientAddress, Head, Limits, Plan, Policy, Stop, StopReason};
use crate::key::Key;
use crate::limit::Limit;
use crate::request::MAX_LIMITS;

/// Compiled rules: turns requests into plans.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(super) client: ClientAddress,
    pub(super) rules: Vec<CompiledRule>,
    overrides: Vec<Override>,
}

/// A key and the limits that one rule has for it.
#[derive(Debug)]
pub struct KeyLimits<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// The key of the rule's counters.
    pub key: Key<'static>,
    /// The limits of the rule, of its tiers and of its overrides.
    pub limits: Vec<&'r Limit>,
}

pub(super) enum Evaluation<'r> {
    Disabled,
    Mismatch(Mismatch),
    Allowed(ListedBy),
    /// The rule does not apply to requests without its key.
    Skipped(MissingPart),
    /// The rule stops the request, unless it is in shadow mode.
    Denied(ListedBy),
    NoKey(MissingPart),
    TooManyLimits,
    Applies(Applies<'r>),
}

pub(super) struct Applies<'r> {
    pub(super) key: Key<'static>,
    pub(super) missing: Option<MissingPart>,
    pub(super) limits: &'r Arc<Limits>,
    pub(super) tier: Option<&'r Name>,
    /// The index of the override that the limits are from.
    pub(super) override_index: Option<usize>,
    pub(super) cost: u32,
    pub(super) stop: bool,
}

/// The list that contains a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedBy {
    /// The rule's own list, and the index of the entry.
    List(usize),
    /// The override with this index.
    Override(usize),
}

pub(super) trait Visitor {
    fn source(&mut self, _part: usize, _source: &Source, _value: &Extracted<Key<'_>>) {}

    fn rule(&mut self, rule: &CompiledRule, evaluation: Evaluation<'_>);
}

impl<F: FnMut(&CompiledRule, Evaluation<'_>)> Visitor for F {
    fn rule(&mut self, rule: &CompiledRule, evaluation: Evaluation<'_>) {
        self(rule, evaluation);
    }
}

impl Rules {
    /// Compiles a rule set.
    ///
    /// # Errors
    /// The first error of [`RuleSet::validate`].
    pub fn new(set: RuleSet) -> Result<Self, RuleSetError> {
        match set.validate().into_iter().next() {
            Some(error) => Err(error),
            None => Ok(Rules::compile(set)),
        }
    }

    fn compile(set: RuleSet) -> Self {
        let compile = |rule| CompiledRule::new(rule, &set.overrides, &set.client);
        Rules {
            rules: set.rules.into_iter().map(compile).collect(),
            client: set.client,
            overrides: set.overrides,
        }
    }

    /// Adds a rule. Unlike [`new`](Rules::new) it accepts rules that always have too many limits
    /// together: requests that match them are refused.
    ///
    /// # Panics
    /// When a rule has that name already.
    #[must_use]
    pub fn with_rule(mut self, rule: Rule) -> Self {
        let same = |compiled: &CompiledRule| compiled.rule.name == rule.name;
        assert!(
            !self.rules.iter().any(same),
            "two rules are named `{}`",
            rule.name
        );
        let compiled = CompiledRule::new(rule, &self.overrides, &self.client);
        self.rules.push(compiled);
        self
    }

    /// Sets how the address of the client is found, the socket's peer by default.
    #[must_use]
    pub fn with_client(self, client: ClientAddress) -> Self {
        let rules = self.rules.into_iter().map(|compiled| compiled.rule);
        Rules::compile(RuleSet {
            client,
            rules: rules.collect(),
            overrides: self.overrides,
        })
    }

    /// Explains what every rule does with a request.
    pub fn trace(&self, head: &Head<'_>) -> Trace {
        let view = RequestView::new(head, &self.client);
        let mut trace = Trace::default();
        trace.client = view.grouped_client_ip();
        self.evaluate(&view, &mut trace);
        let evaluated = trace.rules.len();
        for compiled in &self.rules[evaluated..] {
            trace.not_reached(&compiled.rule);
        }
        trace
    }

    /// Plans a request for one rule, even if the rule does not match it: the caller has chosen the
    /// rule by name. `None` if there is no such rule.
    pub fn plan_rule(&self, name: &str, head: &Head<'_>) -> Option<Plan> {
        let mut rules = self.rules.iter();
        let compiled = rules.find(|compiled| compiled.rule.name.as_str() == name)?;
        let view = RequestView::new(head, &self.client);
        let mut plan = Plan::default();
        let matched = compiled.rule.matcher.check(&view).unwrap_or(Matched {
            route: Route::Any,
            certain: true,
        });
        let evaluation = match compiled.rule.enabled {
            true => compiled.evaluate_matched(&view, matched, MAX_LIMITS, &mut plan),
            false => Evaluation::Disabled,
        };
        plan.rule(compiled, evaluation);
        Some(plan)
    }

    /// How the address of a client is found.
    pub fn client(&self) -> &ClientAddress {
        &self.client
    }

    /// The keys and limits of a listed key, for each rule whose key has as many parts.
    pub fn key_limits(&self, text: &KeyText) -> Vec<KeyLimits<'_>> {
        let mut found = Vec::new();
        for compiled in &self.rules {
            for key in listed_keys(&compiled.rule.key, text, &self.client) {
                let mut limits: Vec<&Limit> = Vec::new();
                for limit in compiled.all_limits() {
                    // Tiers and overrides with the same algorithm and period share a counter, but
                    // not the limit.
                    if !limits.contains(&limit) {
                        limits.push(limit);
                    }
                }
                let rule = &compiled.rule;
                found.push(KeyLimits { rule, key, limits });
            }
        }
        found
    }

    /// Every limit that a plan may contain, for a store to prepare.
    pub fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.rules.iter().flat_map(CompiledRule::all_limits)
    }

    pub(super) fn evaluate(&self, view: &RequestView<'_>, visitor: &mut impl Visitor) {
        // Rules in shadow mode are counted apart.
        let (mut enforced_room, mut shadow_room) = (MAX_LIMITS, MAX_LIMITS);
        for compiled in &self.rules {
            let room = match compiled.rule.shadow {
                true => &mut shadow_room,
                false => &mut enforced_room,
            };
            let evaluation = compiled.evaluate(view, *room, visitor);
            let last = match &evaluation {
                Evaluation::Disabled
                | Evaluation::Mismatch(_)
                | Evaluation::Allowed(_)
                | Evaluation::Skipped(_) => false,
                Evaluation::Denied(_) | Evaluation::NoKey(_) | Evaluation::TooManyLimits => true,
                Evaluation::Applies(applies) => {
                    *room -= applies.limits.len();
                    applies.stop
                }
            };
            visitor.rule(compiled, evaluation);
            if last && !compiled.rule.shadow {
                return;
            }
        }
    }
}

impl Policy for Rules {
    /// Evaluates the rules.
    ///
    /// A plan has at most [`MAX_LIMITS`] limits. A rule that exceeds them stops the request, so that
    /// no rule is bypassed. Rules in shadow mode are counted apart, and left out when they exceed
    /// them.
    fn plan(&self, head: &Head<'_>) -> Plan {
        let mut plan = Plan::default();
        self.evaluate(&RequestView::new(head, &self.client), &mut plan);
        plan
    }

    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        Rules::limits(self).for_each(each);
    }
}

/// Rules that can be replaced at any time without blocking requests.
///
/// Each request is planned by one version of the rules. Counters belong to the store: a limit that
/// keeps its rule's name, its algorithm and its period keeps every count.
#[derive(Debug)]
pub struct SwappableRules(ArcSwap<Rules>);

impl SwappableRules {
    /// Wraps rules.
    pub fn new(rules: impl Into<Arc<Rules>>) -> Self {
        SwappableRules(ArcSwap::new(rules.into()))
    }

    /// Replaces the rules and returns the previous ones.
    ///
    /// Each of the new [limits](Rules::limits) has to be prepared first by the engine that decides
    /// the plans, or their replicas are not counted.
    pub fn swap(&self, rules: impl Into<Arc<Rules>>) -> Arc<Rules> {
        self.0.swap(rules.into())
    }

    /// The current rules.
    pub fn current(&self) -> Arc<Rules> {
        self.0.load_full()
    }
}

impl Policy for SwappableRules {
    fn plan(&self, head: &Head<'_>) -> Plan {
        self.0.load().plan(head)
    }

    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        Policy::limits(&**self.0.load(), each);
    }
}

impl CompiledRule {
    fn evaluate(
        &self,
        view: &RequestView<'_>,
        room: usize,
        visitor: &mut impl Visitor,
    ) -> Evaluation<'_> {
        if !self.rule.enabled {
            return Evaluation::Disabled;
        }
        match self.rule.matcher.check(view) {
            Ok(matched) => self.evaluate_matched(view, matched, room, visitor),
            Err(mismatch) => Evaluation::Mismatch(mismatch),
        }
    }

    fn evaluate_matched<'r>(
        &'r self,
        view: &RequestView<'_>,
        matched: Matched<'r>,
        room: usize,
        visitor: &mut impl Visitor,
    ) -> Evaluation<'r> {
        let rule = &self.rule;
        let extracted = extract(&rule.key, view, matched.route, |part, source, value| {
            visitor.source(part, source, value);
        });
        let mut overridden = None;
        let found = self.overridden.find(view, &extracted);
        match found.map(|number| &self.overrides[number]) {
            Some((index, CompiledOverride::Deny)) => {
                return Evaluation::Denied(ListedBy::Override(*index));
            }
            Some((index, CompiledOverride::Allow)) => {
                return Evaluation::Allowed(ListedBy::Override(*index));
            }
            Some((index, CompiledOverride::Limits(limits))) => overridden = Some((*index, limits)),
            None => {
                if let Some(index) = self.deny.find(view, &extracted) {
                    return Evaluation::Denied(ListedBy::List(index));
                }
                if let Some(index) = self.allow.find(view, &extracted) {
                    return Evaluation::Allowed(ListedBy::List(index));
                }
            }
        }
        match (extracted.missing, rule.on_missing) {
            (None, _) | (Some(_), Missing::Shared) => {}
            (Some(missing), Missing::Refuse) => return Evaluation::NoKey(missing),
            (Some(missing), Missing::Pass) if !missing.conflicting => {
                return Evaluation::Skipped(missing);
            }
            (Some(_), Missing::Pass) => {}
        }
        let (tier, limits) = match overridden {
            Some((_, limits)) => (None, limits),
            None => self.limits(view, &extracted),
        };
        if limits.len() > room {
            return Evaluation::TooManyLimits;
        }
        Evaluation::Applies(Applies {
            key: extracted.key,
            missing: extracted.missing,
            limits,
            tier,
            override_index: overridden.map(|(index, _)| index),
            cost: rule.cost.evaluate(view),
            // The application may see a request that this rule does not match: then the rules for
            // that one have to be evaluated too.
            stop: rule.stop && !rule.shadow && matched.certain,
        })
    }
}

impl Visitor for Plan {
    fn rule(&mut self, compiled: &CompiledRule, evaluation: Evaluation<'_>) {
        let reason = match evaluation {
            Evaluation::Disabled
            | Evaluation::Mismatch(_)
            | Evaluation::Allowed(_)
            | Evaluation::Skipped(_) => return,
            Evaluation::Denied(_) => StopReason::Denied,
            Evaluation::NoKey(_) => StopReason::NoKey,
            Evaluation::TooManyLimits => StopReason::TooManyLimits,
            Evaluation::Applies(applies) => {
                return self.charge(Charge {
                    settings: Arc::clone(&compiled.settings),
                    key: applies.key,
                    limits: Arc::clone(applies.limits),
                    cost: applies.cost,
                });
            }
        };
        if !compiled.rule.shadow {
            let settings = Arc::clone(&compiled.settings);
            self.stop(Stop { settings, reason });
        }
    }
}
