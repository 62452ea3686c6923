//! One rule: its fields put together. Knows which of them exclude one another.

use std::num::NonZeroU32;
use std::time::Duration;

use http::Method;
use tallygate::http::Headers;
use tallygate::{OnFailure, Replicas};

use super::list::Shape;
use super::settings::missing;
use super::{At, Checker, Problem, Span, code, schema};
use crate::config::field::{OneOrMany, Table, Text, Whole};
use tallygate::rules::{Answers, Cost, Match, Missing, Rule, Statuses};

/// The most processes that may share a limit.
const MOST_REPLICAS: u64 = 1_000_000;

/// What rules do unless they say otherwise.
#[derive(Clone, Copy, Default)]
pub(super) struct Usual {
    pub(super) headers: Headers,
    pub(super) on_failure: (OnFailure, Option<Duration>),
    pub(super) on_missing: Missing,
}

/// Where the parts of a rule stand.
#[derive(Clone, Debug)]
pub(in crate::config) struct RulePlaces {
    pub(in crate::config) name: Span,
    /// Each path of `match`, in order.
    pub(in crate::config) paths: Vec<Span>,
    /// Each part of the key, in order.
    pub(in crate::config) key: Vec<Span>,
    /// Each quota of each tier, in order; a rule without tiers has one list.
    pub(in crate::config) quotas: Vec<Vec<Span>>,
    pub(in crate::config) cost: Option<Span>,
    pub(in crate::config) on_failure: Option<Span>,
    pub(in crate::config) stop: Option<Span>,
}

