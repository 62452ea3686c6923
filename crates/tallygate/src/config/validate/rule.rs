//! Rules: their fields, failure policies and counted statuses.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::http::Headers;
use crate::{OnFailure, Replicas};

use super::budget::{Budgets, CountedBy};
use super::settings::missing;
use super::{OptionalField, Span, Validator, code, schema};
use crate::config::schema::Shorthand;
use crate::rules::{Cost, Matcher, Missing, Rule, StatusFilter};

const MAX_REPLICAS: u32 = 1_000_000;

#[derive(Clone, Copy, Default)]
pub(super) struct RuleDefaults {
    pub(super) headers: Headers,
    pub(super) on_failure: (OnFailure, Option<Duration>),
    pub(super) on_missing: Missing,
}

#[derive(Clone, Debug)]
pub(in crate::config) struct RuleSpans {
    pub(in crate::config) name: Span,
    pub(in crate::config) paths: Vec<Span>,
    pub(in crate::config) key: Vec<Span>,
    /// Each quota of each tier. A rule without tiers has one list.
    pub(in crate::config) quotas: Vec<Vec<Span>>,
    pub(in crate::config) cost: Option<Span>,
    pub(in crate::config) on_failure: Option<Span>,
    pub(in crate::config) stop: Option<Span>,
    pub(in crate::config) keys: Option<Span>,
    pub(in crate::config) lease: Option<Span>,
}

impl Validator<'_> {
    /// A rule and its spans, unless its name, key, limits or cost is invalid.
    pub(super) fn rule(
        &mut self,
        field: &schema::Rule,
        span: Span,
        defaults: &RuleDefaults,
        budgets: &Budgets,
    ) -> Option<(Rule, RuleSpans)> {
        let name = self.name(&field.name);
        let (matcher, paths) = match field.r#match.value() {
            None => (Matcher::default(), Vec::new()),
            Some(field) => self.matcher(field),
        };
        let counted_by = self.counted_by(field, span, &matcher, budgets);
        let cost = match &field.cost {
            None => Some((Cost::default(), None)),
            Some(cost) => cost
                .get()
                .and_then(|value| self.cost(value, cost.span, &matcher, &paths)),
        };
        let (allow, deny) = match counted_by.shape() {
            Some(shape) => (
                self.clients(&field.allow, shape),
                self.clients(&field.deny, shape),
            ),
            // The budget has been reported.
            None => (Vec::new(), Vec::new()),
        };
        let (on_failure, deadline) = match field.on_failure.value() {
            None => defaults.on_failure,
            Some(field) => self.on_failure(field, defaults.on_failure),
        };
        let headers = match field.headers.value() {
            None => defaults.headers,
            Some(field) => self.headers(field, defaults.headers),
        };
        let count = field.count.as_ref();
        let count_if = count.and_then(|count| self.status_filter(count.get()?, count.span));
        let max_delay = self.duration(&field.longest_delay);
        let limits = counted_by.limits.as_ref();
        let limits = limits.map(|(limits, spans)| (limits, spans.as_slice()));
        let lease = self.lease(&field.lease, limits);
        let coalesce = field.single_flight.value();
        let coalesce = coalesce.and_then(|value| self.single_flight(value, &matcher));

        let CountedBy {
            budget,
            key,
            limits,
            share,
            keys,
            spans,
            ..
        } = counted_by;
        let (limits, quotas) = limits?;
        let mut rule = Rule::with_limits(name?, limits);
        rule.enabled = field.enabled.value().is_none_or(|flag| flag.0);
        rule.matcher = matcher;
        rule.key = key?;
        rule.budget = budget;
        rule.share = share;
        let on_missing = field.on_missing.value();
        rule.on_missing = on_missing.map_or(defaults.on_missing, |value| missing(*value));
        (rule.cost, rule.actual) = cost?;
        rule.allow = allow;
        rule.deny = deny;
        rule.on_failure = Some(on_failure);
        rule.deadline = deadline;
        rule.shadow = field.shadow.value().is_some_and(|flag| flag.0);
        rule.stop = field.stop.value().is_some_and(|flag| flag.0);
        rule.headers = headers;
        rule.count_if = count_if.unwrap_or_default();
        rule.max_delay = max_delay;
        rule.lease = lease;
        rule.keys = keys;
        rule.coalesce = coalesce;
        let spans = RuleSpans {
            name: field.name.span,
            paths,
            key: spans.key,
            quotas,
            cost: field.cost.span(),
            on_failure: field.on_failure.span(),
            stop: field.stop.span(),
            keys: spans.keys,
            lease: field.lease.span(),
        };
        Some((rule, spans))
    }

    pub(super) fn on_failure(
        &mut self,
        field: &schema::OnFailure,
        defaults: (OnFailure, Option<Duration>),
    ) -> (OnFailure, Option<Duration>) {
        let policy = |policy: &schema::FailurePolicy| match policy {
            schema::FailurePolicy::Open => OnFailure::Open,
            schema::FailurePolicy::Closed => OnFailure::Closed,
            schema::FailurePolicy::Local => OnFailure::Local(Replicas::Counted {
                at_least: NonZeroU32::MIN,
            }),
        };
        let options = match field {
            Shorthand::Value(value) => return (policy(value), defaults.1),
            Shorthand::Map(options) => options,
        };
        let mut on_failure = options.policy.value().map_or(defaults.0, policy);
        if let Some(field) = &options.replicas {
            let replicas = field.get().and_then(|value| self.replicas(value));
            match on_failure {
                OnFailure::Local(replicas_before) => {
                    on_failure = OnFailure::Local(replicas.unwrap_or(replicas_before));
                }
                OnFailure::Open | OnFailure::Closed => {
                    let message = "`replicas` requires `policy: local`";
                    self.error(code::CONTRADICTION, field.span, message)
                        .help("add `policy: local`, or remove `replicas`");
                }
            }
        }
        let deadline = match &options.deadline {
            None => defaults.1,
            Some(field) => self.duration(field),
        };
        (on_failure, deadline)
    }

    fn replicas(&mut self, field: &schema::Replicas) -> Option<Replicas> {
        let (name, number) = match field {
            Shorthand::Value(number) => ("replicas", number),
            Shorthand::Map(map) => ("at_least", &map.at_least),
        };
        let number = NonZeroU32::new(self.integer(name, number, 1..=MAX_REPLICAS)?)?;
        Some(match field {
            Shorthand::Value(_) => Replicas::Fixed(number),
            Shorthand::Map(_) => Replicas::Counted { at_least: number },
        })
    }

    fn status_filter(&mut self, field: &schema::Count, span: Span) -> Option<StatusFilter> {
        let fields = [
            ("only", field.only.is_some()),
            ("except", field.except.is_some()),
        ];
        let help = "such as `count: { only: [401, 403] }`";
        self.exactly_one("`count`", span, &fields, help)?;
        let (name, list) = match field.only {
            Some(_) => ("only", &field.only),
            None => ("except", &field.except),
        };
        let items = self.non_empty(name, list, "such as `[401, 403]`").iter();
        let statuses = items.filter_map(|item| self.parse(code::STATUS, item));
        let statuses = statuses.collect();
        Some(match field.only {
            Some(_) => StatusFilter::Only(statuses),
            None => StatusFilter::Except(statuses),
        })
    }
}
