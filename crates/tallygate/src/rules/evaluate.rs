//! One walk over the rules for a request, whoever wants to know: the plan and the trace are two
//! ears at the same walk, so that they cannot disagree. Knows nothing of stores.

use std::sync::Arc;

use crate::http::{Charge, ClientAddress, Head, Plan, Policy, Stop, StopReason};
use crate::{Key, Limit, MAX_LIMITS};

use super::compile::{Compiled, Held, Ready};
use super::extract::Found;
use super::extract::{Lack, Place};
use super::matcher::{Fit, Mismatch, Route};
use super::request_view::{Asked, Client};
use super::trace::Trace;
use super::{Fault, KeyText, Missing, Name, Rule, RuleSet};

/// Rules in force: turns requests into plans.
#[derive(Debug)]
pub struct Rules {
    pub(super) client: Client,
    pub(super) rules: Vec<Compiled>,
}

/// Where a key stands before one rule.
#[derive(Debug)]
pub struct Standing<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// The key as the rule's counters know it.
    pub key: Key<'static>,
    /// Every limit that the rule, one of its tiers or an override may hold it to.
    pub limits: Vec<&'r Limit>,
}

/// What a rule makes of a request.
pub(super) enum Outcome<'r> {
    /// It does not apply.
    Disabled,
    Mismatch(Mismatch),
    Allowed(By),
    /// It does not apply to those who do not say who they are.
    Passed(Lack),
    /// It stops the request, unless it only watches.
    Denied(By),
    NoKey(Lack),
    /// There is no room for its limits in a request.
    TooMany,
    /// It limits the request.
    Applies(Applies<'r>),
}

/// A rule that limits a request.
pub(super) struct Applies<'r> {
    pub(super) key: Key<'static>,
    pub(super) lack: Option<Lack>,
    pub(super) limits: &'r Held,
    pub(super) tier: Option<&'r Name>,
    /// The number of the override that gave the limits.
    pub(super) instead: Option<usize>,
    pub(super) cost: u32,
    /// Whether rules after it do not apply.
    pub(super) stop: bool,
}

/// What put a client on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The rule's own list, and the number of the entry from 0.
    List(usize),
    /// The override of that number, from 0.
    Override(usize),
}

/// Who listens to a walk.
pub(super) trait Ear {
    /// What was found in one place of a part of a key.
    fn found(&mut self, part: usize, place: &Place, found: &Found<'_>);
    /// What a rule makes of the request.
    fn rule(&mut self, rule: &Compiled, outcome: Outcome<'_>);
}

impl Rules {
    /// Makes rules ready.
    ///
    /// # Errors
    /// The first of [`RuleSet::faults`].
    pub fn new(set: RuleSet) -> Result<Self, Fault> {
        if let Some(fault) = set.faults().into_iter().next() {
            return Err(fault);
        }
        let client = Client::new(set.client);
        let ready = |rule| Compiled::new(rule, &set.overrides, &client);
        let rules = set.rules.into_iter().map(ready).collect();
        Ok(Rules { client, rules })
    }

    /// Tells of every rule what it makes of a request, and why.
    pub fn trace(&self, head: &Head<'_>) -> Trace {
        let asked = Asked::new(head, &self.client);
        let mut trace = Trace::new(asked.client());
        self.walk(&asked, &mut trace);
        let seen = trace.rules.len();
        for compiled in &self.rules[seen..] {
            trace.not_reached(&compiled.rule);
        }
        trace
    }

    /// What a request has to pass of one rule, whether or not the rule is about such requests:
    /// whoever names the rule has chosen it. None if there is no such rule.
    pub fn plan_of(&self, name: &str, head: &Head<'_>) -> Option<Plan> {
        let named = |compiled: &&Compiled| compiled.rule.name.as_str() == name;
        let compiled = self.rules.iter().find(named)?;
        let asked = Asked::new(head, &self.client);
        let mut planner = Planner::default();
        let (route, sure) = (Route::Any, true);
        let fit = compiled.rule.when.fit(&asked);
        let fit = fit.unwrap_or(Fit { route, sure });
        let outcome = match compiled.rule.enabled {
            true => compiled.weigh(&asked, fit, MAX_LIMITS, &mut planner),
            false => Outcome::Disabled,
        };
        planner.rule(compiled, outcome);
        Some(planner.plan)
    }

    /// How clients' addresses are found.
    pub fn client(&self) -> &ClientAddress {
        self.client.address()
    }

    /// Where a key, as it is written in a list, stands before each rule whose key has as many
    /// parts.
    pub fn standings(&self, text: &KeyText) -> Vec<Standing<'_>> {
        let mut standings = Vec::new();
        for compiled in &self.rules {
            for key in compiled.drawing.all_listed(text, &self.client) {
                let mut limits: Vec<&Limit> = Vec::new();
                for limit in compiled.all_limits() {
                    // Tiers and overrides of one behaviour and period share a counter; each may
                    // hold the key to another limit.
                    if !limits.contains(&limit) {
                        limits.push(limit);
                    }
                }
                let rule = &compiled.rule;
                standings.push(Standing { rule, key, limits });
            }
        }
        standings
    }

    /// Every limit that any request may come before, for a store to prepare.
    pub fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.rules.iter().flat_map(Compiled::all_limits)
    }

