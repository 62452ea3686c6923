//! A rule made ready: everything that does not depend on the request is worked out once. Knows
//! nothing of requests.

use std::sync::Arc;

use crate::http::RuleSettings;
use crate::{Limit, OnFailure};
use http::HeaderName;

use super::client_list::Who;
use super::extract::{Drawing, Drawn};
use super::extract::{Found, header};
use super::request_view::{Asked, Client};
use super::{Answers, Entry, Instead, Limits, Name, Override, Quotas, Rule, SharedBy, TierBy};

/// Limits that a key is held to.
pub(super) type Held = Arc<crate::http::Limits>;

/// A rule made ready.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) rule: Rule,
    pub(super) settings: Arc<RuleSettings>,
    pub(super) drawing: Drawing,
    /// How requests that share a call are told apart; none: as their credentials do.
    pub(super) flight: Option<Drawing>,
    pub(super) deny: Who,
    pub(super) allow: Who,
    overriding: Who,
    overrides: Vec<(usize, Ready)>,
    chosen: Chosen,
}

/// What holds instead of a rule.
#[derive(Debug)]
pub(super) enum Ready {
    Limits(Held),
    Allow,
    Deny,
}

/// How the limits are chosen.
#[derive(Debug)]
enum Chosen {
    Same(Held),
    Tiered {
        by: By,
        default: usize,
        tiers: Vec<(Name, Held)>,
    },
}

#[derive(Debug)]
enum By {
    Header(HeaderName),
    Keys(Who),
}

impl Compiled {
    pub(super) fn new(rule: Rule, overrides: &[Override], client: &Client) -> Self {
        let drawing = Drawing::new(&rule.key);
        let list = |entries: &[Entry]| {
            let numbered = entries.iter().zip(0..);
            Who::new(numbered, &drawing, client)
        };
        let mine = |other: &Override| other.rule.as_ref().is_none_or(|name| *name == rule.name);
        let numbered = overrides.iter().enumerate();
        let own: Vec<_> = numbered.filter(|(_, other)| mine(other)).collect();
        let entries = own.iter().map(|(_, other)| &other.who).zip(0..);
        Compiled {
            settings: Arc::new(settings(&rule)),
            deny: list(&rule.deny),
            allow: list(&rule.allow),
            overriding: Who::new(entries, &drawing, client),
            overrides: own
                .iter()
                .map(|&(index, other)| (index, Ready::new(&other.instead, &rule)))
                .collect(),
            chosen: Chosen::new(&rule, &drawing, client),
            flight: match &rule.single_flight {
                Some(SharedBy::Parts(parts)) => Some(Drawing::new(parts)),
                Some(SharedBy::Credentials) | None => None,
            },
            drawing,
            rule,
        }
    }

    /// What holds instead of the rule for a client, and the number of the override that says so.
    pub(super) fn instead(&self, asked: &Asked<'_>, drawn: &Drawn) -> Option<(usize, &Ready)> {
        let number = self.overriding.find(asked, drawn)?;
        let (index, ready) = self.overrides.get(number)?;
        Some((*index, ready))
    }

    /// The limits that hold for a client, and the tier it is in.
    pub(super) fn limits(&self, asked: &Asked<'_>, drawn: &Drawn) -> (Option<&Name>, &Held) {
        match &self.chosen {
            Chosen::Same(limits) => (None, limits),
            Chosen::Tiered { by, default, tiers } => {
                let said = match by {
                    By::Header(name) => match header(name, asked) {
                        Found::Value(value) => tiers
                            .iter()
                            .position(|(tier, _)| tier.as_str().as_bytes() == &*value),
                        Found::Absent | Found::Several => None,
                    },
                    By::Keys(who) => who.find(asked, drawn),
                };
                let (tier, limits) = &tiers[said.unwrap_or(*default)];
                (Some(tier), limits)
            }
        }
    }

    /// All the limits that anybody may come before.
    pub(super) fn all_limits(&self) -> impl Iterator<Item = &Limit> {
        let tiers: Vec<&Held> = match &self.chosen {
            Chosen::Same(limits) => vec![limits],
            Chosen::Tiered { tiers, .. } => tiers.iter().map(|(_, limits)| limits).collect(),
        };
        let overrides = self.overrides.iter().filter_map(|(_, ready)| match ready {
            Ready::Limits(limits) => Some(limits),
            Ready::Allow | Ready::Deny => None,
        });
        let held = tiers.into_iter().chain(overrides);
        held.flat_map(|limits| limits.iter())
    }
}

impl Ready {
    fn new(instead: &Instead, rule: &Rule) -> Self {
        match instead {
            Instead::Limits(quotas) => Ready::Limits(limits(quotas, rule)),
            Instead::Allow => Ready::Allow,
            Instead::Deny => Ready::Deny,
        }
    }
}

impl Chosen {
    fn new(rule: &Rule, drawing: &Drawing, client: &Client) -> Self {
        let tiered = match &rule.limits {
            Limits::Same(quotas) => return Chosen::Same(limits(quotas, rule)),
            Limits::Tiered(tiered) => tiered,
        };
        let tiers = tiered.tiers();
        let at = |name: &Name| {
            let at = tiers.iter().position(|(tier, _)| tier == name);
            at.expect("tiers are checked when they are put together")
        };
        Chosen::Tiered {
            by: match tiered.by() {
                TierBy::Header(name) => By::Header(name.clone()),
                TierBy::Keys(keys) => {
                    let mut who = Who::default();
                    for (key, tier) in keys {
                        who.add_key(key, at(tier), drawing, client);
                    }
                    By::Keys(who)
                }
            },
            default: at(tiered.default_tier()),
            tiers: tiers
                .iter()
                .map(|(name, quotas)| (name.clone(), limits(quotas, rule)))
                .collect(),
        }
    }
}

fn limits(quotas: &Quotas, rule: &Rule) -> Held {
    let policy = match (rule.shadow, rule.on_failure) {
        // A rule that only watches stops nothing.
        (true, OnFailure::Closed) => OnFailure::Open,
        (_, policy) => policy,
    };
    let limits = quotas.under(&rule.name).map(|(name, quota)| {
        let limit = Limit::named(name, *quota).on_failure(policy);
        match rule.deadline {
            Some(deadline) => limit.deadline(deadline),
            None => limit,
        }
    });
    let limits = crate::http::Limits::new(limits);
    Arc::new(limits.expect("quotas are checked when they are put together"))
}

fn settings(rule: &Rule) -> RuleSettings {
    let mut settings = RuleSettings::new(rule.name.as_str());
    settings.headers = rule.headers;
    settings.shadow = rule.shadow;
    settings.max_delay = rule.longest_delay;
    settings.count_filter = match &rule.counts {
        Answers::All => None,
        counts @ (Answers::Only(_) | Answers::Except(_)) => {
            let counts = counts.clone();
            Some(Arc::new(move |status, _| counts.count(status)))
        }
    };
    settings
}
