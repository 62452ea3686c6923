//! What every rule makes of one request, for people. Shows no secret: only that two are the same.

use std::net::IpAddr;

use crate::http::Plan;
use crate::{Key, Limit};

use super::compile::Compiled;
use super::evaluate::{By, Ear, Outcome, Planner};
use super::extract::Found;
use super::extract::{Lack, Place};
use super::matcher::Mismatch;
use super::{Name, Rule, Source};

/// The most characters of a value that are shown.
const SHOWN: usize = 80;

/// What the rules make of a request.
#[derive(Debug)]
pub struct Trace {
    /// The client's address, as clients are told apart.
    pub client: Option<IpAddr>,
    /// Every rule, in order.
    pub rules: Vec<Step>,
    planner: Planner,
    places: Vec<Looked>,
}

/// What one rule makes of a request.
#[derive(Debug)]
pub struct Step {
    /// The rule.
    pub name: Name,
    /// Whether it only watches.
    pub shadow: bool,
    /// Where the parts of its key were looked for, in order.
    pub looked: Vec<Looked>,
    /// What came of it.
    pub fate: Fate,
}

/// A place that was looked at for a part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Which part, counted from 0.
    pub part: usize,
    /// Where.
    pub source: Source,
    /// What was there.
    pub sight: Sight,
}

/// What was found in a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// This, shortened and escaped.
    Text(String),
    /// A secret; equal ones have equal marks such as `#9f3a` within a process.
    Secret(String),
    /// Nothing.
    Nothing,
    /// Values that differ, which is as good as nothing.
    Several,
}

/// What came of a rule.
#[derive(Debug)]
pub enum Fate {
    /// It is switched off.
    Disabled,
    /// A rule before it ended the walk.
    NotReached,
    /// It is about other requests.
    Mismatch(Mismatch),
    /// The client is on the list of those it does not apply to.
    Allowed(By),
    /// It stops the request, unless it only watches: the client is on a list.
    Denied(By),
    /// It stops the request, unless it only watches: a part of the key, counted from 0, is not
    /// there.
    NoKey {
        /// Which part.
        part: usize,
    },
    /// It does not apply: a part of the key, counted from 0, is not there.
    Passed {
        /// Which part.
        part: usize,
    },
    /// It stops the request, unless it only watches: the rules before it took all the limits that
    /// a request can have.
    TooMany,
    /// It limits the request.
    Applies {
        /// The limits.
        limits: Vec<Limit>,
        /// What the request costs.
        cost: u32,
        /// The client's tier, if the limits are by tier.
        tier: Option<Name>,
        /// The number of the override, from 0, that gave the limits.
        instead: Option<usize>,
        /// The first part of the key that is not there, counted from 0: the client is limited
        /// together with all who lack the same parts and are alike in the others.
        shared: Option<usize>,
        /// Whether rules after it do not apply.
        stop: bool,
    },
}

impl Trace {
    pub(super) fn new(client: Option<IpAddr>) -> Self {
        Trace {
            client,
            rules: Vec::new(),
            planner: Planner::default(),
            places: Vec::new(),
        }
    }

    /// What the request has to pass.
    pub fn plan(&self) -> &Plan {
        &self.planner.plan
    }

    pub(super) fn not_reached(&mut self, rule: &Rule) {
        let fate = match rule.enabled {
            true => Fate::NotReached,
            false => Fate::Disabled,
        };
        self.add(rule, fate);
    }

    fn add(&mut self, rule: &Rule, fate: Fate) {
        self.rules.push(Step {
            name: rule.name.clone(),
            shadow: rule.shadow,
            looked: std::mem::take(&mut self.places),
            fate,
        });
    }
}

impl Ear for Trace {
    fn found(&mut self, part: usize, place: &Place, found: &Found<'_>) {
        self.places.push(Looked {
            part,
            source: place.source.clone(),
            sight: match found {
                Found::Value(value) if place.secret => Sight::Secret(mark(value)),
                Found::Value(value) => Sight::Text(shown(value)),
                Found::Absent => Sight::Nothing,
                Found::Several => Sight::Several,
            },
        });
    }

    fn rule(&mut self, compiled: &Compiled, outcome: Outcome<'_>) {
        let part = |lack: Lack| lack.part;
        let fate = match &outcome {
            Outcome::Disabled => Fate::Disabled,
            Outcome::Mismatch(mismatch) => Fate::Mismatch(mismatch.clone()),
            Outcome::Allowed(by) => Fate::Allowed(*by),
            Outcome::Denied(by) => Fate::Denied(*by),
            Outcome::NoKey(lack) => Fate::NoKey { part: lack.part },
            Outcome::Passed(lack) => Fate::Passed { part: lack.part },
            Outcome::TooMany => Fate::TooMany,
            Outcome::Applies(applies) => Fate::Applies {
                limits: applies.limits.to_vec(),
                cost: applies.cost,
                tier: applies.tier.cloned(),
                instead: applies.instead,
                shared: applies.lack.map(part),
                stop: applies.stop,
            },
        };
        self.add(&compiled.rule, fate);
        self.planner.rule(compiled, outcome);
    }
}

/// A mark in place of a secret.
fn mark(value: &[u8]) -> String {
    let key = format!("{:?}", Key::secret(value));
    let inside = key
        .strip_prefix("Key(")
        .and_then(|key| key.strip_suffix(')'));
    inside.unwrap_or("#").to_owned()
}

/// A value on one line, its beginning if it is long.
fn shown(value: &[u8]) -> String {
    let beginning = &value[..value.len().min(4 * SHOWN)];
    let text = String::from_utf8_lossy(beginning);
    let mut escaped = text.chars().flat_map(char::escape_debug);
    let mut short: String = escaped.by_ref().take(SHOWN).collect();
    if escaped.next().is_some() {
        short.push('…');
    }
    short
}
