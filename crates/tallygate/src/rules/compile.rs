//! A rule with everything computed that does not depend on the request.

use std::collections::HashMap;
use std::sync::Arc;

use ::http::HeaderName;

use super::extract::{Extracted, ExtractedKey, listed_key, proxy_header};
use super::request_view::RequestView;
use super::share::CompiledShare;
use super::{
    Cost, CostSource, KeyText, ListEntry, Name, Override, OverrideAction, Part, Quotas, RequestFn,
    Rule, RuleLimits, Source, StatusFilter, TierBy, Tiers,
};
use crate::failure::OnFailure;
use crate::http::{ClientAddress, Limits, Network, RuleSettings};
use crate::key::Key;
use crate::limit::Limit;

#[derive(Clone, Debug)]
pub(super) struct CompiledRule {
    pub(super) rule: Rule,
    pub(super) settings: Arc<RuleSettings>,
    pub(super) deny: ClientList,
    pub(super) allow: ClientList,
    /// The clients of `overrides`.
    pub(super) overridden: ClientList,
    /// The overrides of this rule and their indices in the rule set.
    pub(super) overrides: Vec<(usize, CompiledOverride)>,
    /// The members of shared limits.
    pub(super) share: Option<CompiledShare>,
    /// How the tier of a client is found; `None` if there is only one.
    tier_by: Option<TierSelector>,
    default_tier: usize,
    /// The limits of each tier. Without tiers there is one, which has no name.
    tiers: Vec<(Option<Name>, Arc<Limits>)>,
}

#[derive(Clone, Debug)]
pub(super) enum CompiledOverride {
    Limits(Arc<Limits>),
    Allow,
    Deny,
}

#[derive(Clone, Debug)]
enum TierSelector {
    Header(HeaderName),
    Keys(ClientList),
    Custom(RequestFn<Option<std::borrow::Cow<'static, str>>>),
}

/// Overrides, and the budget of the rule whose limits each replaces.
pub(super) struct BudgetOverrides<'o>(Vec<(&'o Override, Option<Name>)>);

impl<'o> BudgetOverrides<'o> {
    pub(super) fn new<'r>(
        overrides: &'o [Override],
        rules: impl IntoIterator<Item = &'r Rule>,
    ) -> Self {
        let rules = rules.into_iter();
        let budgets: HashMap<&Name, &Name> = rules
            .filter_map(|rule| Some((&rule.name, rule.budget.as_ref()?)))
            .collect();
        let budget = |one: &Override| match (&one.action, &one.rule) {
            (OverrideAction::Limits(_), Some(rule)) => Some((*budgets.get(rule)?).clone()),
            (_, None) | (OverrideAction::Allow | OverrideAction::Deny, _) => None,
        };
        BudgetOverrides(overrides.iter().map(|one| (one, budget(one))).collect())
    }

    /// The overrides for a rule and their indices. Rules of one budget have the same limits.
    fn for_rule(&self, rule: &Rule) -> Vec<(usize, &'o Override)> {
        let applies = |one: &Override, budget: &Option<Name>| match &one.rule {
            None => true,
            Some(name) => *name == rule.name || budget.is_some() && *budget == rule.budget,
        };
        let each = self.0.iter().enumerate();
        each.filter(|(_, (one, budget))| applies(one, budget))
            .map(|(index, (one, _))| (index, *one))
            .collect()
    }
}

impl CompiledRule {
    pub(super) fn new(rule: Rule, overrides: &BudgetOverrides<'_>, client: &ClientAddress) -> Self {
        let list =
            |entries: &[ListEntry]| ClientList::new(entries.iter().zip(0..), &rule.key, client);
        let overrides = overrides.for_rule(&rule);
        let entries = overrides.iter().map(|(_, one)| &one.client).zip(0..);
        let (tier_by, default_tier, tiers) = match &rule.limits {
            RuleLimits::Same(quotas) => (None, 0, vec![(None, limits(quotas, &rule))]),
            RuleLimits::Tiered(tiered) => {
                let tiers = tiered.tiers().iter();
                let compile =
                    |(name, quotas): &(Name, _)| (Some(name.clone()), limits(quotas, &rule));
                let (by, default) = tier_selector(tiered, &rule, client);
                (Some(by), default, tiers.map(compile).collect())
            }
        };
        CompiledRule {
            tier_by,
            default_tier,
            tiers,
            settings: Arc::new(settings(&rule)),
            share: rule
                .share
                .as_ref()
                .map(|share| CompiledShare::new(share, client)),
            deny: list(&rule.deny),
            allow: list(&rule.allow),
            overridden: ClientList::new(entries, &rule.key, client),
            overrides: overrides
                .iter()
                .map(|&(index, one)| (index, CompiledOverride::new(&one.action, &rule)))
                .collect(),
            rule,
        }
    }