    pub(super) fn walk(&self, asked: &Asked<'_>, ear: &mut impl Ear) {
        // Rules that only watch take no room from those that enforce.
        let (mut enforced, mut watched) = (MAX_LIMITS, MAX_LIMITS);
        for compiled in &self.rules {
            let room = match compiled.rule.shadow {
                true => &mut watched,
                false => &mut enforced,
            };
            let outcome = compiled.judge(asked, *room, ear);
            let ends = match &outcome {
                Outcome::Disabled
                | Outcome::Mismatch(_)
                | Outcome::Allowed(_)
                | Outcome::Passed(_) => false,
                Outcome::Denied(_) | Outcome::NoKey(_) | Outcome::TooMany => true,
                Outcome::Applies(applies) => {
                    *room -= applies.limits.len();
                    applies.stop
                }
            };
            ear.rule(compiled, outcome);
            if ends && !compiled.rule.shadow {
                return;
            }
        }
    }
}

impl Policy for Rules {
    /// What a request has to pass.
    ///
    /// No more than [`MAX_LIMITS`] limits go into one request. Where those of a rule have no room
    /// any more after the rules before it, the request is stopped: nothing passes unlimited. Rules
    /// that only watch are counted apart, and left out where they have no room.
    fn plan(&self, head: &Head<'_>) -> Plan {
        let mut planner = Planner::default();
        self.walk(&Asked::new(head, &self.client), &mut planner);
        planner.plan
    }

    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        Rules::limits(self).for_each(each);
    }
}

impl Compiled {
    fn judge(&self, asked: &Asked<'_>, room: usize, ear: &mut impl Ear) -> Outcome<'_> {
        let rule = &self.rule;
        if !rule.enabled {
            return Outcome::Disabled;
        }
        match rule.when.fit(asked) {
            Ok(fit) => self.weigh(asked, fit, room, ear),
            Err(mismatch) => Outcome::Mismatch(mismatch),
        }
    }

    /// What it makes of a request that it is about.
    fn weigh<'r>(
        &'r self,
        asked: &Asked<'_>,
        fit: Fit<'r>,
        room: usize,
        ear: &mut impl Ear,
    ) -> Outcome<'r> {
        let rule = &self.rule;
        let tell = |part, place: &Place, found: &Found<'_>| ear.found(part, place, found);
        let drawn = self.drawing.draw(asked, fit.route, tell);

        let mut instead = None;
        match self.instead(asked, &drawn) {
            Some((number, Ready::Deny)) => return Outcome::Denied(By::Override(number)),
            Some((number, Ready::Allow)) => return Outcome::Allowed(By::Override(number)),
            Some((number, Ready::Limits(limits))) => instead = Some((number, limits)),
            None => {
                if let Some(number) = self.deny.find(asked, &drawn) {
                    return Outcome::Denied(By::List(number));
                }
                if let Some(number) = self.allow.find(asked, &drawn) {
                    return Outcome::Allowed(By::List(number));
                }
            }
        }
        match (drawn.lack, rule.on_missing) {
            (None, _) | (Some(_), Missing::Shared) => {}
            (Some(lack), Missing::Refuse) => return Outcome::NoKey(lack),
            (Some(lack), Missing::Pass) if !lack.several => return Outcome::Passed(lack),
            (Some(_), Missing::Pass) => {}
        }
        let (tier, limits) = match instead {
            Some((_, limits)) => (None, limits),
            None => self.limits(asked, &drawn),
        };
        if limits.len() > room {
            return Outcome::TooMany;
        }
        Outcome::Applies(Applies {
            key: drawn.key,
            lack: drawn.lack,
            limits,
            tier,
            instead: instead.map(|(number, _)| number),
            cost: rule.cost.of(asked),
            // Where the application may see a request that the rule is not about, the rules for
            // that one have to be heard. One that only watches changes nothing for the others.
            stop: rule.stop && !rule.shadow && fit.sure,
        })
    }
}

/// Makes a plan of what it hears.
#[derive(Debug, Default)]
pub(super) struct Planner {
    pub(super) plan: Plan,
}

impl Ear for Planner {
    fn found(&mut self, _: usize, _: &Place, _: &Found<'_>) {}

    fn rule(&mut self, compiled: &Compiled, outcome: Outcome<'_>) {
        let reason = match outcome {
            Outcome::Disabled | Outcome::Mismatch(_) | Outcome::Allowed(_) | Outcome::Passed(_) => {
                return;
            }
            Outcome::Denied(_) => StopReason::Denied,
            Outcome::NoKey(_) => StopReason::NoKey,
            Outcome::TooMany => StopReason::TooManyLimits,
            Outcome::Applies(applies) => {
                return self.plan.charge(Charge {
                    settings: Arc::clone(&compiled.settings),
                    key: applies.key,
                    limits: Arc::clone(applies.limits),
                    cost: applies.cost,
                });
            }
        };
        if !compiled.rule.shadow {
            let settings = Arc::clone(&compiled.settings);
            self.plan.stop(Stop { settings, reason });
        }
    }
}
