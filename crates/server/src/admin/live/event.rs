//! What an event says: rules with their rates, the store, the top keys. Knows the running server
//! and what it did when it was last looked at.

// For people to look at; nothing is decided by it.
#![allow(clippy::float_arithmetic)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tallygate::http::Outcome;
use tokio::time::Instant;

use super::super::top;
use super::latency::Lately;
use crate::metrics::NO_RULE;
use crate::state::Serving;
use tallygate::rules::{Limits, Quotas, Rule};

/// The most rules in an event; of more, the busiest are told.
const MOST_RULES: usize = 200;
/// How many keys of each list.
const MOST_KEYS: usize = 10;

type Counts = [u64; Outcome::ALL.len()];

/// A server, and what it did when it was last looked at.
pub(super) struct Figures {
    serving: Arc<Serving>,
    before: Option<(Instant, HashMap<String, Counts>)>,
    lately: Lately,
}

/// A rule in a few words.
struct Told {
    name: String,
    limits: Vec<String>,
    shadow: bool,
    enabled: bool,
    counts: Counts,
    since: Counts,
}

impl Figures {
    pub(super) fn new(serving: Arc<Serving>) -> Self {
        Figures {
            serving,
            before: None,
            lately: Lately::default(),
        }
    }

    /// Starts anew: what was long ago is no rate of now.
    pub(super) fn forget(&mut self) {
        self.before = None;
        self.lately = Lately::default();
    }

    /// The event of now, as it goes over the wire.
    pub(super) fn event(&mut self, now: Instant) -> Bytes {
        let value = self.look(now);
        Bytes::from(format!("data: {value}\n\n"))
    }

    fn look(&mut self, now: Instant) -> Value {
        let serving = Arc::clone(&self.serving);
        let store_stats = serving.store_stats();
        let metrics = &serving.metrics;
        self.lately.look(metrics.store_buckets());
        let (mut rules, seconds) = self.rules(now);
        let number = rules.len() - 1;
        if rules.len() > MOST_RULES {
            rules.sort_by_key(|rule| std::cmp::Reverse(rule.since.iter().sum::<u64>()));
            rules.truncate(MOST_RULES);
        }
        let origin = serving.force.origin();
        let rules: Vec<Value> = rules
            .into_iter()
            .map(|rule| {
                let queue = metrics.queue_depth(&rule.name);
                rule.json(&origin, queue, seconds)
            })
            .collect();
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let milliseconds = since.map_or(0, |since| since.as_millis());
        let (reloads, failed) = metrics.reloads();
        json!({
            "t_ms": u64::try_from(milliseconds).unwrap_or(u64::MAX),
            "store": {
                "kind": serving.limiter.store().kind(),
                "breaker": match store_stats.is_down { true => "open", false => "closed" },
                "p50_us": self.lately.quantile(0.5),
                "p99_us": self.lately.quantile(0.99),
                "errors": metrics.store_errors(),
            },
            "keys": store_stats.keys,
            "shared": store_stats.shared_budgets,
            "reloads": reloads,
            "reload_errors": failed,
            "kill_switch": serving.force.switch().name(),
            "ready": serving.not_ready().is_none(),
            "rules_in_force": number,
            "rules": rules,
            "top": top::lists(&serving, MOST_KEYS),
        })
    }

    /// Every rule, that of decisions without one last, and of how many seconds the rates are.
    fn rules(&mut self, now: Instant) -> (Vec<Told>, f64) {
        let metrics = &self.serving.metrics;
        let mut told = Vec::new();
        self.serving.force.each_rule(|rule, shadow| {
            told.push(Told {
                name: rule.name.as_str().to_owned(),
                limits: limits(rule),
                shadow,
                enabled: rule.enabled,
                counts: [0; _],
                since: [0; _],
            });
        });
        told.push(Told {
            name: NO_RULE.to_owned(),
            limits: Vec::new(),
            shadow: false,
            enabled: true,
            counts: [0; _],
            since: [0; _],
        });
        let before = self.before.take();
        let mut counted = HashMap::with_capacity(told.len());
        for rule in &mut told {
            rule.counts = metrics.decisions(&rule.name);
            let known = before.as_ref().and_then(|(_, known)| known.get(&rule.name));
            // The first look has nothing to compare with; a rule that is new began at 0.
            let first = before.is_none().then_some(&rule.counts);
            let then = known.or(first).unwrap_or(&[0; _]);
            for (i, count) in rule.counts.iter().enumerate() {
                rule.since[i] = count.saturating_sub(then[i]);
            }
            counted.insert(rule.name.clone(), rule.counts);
        }
        let seconds = before.map_or(1.0, |(then, _)| (now - then).as_secs_f64().max(0.001));
        self.before = Some((now, counted));
        (told, seconds)
    }
}

impl Told {
    fn json(self, origin: &str, queue: i64, seconds: f64) -> Value {
        let by_name = |value: &dyn Fn(usize) -> Value| -> Map<String, Value> {
            let each = Outcome::ALL.iter().enumerate();
            each.map(|(i, outcome)| (outcome.name().to_owned(), value(i)))
                .collect()
        };
        let rate = |i: usize| json!((self.since[i] as f64 / seconds * 10.0).round() / 10.0);
        json!({
            "name": self.name,
            "origin": origin,
            "limits": self.limits,
            "shadow": self.shadow,
            "enabled": self.enabled,
            "queue": queue,
            "per_second": by_name(&rate),
            "total": by_name(&|i| json!(self.counts[i])),
        })
    }
}

/// A rule's limits as people write them; those of tiers behind the tier's name.
fn limits(rule: &Rule) -> Vec<String> {
    let texts = |quotas: &Quotas| -> Vec<String> {
        let each = quotas.iter();
        each.map(|(_, quota)| quota.to_string()).collect()
    };
    match &rule.limits {
        Limits::Same(quotas) => texts(quotas),
        Limits::Tiered(tiered) => {
            let tiers = tiered.tiers().iter();
            tiers
                .flat_map(|(name, quotas)| {
                    let texts = texts(quotas).into_iter();
                    texts.map(move |text| format!("{name}: {text}"))
                })
                .collect()
        }
    }
}