    pub(super) fn limits(
        &self,
        view: &RequestView<'_>,
        extracted: &ExtractedKey,
    ) -> (Option<&Name>, &Arc<Limits>) {
        let position = |name: &[u8]| {
            let mut names = self.tiers.iter().map(|(name, _)| name.as_ref());
            names.position(|tier| tier.is_some_and(|tier| tier.as_str().as_bytes() == name))
        };
        let found = match &self.tier_by {
            None => None,
            Some(TierSelector::Header(name)) => match proxy_header(name, view) {
                Extracted::Value(value) => position(&value),
                Extracted::Absent | Extracted::Conflicting => None,
            },
            Some(TierSelector::Keys(list)) => list.find(view, extracted),
            Some(TierSelector::Custom(tier)) => {
                let tier = tier.call(view.head);
                tier.and_then(|tier| position(tier.as_bytes()))
            }
        };
        let (tier, limits) = &self.tiers[found.unwrap_or(self.default_tier)];
        (tier.as_ref(), limits)
    }

    /// The limits of every tier and override.
    pub(super) fn all_limits(&self) -> impl Iterator<Item = &Limit> {
        let tiers = self.tiers.iter().map(|(_, limits)| limits);
        let overrides = self.overrides.iter();
        let overrides = overrides.filter_map(|(_, action)| match action {
            CompiledOverride::Limits(limits) => Some(limits),
            CompiledOverride::Allow | CompiledOverride::Deny => None,
        });
        tiers.chain(overrides).flat_map(|limits| limits.iter())
    }
}

impl CompiledOverride {
    fn new(action: &OverrideAction, rule: &Rule) -> Self {
        match action {
            OverrideAction::Limits(quotas) => CompiledOverride::Limits(limits(quotas, rule)),
            OverrideAction::Allow => CompiledOverride::Allow,
            OverrideAction::Deny => CompiledOverride::Deny,
        }
    }
}

/// How the tier of a client is found, and the index of the default tier.
fn tier_selector(tiered: &Tiers, rule: &Rule, client: &ClientAddress) -> (TierSelector, usize) {
    let position = |name: &Name| {
        let found = tiered.tiers().iter().position(|(tier, _)| tier == name);
        found.expect("`Tiers::new` checks the names")
    };
    let by = match tiered.by() {
        TierBy::Header(name) => TierSelector::Header(name.clone()),
        TierBy::Keys(keys) => {
            let mut list = ClientList::default();
            for (key, tier) in keys {
                list.add_key(key, position(tier), &rule.key, client);
            }
            TierSelector::Keys(list)
        }
        TierBy::Custom(tier) => TierSelector::Custom(tier.clone()),
    };
    (by, position(tiered.default_tier()))
}

fn limits(quotas: &Quotas, rule: &Rule) -> Arc<Limits> {
    let policy = match (rule.shadow, rule.on_failure) {
        // A rule in shadow mode never refuses.
        (true, Some(OnFailure::Closed)) => Some(OnFailure::Open),
        (_, policy) => policy,
    };
    // Clients see the rule or the budget; a counter's name says more.
    let shown = rule.budget.as_ref().unwrap_or(&rule.name);
    let shown_names = quotas.under(shown).map(|(name, _)| match quotas.len() {
        1 => shown.to_string(),
        _ => name,
    });
    let scope = rule.counter_scope();
    let limits = quotas.under(&scope).map(|(name, quota)| {
        let mut limit = Limit::named(name, *quota).partition(rule.partition);
        if let Some(policy) = policy {
            limit = limit.on_failure(policy);
        }
        // `RuleSet::validate` reports limits that cannot be leased.
        if let Some(Ok(leased)) = rule.lease.map(|settings| limit.clone().lease(settings)) {
            limit = leased;
        }
        match rule.deadline {
            Some(deadline) => limit.deadline(deadline),
            None => limit,
        }
    });
    let limits = Limits::with_shown_names(shown_names.zip(limits));
    Arc::new(limits.expect("`Quotas` checks number and names"))
}

