//! The content of an event: rules with their rates, the store, the top keys.

// For display only.
#![allow(clippy::float_arithmetic)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tallygate::http::{NO_RULE, Outcome};
use tallygate::rules::Rules;
use tokio::time::Instant;

use super::super::{keys, top};
use super::latency::RecentLatency;
use crate::describe;
use crate::endpoints::http_origin;
use crate::sample_request;
use crate::state::ServerState;

/// Rules in an event; of more, the busiest are included.
const MAX_RULES: usize = 200;
const MAX_KEYS: usize = 10;

type Counts = [u64; Outcome::ALL.len()];

/// Builds events. Rates are differences to the previous event.
pub(super) struct EventBuilder {
    state: Arc<ServerState>,
    previous: Option<(Instant, HashMap<String, Counts>)>,
    latency: RecentLatency,
    started: Instant,
    /// A request to try, by the rules it was found for.
    sample: Option<(Arc<Rules>, String)>,
}

struct RuleStats {
    name: String,
    limits: Vec<String>,
    shadow: bool,
    enabled: bool,
    total: Counts,
    /// Since the previous event.
    new: Counts,
}

impl EventBuilder {
    pub(super) fn new(state: Arc<ServerState>) -> Self {
        EventBuilder {
            state,
            previous: None,
            latency: RecentLatency::default(),
            started: Instant::now(),
            sample: None,
        }
    }

    /// Forgets the previous event: after a pause its rates would be wrong.
    pub(super) fn reset(&mut self) {
        self.previous = None;
        self.latency = RecentLatency::default();
    }

    pub(super) fn build(&mut self, now: Instant) -> Bytes {
        Bytes::from(format!("data: {}\n\n", self.snapshot(now)))
    }

    fn snapshot(&mut self, now: Instant) -> Value {
        let state = Arc::clone(&self.state);
        let store_stats = state.store_stats();
        let metrics = &state.metrics;
        self.latency.push(metrics.store_buckets());
        let (mut rules, seconds) = self.rules(now);
        // Without the row for decisions without a rule.
        let rule_count = rules.len() - 1;
        if rules.len() > MAX_RULES {
            rules.sort_by_key(|rule| std::cmp::Reverse(rule.new.iter().sum::<u64>()));
            rules.truncate(MAX_RULES);
        }
        let origin = state.active_rules.origin();
        let rules: Vec<Value> = rules
            .into_iter()
            .map(|rule| {
                let queue = metrics.queue_depth(&rule.name);
                rule.json(&origin, queue, seconds)
            })
            .collect();
        let unix_time = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ms = unix_time.map_or(0, |time| time.as_millis());
        let (reloads, reload_errors) = metrics.reloads();
        let endpoints = &state.endpoints;
        let playground = endpoints.has_playground.then(|| http_origin(endpoints.api));
        json!({
            "t_ms": u64::try_from(unix_ms).unwrap_or(u64::MAX),
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": self.started.elapsed().as_secs(),
            "playground": playground,
            "try": self.sample(),
            "store": {
                "kind": state.engine.store().kind(),
                "breaker": match store_stats.is_down() { true => "open", false => "closed" },
                "p50_us": self.latency.quantile(0.5),
                "p99_us": self.latency.quantile(0.99),
                "errors": metrics.store_errors(&store_stats),
            },
            "keys": store_stats.keys,
            "shared": store_stats.shared_budgets,
            "reloads": reloads,
            "reload_errors": reload_errors,
            "kill_switch": state.active_rules.kill_switch().name(),
            "ready": state.not_ready().is_none(),
            "rules_in_force": rule_count,
            "rules": rules,
            "top": top::lists(&state, MAX_KEYS, keys::source),
        })
    }

    /// A request to try, as a `curl` command: through the gateway, or to the check API.
    fn sample(&mut self) -> &str {
        let active_rules = &self.state.active_rules;
        let rules = active_rules.rules();
        let current = self.sample.take();
        let current = current.filter(|(known, _)| Arc::ptr_eq(known, &rules));
        let (_, command) = self.sample.insert(current.unwrap_or_else(|| {
            let endpoints = &self.state.endpoints;
            let command = endpoints.gateway.as_ref().and_then(|gateway| {
                let set = active_rules.snapshot().set;
                let sample = sample_request::find(&set.rules, &rules)?;
                Some(sample.curl(&gateway.origin()))
            });
            let command = command.unwrap_or_else(|| sample_request::check(endpoints.api).join(" "));
            (rules, command)
        }));
        command
    }

    /// All rules, decisions without a rule last, and the seconds since the previous event.
    fn rules(&mut self, now: Instant) -> (Vec<RuleStats>, f64) {
        let metrics = &self.state.metrics;
        let mut rules = Vec::new();
        self.state.active_rules.for_each_rule(|rule, shadow| {
            rules.push(RuleStats {
                name: rule.name.as_str().to_owned(),
                limits: describe::limits(&rule.limits),
                shadow,
                enabled: rule.enabled,
                total: [0; _],
                new: [0; _],
            });
        });
        rules.push(RuleStats {
            name: NO_RULE.to_owned(),
            limits: Vec::new(),
            shadow: false,
            enabled: true,
            total: [0; _],
            new: [0; _],
        });
        let previous = self.previous.take();
        let mut totals = HashMap::with_capacity(rules.len());
        for rule in &mut rules {
            rule.total = metrics.decisions(&rule.name);
            let before = previous
                .as_ref()
                .and_then(|(_, totals)| totals.get(&rule.name));
            // The first event has no rates; a rule added since the previous one started at 0.
            let first = previous.is_none().then_some(&rule.total);
            let before = before.or(first).unwrap_or(&[0; _]);
            for (i, count) in rule.total.iter().enumerate() {
                rule.new[i] = count.saturating_sub(before[i]);
            }
            totals.insert(rule.name.clone(), rule.total);
        }
        let seconds = previous.map_or(1.0, |(before, _)| (now - before).as_secs_f64().max(0.001));
        self.previous = Some((now, totals));
        (rules, seconds)
    }
}

impl RuleStats {
    fn json(self, origin: &str, queue: i64, seconds: f64) -> Value {
        let by_outcome = |value: &dyn Fn(usize) -> Value| -> Map<String, Value> {
            let each = Outcome::ALL.iter().enumerate();
            each.map(|(i, outcome)| (outcome.name().to_owned(), value(i)))
                .collect()
        };
        let rate = |i: usize| json!((self.new[i] as f64 / seconds * 10.0).round() / 10.0);
        json!({
            "name": self.name,
            "origin": origin,
            "limits": self.limits,
            "shadow": self.shadow,
            "enabled": self.enabled,
            "queue": queue,
            "per_second": by_outcome(&rate),
            "total": by_outcome(&|i| json!(self.total[i])),
        })
    }
}