impl Checker<'_> {
    /// A rule and its places; none if it lacks what a rule cannot be without.
    pub(super) fn rule(
        &mut self,
        raw: &schema::Rule,
        span: Span,
        usual: &Usual,
    ) -> Option<(Rule, RulePlaces)> {
        let name = self.name(&raw.name);
        let (when, paths) = match raw.when.as_ref().and_then(At::get) {
            None => (Match::default(), Vec::new()),
            Some(raw) => self.when(raw),
        };
        let parts = raw.key.as_ref().and_then(At::get);
        let (key, key_places) = match parts {
            None => (Some(Vec::new()), Vec::new()),
            Some(parts) => self.key(parts, raw.key.as_ref().map_or(span, |at| at.span), &when),
        };
        // Parts that are wrong have been told; how many there are is known all the same.
        let shape = Shape {
            length: parts.map_or(0, |parts| parts.0.len()),
            parts: key.as_deref().unwrap_or_default(),
        };
        let limits = self.limits(raw, span, shape);
        let cost = raw.cost.as_ref().and_then(At::get);
        let cost = cost.map_or(Some(Cost::default()), |cost| self.cost(cost, raw));
        let allow = self.entries(raw.allow.as_ref(), shape);
        let deny = self.entries(raw.deny.as_ref(), shape);
        let (on_failure, deadline) = match raw.on_failure.as_ref().and_then(At::get) {
            None => usual.on_failure,
            Some(raw) => self.on_failure(raw, usual.on_failure),
        };
        let headers = match raw.headers.as_ref().and_then(At::get) {
            None => usual.headers,
            Some(raw) => self.headers(raw, usual.headers),
        };
        let on_missing = raw.on_missing.as_ref().and_then(At::get);
        let on_missing = on_missing.map_or(usual.on_missing, |raw| missing(*raw));
        let counts = match raw.count.as_ref() {
            None => Answers::All,
            Some(at) => at
                .get()
                .map_or(Answers::All, |raw| self.answers(raw, at.span)),
        };
        let longest_delay = raw.longest_delay.as_ref();
        let longest_delay = longest_delay.and_then(|at| self.duration(at));

        let single_flight = raw.single_flight.as_ref();
        let single_flight = single_flight.and_then(|at| self.single_flight(at, &when));

        let (limits, quotas) = limits?;
        let mut rule = Rule::new(name?, limits);
        rule.enabled = self.flag(raw.enabled.as_ref(), true);
        rule.when = when;
        rule.key = key?;
        rule.on_missing = on_missing;
        rule.cost = cost?;
        rule.allow = allow;
        rule.deny = deny;
        rule.on_failure = on_failure;
        rule.deadline = deadline;
        rule.shadow = self.flag(raw.shadow.as_ref(), false);
        rule.stop = self.flag(raw.stop.as_ref(), false);
        rule.headers = headers;
        rule.counts = counts;
        rule.longest_delay = longest_delay;
        rule.single_flight = single_flight;
        let places = RulePlaces {
            name: raw.name.span,
            paths,
            key: key_places,
            quotas,
            cost: raw.cost.as_ref().map(|at| at.span),
            on_failure: raw.on_failure.as_ref().map(|at| at.span),
            stop: raw.stop.as_ref().map(|at| at.span),
        };
        Some((rule, places))
    }

    /// How much a request takes.
    fn cost(&mut self, cost: &schema::Cost, rule: &schema::Rule) -> Option<Cost> {
        let map = match cost {
            schema::Cost::Text(at) => return self.units("cost", at).map(Cost::Constant),
            schema::Cost::Map(map) => map,
        };
        let span = rule.cost.as_ref().map_or(rule.name.span, |at| at.span);
        let default = match &map.default {
            None => 1,
            Some(at) => self.units("default", at)?,
        };
        match (&map.header, &map.method) {
            (Some(header), None) => self.cost_by_header(map, header, default),
            (None, Some(methods)) => self.cost_by_method(map, methods, default),
            (Some(_), Some(_)) => {
                let message = "a cost is found in a `header` or by `method`, not both";
                self.refuse(Problem::error(code::CONTRADICTION, span, message))
            }
            (None, None) if self.meant_in(span) => None,
            (None, None) => {
                let message = "a cost needs a `header` or a `method`";
                let problem = Problem::error(code::MISSING_FIELD, span, message);
                self.refuse(problem.help("such as `cost: { header: x-cost, default: 1 }`"))
            }
        }
    }

    fn cost_by_header(
        &mut self,
        map: &schema::CostMap,
        header: &At<Text>,
        default: u32,
    ) -> Option<Cost> {
        let name = self.header_name(header);
        let least = match &map.at_least {
            None => 1,
            Some(at) => self.units("at_least", at)?,
        };
        let most = match &map.at_most {
            None => u32::MAX,
            Some(at) => self.units("at_most", at)?,
        };
        if least > most
            && let Some(at) = map.at_most.as_ref().or(map.at_least.as_ref())
        {
            let message = "`at_most` is below `at_least`, which is 1 unless given";
            return self.refuse(Problem::error(code::CONTRADICTION, at.span, message));
        }
        if let Some(at) = &map.default
            && !(least..=most).contains(&default)
        {
            let message = "`default` is not from `at_least` to `at_most`";
            let problem = Problem::error(code::CONTRADICTION, at.span, message);
            return self.refuse(problem.help("`at_least` is 1 unless given"));
        }
        Some(Cost::Header {
            name: name?,
            default: default.clamp(least, most),
            least,
            most,
        })
    }

    fn cost_by_method(
        &mut self,
        map: &schema::CostMap,
        methods: &At<Table<Whole>>,
        default: u32,
    ) -> Option<Cost> {
        for at in [&map.at_least, &map.at_most].into_iter().flatten() {
            let message = "`at_least` and `at_most` are for a cost from a `header`";
            self.note(Problem::error(code::CONTRADICTION, at.span, message));
        }
        let mut costs: Vec<(Method, u32)> = Vec::new();
        for (name, cost) in &methods.get()?.0 {
            let method = self.method(name);
            let cost = self.units("method", cost);
            costs.extend(method.zip(cost));
        }
        Some(Cost::Method { costs, default })
    }

    /// What to answer when the store does not; what is not given is as it usually is.
    pub(super) fn on_failure(
        &mut self,
        raw: &schema::OnFailure,
        usual: (OnFailure, Option<Duration>),
    ) -> (OnFailure, Option<Duration>) {
        const ONE: NonZeroU32 = NonZeroU32::MIN;
        let counted = OnFailure::Local(Replicas::Counted { at_least: ONE });
        let of = |policy: &schema::FailurePolicy| match policy {
            schema::FailurePolicy::Open => OnFailure::Open,
            schema::FailurePolicy::Closed => OnFailure::Closed,
            schema::FailurePolicy::Local => counted,
        };
        let map = match raw {
            schema::OnFailure::Text(policy) => return (of(policy), usual.1),
            schema::OnFailure::Map(map) => map,
        };
        let mut policy = match map.policy.as_ref().and_then(At::get) {
            Some(policy) => of(policy),
            None => usual.0,
        };
        if let Some(at) = &map.replicas {
            let replicas = at.get().and_then(|raw| self.replicas(raw));
            match (policy, replicas) {
                (OnFailure::Local(_), Some(replicas)) => policy = OnFailure::Local(replicas),
                (OnFailure::Local(_), None) => {}
                (OnFailure::Open | OnFailure::Closed, _) => {
                    let message = "`replicas` matter to the policy `local` only";
                    let problem = Problem::error(code::CONTRADICTION, at.span, message);
                    self.note(problem.help("add `policy: local`, or leave `replicas` out"));
                }
            }
        }
        let deadline = match &map.deadline {
            None => usual.1,
            Some(at) => self.duration(at),
        };
        (policy, deadline)
    }

    fn replicas(&mut self, raw: &schema::Replicas) -> Option<Replicas> {
        let (what, at) = match raw {
            schema::Replicas::Text(at) => ("replicas", at),
            schema::Replicas::Map(map) => ("at_least", &map.at_least),
        };
        let number = self.whole(what, at, 1, MOST_REPLICAS)?;
        let number = u32::try_from(number).ok().and_then(NonZeroU32::new)?;
        Some(match raw {
            schema::Replicas::Text(_) => Replicas::Fixed(number),
            schema::Replicas::Map(_) => Replicas::Counted { at_least: number },
        })
    }

    /// Which answers count.
    fn answers(&mut self, raw: &schema::Count, span: Span) -> Answers {
        let mut list = |at: &At<OneOrMany<Text>>| -> Vec<Statuses> {
            let Some(list) = at.get() else {
                return Vec::new();
            };
            if list.0.is_empty() {
                let message = "an empty list says nothing";
                self.note(Problem::error(code::NO_VALUE, at.span, message));
            }
            let statuses = list.0.iter();
            statuses
                .filter_map(|at| self.parsed(code::STATUS, at))
                .collect()
        };
        match (&raw.only, &raw.except) {
            (Some(only), None) => Answers::Only(list(only)),
            (None, Some(except)) => Answers::Except(list(except)),
            (Some(_), Some(_)) => {
                let message = "`count` takes `only` or `except`, not both";
                self.note(Problem::error(code::CONTRADICTION, span, message));
                Answers::All
            }
            (None, None) if self.meant_in(span) => Answers::All,
            (None, None) => {
                let message = "`count` needs `only` or `except`";
                let problem = Problem::error(code::MISSING_FIELD, span, message);
                self.note(problem.help("such as `count: { only: [401, 403] }`"));
                Answers::All
            }
        }
    }
}