fn settings(rule: &Rule) -> RuleSettings {
    let mut settings = RuleSettings::new(rule.name.as_str());
    settings.headers = rule.headers;
    settings.reported = rule.headers.reports(rule.has_key());
    settings.shadow = rule.shadow;
    settings.max_delay = rule.max_delay;
    settings.actual = rule.actual.clone();
    if rule.count_if != StatusFilter::All {
        let filter = rule.count_if.clone();
        let counts = move |status, headers: &_| filter.counts(status, headers);
        settings.count_filter = Some(Arc::new(counts));
    }
    settings
}

impl Rule {
    /// Whether clients can have different keys. A rule without a key, or with constants only, limits
    /// all clients together.
    pub fn has_key(&self) -> bool {
        let mut sources = self.key.iter().flat_map(Part::sources);
        sources.any(|source| !matches!(source, Source::Constant(_)))
    }

    /// What the rule reads from headers that only a proxy may set, and the headers.
    pub(crate) fn proxy_headers(&self) -> impl Iterator<Item = (&'static str, &HeaderName)> {
        let tier = match &self.limits {
            RuleLimits::Tiered(tiers) => match tiers.by() {
                TierBy::Header(name) => Some(("tier", name)),
                TierBy::Keys(_) | TierBy::Custom(_) => None,
            },
            RuleLimits::Same(_) => None,
        };
        let (header, sources) = match &self.cost {
            Cost::Header { name, .. } => (Some(name), &[][..]),
            Cost::FirstOf { sources, .. } => (None, &sources[..]),
            Cost::Constant(_) | Cost::Method { .. } | Cost::Path { .. } | Cost::Custom(_) => {
                (None, &[][..])
            }
        };
        let headers = sources.iter().filter_map(|source| match source {
            CostSource::Header(name) => Some(name),
            CostSource::Json(_) | CostSource::JsonText { .. } => None,
        });
        let cost = header.into_iter().chain(headers).map(|name| ("cost", name));
        let members = self.share.iter().flat_map(|share| &share.by);
        let sources = self.key.iter().chain(members).flat_map(Part::sources);
        let claims = sources.filter_map(|source| match source {
            Source::Claim { header, .. } => Some(("claims", header)),
            _ => None,
        });
        tier.into_iter().chain(cost).chain(claims)
    }
}

/// A list of clients, each with a number.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientList {
    networks: Vec<(Network, usize)>,
    keys: HashMap<Key<'static>, usize>,
}

impl ClientList {
    pub(super) fn new<'e>(
        entries: impl IntoIterator<Item = (&'e ListEntry, usize)>,
        parts: &[Part],
        client: &ClientAddress,
    ) -> Self {
        let mut list = ClientList::default();
        for (entry, number) in entries {
            match entry {
                ListEntry::Network(network) => list.networks.push((*network, number)),
                ListEntry::Key(key) => list.add_key(key, number, parts, client),
            }
        }
        list
    }

    pub(super) fn add_key(
        &mut self,
        text: &KeyText,
        number: usize,
        parts: &[Part],
        client: &ClientAddress,
    ) {
        if let Some(key) = listed_key(parts, text, client) {
            self.keys.entry(key).or_insert(number);
        }
    }

    /// Whether it lists networks.
    pub(super) fn has_networks(&self) -> bool {
        !self.networks.is_empty()
    }

    /// The smallest number that a client has in the list.
    pub(super) fn find(&self, view: &RequestView<'_>, extracted: &ExtractedKey) -> Option<usize> {
        let network = match self.networks.is_empty() {
            true => None,
            false => view.client_ip().and_then(|ip| {
                let mut networks = self.networks.iter();
                networks.find(|(network, _)| network.contains(ip))
            }),
        };
        let key = match extracted.primary && !self.keys.is_empty() {
            true => self.keys.get(&extracted.key).copied(),
            false => None,
        };
        let network = network.map(|(_, number)| *number);
        network.into_iter().chain(key).min()
    }
}
