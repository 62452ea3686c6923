//! Rules: their fields, costs, failure policies and counted statuses.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::http::Headers;
use crate::{OnFailure, Replicas};

use super::clients::KeyShape;
use super::settings::{MAX_KEYS, missing};
use super::{OptionalField, Span, Spanned, Text, Validator, code, schema};
use crate::config::schema::{Integer, Shorthand, Table};
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
}

impl Validator<'_> {
    /// A rule and its spans, unless its name, key, limits or cost is invalid.
    pub(super) fn rule(
        &mut self,
        field: &schema::Rule,
        span: Span,
        defaults: &RuleDefaults,
    ) -> Option<(Rule, RuleSpans)> {
        let name = self.name(&field.name);
        let (matcher, paths) = match field.r#match.value() {
            None => (Matcher::default(), Vec::new()),
            Some(field) => self.matcher(field),
        };
        let parts = field.key.value();
        let (key, key_spans) = match parts {
            None => (Some(Vec::new()), Vec::new()),
            Some(parts) => self.key(parts, field.key.span().unwrap_or(span), &matcher),
        };
        // The number of parts is known even if some are invalid.
        let shape = KeyShape {
            length: parts.map_or(0, |parts| parts.0.len()),
            parts: key.as_deref().unwrap_or_default(),
        };
        let limits = self.limits(field, span, shape);
        let cost = match &field.cost {
            None => Some(Cost::default()),
            Some(cost) => cost.get().and_then(|value| self.cost(value, cost.span)),
        };
        let allow = self.clients(&field.allow, shape);
        let deny = self.clients(&field.deny, shape);
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
        let keys = self.integer("keys", &field.keys, 1..=MAX_KEYS);
        let coalesce = field.single_flight.value();
        let coalesce = coalesce.and_then(|value| self.single_flight(value, &matcher));

        let (limits, quotas) = limits?;
        let mut rule = Rule::with_limits(name?, limits);
        rule.enabled = field.enabled.value().is_none_or(|flag| flag.0);
        rule.matcher = matcher;
        rule.key = key?;
        let on_missing = field.on_missing.value();
        rule.on_missing = on_missing.map_or(defaults.on_missing, |value| missing(*value));
        rule.cost = cost?;
        rule.allow = allow;
        rule.deny = deny;
        rule.on_failure = Some(on_failure);
        rule.deadline = deadline;
        rule.shadow = field.shadow.value().is_some_and(|flag| flag.0);
        rule.stop = field.stop.value().is_some_and(|flag| flag.0);
        rule.headers = headers;
        rule.count_if = count_if.unwrap_or_default();
        rule.max_delay = max_delay;
        rule.keys = keys;
        rule.coalesce = coalesce;
        let spans = RuleSpans {
            name: field.name.span,
            paths,
            key: key_spans,
            quotas,
            cost: field.cost.span(),
            on_failure: field.on_failure.span(),
            stop: field.stop.span(),
            keys: field.keys.span(),
        };
        Some((rule, spans))
    }

    fn cost(&mut self, field: &schema::Cost, span: Span) -> Option<Cost> {
        let source = match field {
            Shorthand::Value(field) => {
                let cost = self.integer("cost", field, 0..=u32::MAX);
                return cost.map(Cost::Constant);
            }
            Shorthand::Map(source) => source,
        };
        let default = self.cost_or("default", &source.default, 1)?;
        let fields = [
            ("header", source.header.is_some()),
            ("method", source.method.is_some()),
        ];
        let help = "such as `cost: { header: x-cost, default: 1 }`";
        self.exactly_one("`cost`", span, &fields, help)?;
        match (&source.header, &source.method) {
            (Some(header), _) => self.cost_by_header(source, header, default),
            (None, methods) => self.cost_by_method(source, methods.value()?, default),
        }
    }

    fn cost_by_header(
        &mut self,
        source: &schema::CostSource,
        header: &Spanned<Text>,
        default: u32,
    ) -> Option<Cost> {
        let name = self.header_name(header);
        let least = self.cost_or("at_least", &source.at_least, 1)?;
        let most = self.cost_or("at_most", &source.at_most, u32::MAX)?;
        if least > most
            && let Some(field) = source.at_most.as_ref().or(source.at_least.as_ref())
        {
            let message = "`at_most` is below `at_least`, which is 1 by default";
            self.error(code::CONTRADICTION, field.span, message);
            return None;
        }
        if let Some(field) = &source.default
            && !(least..=most).contains(&default)
        {
            let message = "`default` is not between `at_least` and `at_most`";
            self.error(code::CONTRADICTION, field.span, message)
                .help("`at_least` is 1 by default");
            return None;
        }
        Some(Cost::Header {
            name: name?,
            default: default.clamp(least, most),
            min: least,
            max: most,
        })
    }

    fn cost_by_method(
        &mut self,
        source: &schema::CostSource,
        methods: &Table<Integer>,
        default: u32,
    ) -> Option<Cost> {
        for field in [&source.at_least, &source.at_most].into_iter().flatten() {
            let message = "`at_least` and `at_most` require a cost by `header`";
            self.error(code::CONTRADICTION, field.span, message);
        }
        let mut costs = Vec::new();
        for (name, cost) in &methods.0 {
            let method = self.method(name);
            let cost = self.integer("method", cost, 0..=u32::MAX);
            costs.extend(method.zip(cost));
        }
        Some(Cost::Method { costs, default })
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
