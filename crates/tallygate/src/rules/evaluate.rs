//! Evaluates the rules for a request. [`Plan`] and [`Trace`] visit the same evaluation, so that
//! they cannot disagree.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::compile::{BudgetOverrides, ClientList, CompiledOverride, CompiledRule};
use super::extract::{Extracted, MissingPart, extract, listed_keys};
use super::matcher::{Matched, Mismatch, Route};
use super::path_variants::has_too_many_segments;
use super::request_view::RequestView;
use super::trace::Trace;
use super::{HeaderNames, KeyText, Missing, Name, Override, Rule, RuleSet, RuleSetError, Source};
use crate::http::{
    Charge, ClientAddress, Head, JsonPath, Limits, MAX_JSON_PATHS, NO_RULE, Plan, Policy,
    RuleSettings, Stop, StopReason,
};
use crate::key::Key;
use crate::limit::Limit;
use crate::request::{MAX_LIMITS, Member};

/// Compiled rules: turns requests into plans.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(super) client: ClientAddress,
    pub(super) rules: Vec<CompiledRule>,
    overrides: Vec<Override>,
    /// The positions of the rules whose cost is in the request's body.
    by_json: Vec<usize>,
    header_names: HeaderNames,
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
    /// The rule needs the address of the client.
    NoAddress,
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
    pub(super) member: Option<Box<Member<'static>>>,
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

    /// The path is not matched against any rule, and the request refused.
    fn too_many_segments(&mut self) {}
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
        let overrides = BudgetOverrides::new(&set.overrides, &set.rules);
        let mut header_names = HeaderNames::default();
        set.rules.iter().for_each(|rule| header_names.add(rule));
        let compile = |rule| CompiledRule::new(rule, &overrides, &set.client);
        let mut rules = Rules {
            rules: set.rules.into_iter().map(compile).collect(),
            client: set.client,
            overrides: set.overrides,
            by_json: Vec::new(),
            header_names,
        };
        rules.by_json = rules.find_by_json();
        rules
    }

    fn find_by_json(&self) -> Vec<usize> {
        let rules = self.rules.iter().enumerate();
        let by_json = rules.filter(|(_, compiled)| {
            compiled.rule.enabled && compiled.rule.cost.json_paths().next().is_some()
        });
        by_json.map(|(index, _)| index).collect()
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
        let rules = self.rules.iter().map(|compiled| &compiled.rule);
        let overrides = BudgetOverrides::new(&self.overrides, rules.chain([&rule]));
        self.header_names.add(&rule);
        let compiled = CompiledRule::new(rule, &overrides, &self.client);
        self.rules.push(compiled);
        self.by_json = self.find_by_json();
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
        if !view.believes_headers() {
            for compiled in self.rules.iter().filter(|compiled| compiled.rule.enabled) {
                trace.ignore_headers(&compiled.rule, head);
            }
        }
        trace
    }

    /// Plans a request for one rule, even if the rule does not match it: the caller has chosen the
    /// rule by name, and vouches for the headers. `None` if there is no such rule.
    pub fn plan_rule(&self, name: &str, head: &Head<'_>) -> Option<Plan> {
        let mut rules = self.rules.iter();
        let compiled = rules.find(|compiled| compiled.rule.name.as_str() == name)?;
        let view = RequestView::new(head, &self.client).vouched_for();
        let mut plan = Plan::default();
        if has_too_many_segments(head.uri().path()) {
            plan.too_many_segments();
            return Some(plan);
        }
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

    /// The headers that the rules read.
    pub fn header_names(&self) -> &HeaderNames {
        &self.header_names
    }

    /// How the address of a client is found.
    pub fn client(&self) -> &ClientAddress {
        &self.client
    }

    /// The keys and limits of a listed key, for each rule whose key has as many parts. A budget's
    /// are those of its first rule.
    pub fn key_limits(&self, text: &KeyText) -> Vec<KeyLimits<'_>> {
        let mut found: Vec<KeyLimits<'_>> = Vec::new();
        for compiled in &self.rules {
            let known = |other: &KeyLimits<'_>| other.rule.shares_counters_with(&compiled.rule);
            if found.iter().any(known) {
                continue;
            }
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

    /// The members of a rule's [share](super::Share) that a listed text may mean. Empty if the rule
    /// shares nothing, or its members have another number of parts.
    pub fn member_keys(&self, rule: &str, text: &KeyText) -> Vec<Key<'static>> {
        let mut rules = self.rules.iter().map(|compiled| &compiled.rule);
        let share = rules.find(|known| known.name.as_str() == rule);
        let Some(share) = share.and_then(|rule| rule.share.as_ref()) else {
            return Vec::new();
        };
        match text.parts() == share.by.len() {
            true => listed_keys(&share.by, text, &self.client),
            false => Vec::new(),
        }
    }

    /// The first rule of each budget.
    pub fn budgets(&self) -> Vec<&Rule> {
        let mut first: Vec<&Rule> = Vec::new();
        for CompiledRule { rule, .. } in &self.rules {
            // Rules in shadow mode spend a budget of their own.
            let spends = rule.budget.is_some() && !rule.shadow;
            if spends && !first.iter().any(|other| other.same_budget(rule)) {
                first.push(rule);
            }
        }
        first
    }

    /// The first rule of a budget. `None` if no rule spends it.
    pub fn rule_of_budget(&self, budget: &str) -> Option<&Rule> {
        let spends = |rule: &&Rule| {
            let own = rule.budget.as_ref();
            own.is_some_and(|own| own.as_str() == budget) && !rule.shadow
        };
        let mut rules = self.rules.iter().map(|compiled| &compiled.rule);
        rules.find(spends)
    }

    /// Every limit that a plan may contain, for a store to prepare.
    pub fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.rules.iter().flat_map(CompiledRule::all_limits)
    }

    pub(super) fn evaluate(&self, view: &RequestView<'_>, visitor: &mut impl Visitor) {
        if has_too_many_segments(view.head.uri().path()) {
            return visitor.too_many_segments();
        }
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
                Evaluation::Denied(_)
                | Evaluation::NoKey(_)
                | Evaluation::NoAddress
                | Evaluation::TooManyLimits => true,
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

    fn json_paths(&self, head: &Head<'_>) -> Vec<JsonPath> {
        let mut paths = Vec::new();
        if self.by_json.is_empty() || has_too_many_segments(head.uri().path()) {
            return paths;
        }
        let view = RequestView::new(head, &self.client);
        let rules = self.by_json.iter().map(|&index| &self.rules[index].rule);
        for rule in rules.filter(|rule| rule.matcher.check(&view).is_ok()) {
            for path in rule.cost.json_paths() {
                if paths.len() < MAX_JSON_PATHS && !paths.contains(path) {
                    paths.push(path.clone());
                }
            }
        }
        paths
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

    fn json_paths(&self, head: &Head<'_>) -> Vec<JsonPath> {
        self.0.load().json_paths(head)
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
        let lists = [&self.overridden, &self.deny, &self.allow];
        let has_networks = lists.into_iter().any(ClientList::has_networks);
        if extracted.lacks_address || has_networks && view.lacks_address() {
            return Evaluation::NoAddress;
        }
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
            member: self.member(view, matched.route, limits),
            // The application may see a request that this rule does not match: then the rules for
            // that one have to be evaluated too.
            stop: rule.stop && !rule.shadow && matched.certain,
        })
    }
}

impl CompiledRule {
    /// The member that a request is of, if one of the limits is shared.
    fn member(
        &self,
        view: &RequestView<'_>,
        route: Route<'_>,
        limits: &Limits,
    ) -> Option<Box<Member<'static>>> {
        let share = self.share.as_ref()?;
        let mut limits = limits.iter();
        let shared = limits.any(|limit| limit.quota().algorithm().is_shared());
        shared.then(|| Box::new(share.member(view, route)))
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
            Evaluation::NoAddress => StopReason::NoAddress,
            Evaluation::TooManyLimits => StopReason::TooManyLimits,
            Evaluation::Applies(applies) => {
                return self.charge(Charge {
                    settings: Arc::clone(&compiled.settings),
                    key: applies.key,
                    limits: Arc::clone(applies.limits),
                    cost: applies.cost,
                    in_flight: 1,
                    member: applies.member,
                });
            }
        };
        if !compiled.rule.shadow {
            let settings = Arc::clone(&compiled.settings);
            self.stop(Stop { settings, reason });
        }
    }

    fn too_many_segments(&mut self) {
        self.stop(Stop {
            settings: Arc::new(RuleSettings::new(NO_RULE)),
            reason: StopReason::TooManySegments,
        });
    }
}
