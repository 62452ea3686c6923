//! Counters, gauges and histograms of a server, as Prometheus reads them. Keys are never labels:
//! the number of series is bounded by the number of rules.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus::core::Metric as _;
use prometheus::proto::{Metric, MetricFamily};
use prometheus::{
    Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
    register_histogram_vec_with_registry, register_histogram_with_registry,
    register_int_counter_vec_with_registry, register_int_counter_with_registry,
    register_int_gauge_vec_with_registry, register_int_gauge_with_registry,
};
use tallygate::StoreErrorKind;
use tallygate::http::Outcome;

/// The rule label of decisions without a rule. Not a valid rule name.
pub(crate) const NO_RULE: &str = "(none)";
/// The rule label of requests that the kill switch refuses. Not a valid rule name.
pub(crate) const KILL_SWITCH: &str = "(kill-switch)";

/// From a decision in memory, below a microsecond, to a store that runs into its deadline.
const BUCKETS_SECONDS: [f64; 16] = [
    0.000_001, 0.000_005, 0.000_025, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01,
    0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
];

const ERROR_KINDS: [StoreErrorKind; 7] = [
    StoreErrorKind::Unreachable,
    StoreErrorKind::Timeout,
    StoreErrorKind::Overloaded,
    StoreErrorKind::Refused,
    StoreErrorKind::Misconfigured,
    StoreErrorKind::Garbled,
    StoreErrorKind::Other,
];

pub(crate) struct Metrics {
    registry: Registry,
    decisions: IntCounterVec,
    decision_seconds: Histogram,
    store_seconds: Histogram,
    store_errors: IntCounterVec,
    breaker: IntGauge,
    queue_depth: IntGaugeVec,
    keys: IntGauge,
    shared_budgets: IntCounter,
    reloads: IntCounterVec,
    rules: Mutex<HashSet<String>>,
}

#[derive(Clone)]
pub(crate) struct StoreMetrics {
    seconds: Histogram,
    errors: IntCounterVec,
}

/// Times a request to a store. Dropped before the answer, it counts as a timeout.
pub(crate) struct StoreTimer<'m> {
    metrics: &'m StoreMetrics,
    started: Instant,
    error: Option<StoreErrorKind>,
}

/// Counts a request in the queue depth of its rules until dropped.
pub(crate) struct QueueGuard(Vec<IntGauge>);

/// State of the store that is only read when metrics are gathered.
pub(crate) struct StoreStats {
    pub(crate) is_down: bool,
    pub(crate) keys: usize,
    pub(crate) shared_budgets: u64,
}

/// Cumulative histogram buckets: upper bound in seconds and count. The last bound is infinite.
pub(crate) type Buckets = Vec<(f64, u64)>;

impl Metrics {
    /// Creates all metrics at 0; `store` is the kind of the store.
    pub(crate) fn new(store: &str) -> Self {
        let metrics = Self::register(store).expect("metric names are valid and unique");
        for result in ["ok", "error"] {
            metrics.reloads.with_label_values(&[result]);
        }
        for kind in ERROR_KINDS {
            metrics.store_errors.with_label_values(&[kind.name()]);
        }
        metrics.set_rules(&[]);
        metrics
    }

    fn register(store: &str) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let buckets = || BUCKETS_SECONDS.to_vec();
        Ok(Metrics {
            decisions: register_int_counter_vec_with_registry!(
                "tallygate_decisions_total",
                "Decisions by rule and outcome.",
                &["rule", "outcome"],
                registry
            )?,
            decision_seconds: register_histogram_with_registry!(
                "tallygate_decision_duration_seconds",
                "Duration of a decision, without time in a queue.",
                buckets(),
                registry
            )?,
            store_seconds: register_histogram_vec_with_registry!(
                "tallygate_store_duration_seconds",
                "Response time of the store.",
                &["store"],
                buckets(),
                registry
            )?
            .with_label_values(&[store]),
            store_errors: register_int_counter_vec_with_registry!(
                "tallygate_store_errors_total",
                "Store errors by kind.",
                &["kind"],
                registry
            )?,
            breaker: register_int_gauge_vec_with_registry!(
                "tallygate_breaker_state",
                "1 while the circuit breaker of a server is open and requests bypass it.",
                &["server"],
                registry
            )?
            .with_label_values(&[store]),
            queue_depth: register_int_gauge_vec_with_registry!(
                "tallygate_queue_depth",
                "Delayed requests that are waiting, by rule.",
                &["rule"],
                registry
            )?,
            keys: register_int_gauge_with_registry!(
                "tallygate_keys",
                "Live keys in the memory of this process; a key with two limits counts twice.",
                registry
            )?,
            shared_budgets: register_int_counter_with_registry!(
                "tallygate_shared_budgets_total",
                "Decisions on budgets that keys share because memory is full.",
                registry
            )?,
            reloads: register_int_counter_vec_with_registry!(
                "tallygate_reloads_total",
                "Reloads of the rules file by result.",
                &["result"],
                registry
            )?,
            registry,
            rules: Mutex::default(),
        })
    }

    /// Adds series at 0 for new rules and removes those of other rules.
    pub(crate) fn set_rules(&self, rules: &[&str]) {
        let new: HashSet<String> = [NO_RULE, KILL_SWITCH]
            .iter()
            .chain(rules)
            .map(|rule| (*rule).to_owned())
            .collect();
        let mut current = self.rules();
        for rule in current.difference(&new) {
            self.remove_rule(rule);
        }
        for rule in &new {
            for outcome in Outcome::ALL {
                self.decisions
                    .with_label_values(&[rule.as_str(), outcome.name()]);
            }
            self.queue_depth.with_label_values(&[rule]);
        }
        *current = new;
    }

    fn remove_rule(&self, rule: &str) {
        // Errors mean that there is no such series.
        for outcome in Outcome::ALL {
            let _ = self.decisions.remove_label_values(&[rule, outcome.name()]);
        }
        let _ = self.queue_depth.remove_label_values(&[rule]);
    }

    fn rules(&self) -> MutexGuard<'_, HashSet<String>> {
        // No statement leaves the set half changed.
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record_decision(&self, rule: &str, outcome: Outcome) {
        self.decisions
            .with_label_values(&[rule, outcome.name()])
            .inc();
    }

    pub(crate) fn observe_decision(&self, time: Duration) {
        self.decision_seconds.observe(time.as_secs_f64());
    }

    /// Counts a delayed request in the queue depth of these rules.
    pub(crate) fn enqueue<'r>(&self, rules: impl Iterator<Item = &'r str>) -> QueueGuard {
        let gauges: Vec<IntGauge> = rules
            .map(|rule| self.queue_depth.with_label_values(&[rule]))
            .collect();
        gauges.iter().for_each(IntGauge::inc);
        QueueGuard(gauges)
    }

    pub(crate) fn record_reload(&self) {
        self.reloads.with_label_values(&["ok"]).inc();
    }

    pub(crate) fn record_failed_reload(&self) {
        self.reloads.with_label_values(&["error"]).inc();
    }

    pub(crate) fn store(&self) -> StoreMetrics {
        StoreMetrics {
            seconds: self.store_seconds.clone(),
            errors: self.store_errors.clone(),
        }
    }

    pub(crate) fn text(&self, store: &StoreStats) -> String {
        let mut text = String::new();
        TextEncoder::new()
            .encode_utf8(&self.gather(store), &mut text)
            .expect("writing to a String cannot fail");
        text
    }

    pub(crate) fn gather(&self, store: &StoreStats) -> Vec<MetricFamily> {
        self.breaker.set(store.is_down.into());
        self.keys.set(i64::try_from(store.keys).unwrap_or(i64::MAX));
        let new = store
            .shared_budgets
            .saturating_sub(self.shared_budgets.get());
        self.shared_budgets.inc_by(new);
        let mut families = self.registry.gather();
        // A request in flight while its rule was removed may have recreated the series.
        let rules = self.rules();
        let stale_rule = |metric: &Metric| {
            let mut labels = metric.get_label().iter();
            let rule = labels.find(|label| label.name() == "rule")?.value();
            (!rules.contains(rule)).then(|| rule.to_owned())
        };
        for family in &mut families {
            let stale: Vec<String> = family.get_metric().iter().filter_map(&stale_rule).collect();
            if stale.is_empty() {
                continue;
            }
            stale.iter().for_each(|rule| self.remove_rule(rule));
            let metrics = family.take_metric().into_iter();
            family.set_metric(
                metrics
                    .filter(|metric| stale_rule(metric).is_none())
                    .collect(),
            );
        }
        families
    }

    /// The decisions of a rule per outcome, in the order of [`Outcome::ALL`]; 0 for unknown rules.
    pub(crate) fn decisions(&self, rule: &str) -> [u64; Outcome::ALL.len()] {
        if !self.rules().contains(rule) {
            return [0; _];
        }
        Outcome::ALL.map(|outcome| {
            let counter = self.decisions.with_label_values(&[rule, outcome.name()]);
            counter.get()
        })
    }

    /// The queue depth of a rule; 0 for unknown rules.
    pub(crate) fn queue_depth(&self, rule: &str) -> i64 {
        match self.rules().contains(rule) {
            true => self.queue_depth.with_label_values(&[rule]).get(),
            false => 0,
        }
    }

    pub(crate) fn store_buckets(&self) -> Buckets {
        let metric = self.store_seconds.metric();
        let histogram = metric.get_histogram();
        let buckets = histogram.get_bucket().iter();
        let buckets = buckets.map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
        let all = (f64::INFINITY, histogram.get_sample_count());
        buckets.chain([all]).collect()
    }

    pub(crate) fn store_errors(&self) -> u64 {
        let counter = |kind: &StoreErrorKind| self.store_errors.with_label_values(&[kind.name()]);
        ERROR_KINDS.iter().map(|kind| counter(kind).get()).sum()
    }

    /// The numbers of successful and of failed reloads.
    pub(crate) fn reloads(&self) -> (u64, u64) {
        let [ok, error] = ["ok", "error"].map(|result| self.reloads.with_label_values(&[result]));
        (ok.get(), error.get())
    }
}

impl StoreMetrics {
    /// Observes the response time of a store that needs no waiting.
    pub(crate) fn observe(&self, time: Duration) {
        self.seconds.observe(time.as_secs_f64());
    }

    pub(crate) fn start_timer(&self) -> StoreTimer<'_> {
        StoreTimer {
            metrics: self,
            started: Instant::now(),
            error: Some(StoreErrorKind::Timeout),
        }
    }
}

impl StoreTimer<'_> {
    pub(crate) fn finish(mut self, error: Option<StoreErrorKind>) {
        self.error = error;
    }
}

impl Drop for StoreTimer<'_> {
    fn drop(&mut self) {
        self.metrics.observe(self.started.elapsed());
        if let Some(kind) = self.error {
            self.metrics.errors.with_label_values(&[kind.name()]).inc();
        }
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        self.0.iter().for_each(IntGauge::dec);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: StoreStats = StoreStats {
        is_down: false,
        keys: 0,
        shared_budgets: 0,
    };

    #[test]
    fn a_removed_rule_has_no_series() {
        let metrics = Metrics::new("memory");
        metrics.set_rules(&["a", "b"]);
        metrics.record_decision("a", Outcome::Refused);
        let line = "tallygate_decisions_total{outcome=\"refused\",rule=\"a\"} 1\n";
        assert!(metrics.text(&IDLE).contains(line));
        metrics.set_rules(&["a"]);
        assert!(metrics.text(&IDLE).contains(line));
        metrics.set_rules(&["b"]);
        assert!(!metrics.text(&IDLE).contains("rule=\"a\""));
        // A request that was in flight during the reload.
        metrics.record_decision("a", Outcome::Refused);
        drop(metrics.enqueue(["a"].into_iter()));
        let text = metrics.text(&IDLE);
        assert!(!text.contains("rule=\"a\"") && text.contains("rule=\"b\""));
        assert!(metrics.queue_depth.remove_label_values(&["a"]).is_err());
    }

    #[test]
    fn a_dropped_timer_counts_as_a_timeout() {
        let metrics = Metrics::new("redis");
        let store = metrics.store();
        drop(store.start_timer());
        store.start_timer().finish(Some(StoreErrorKind::Refused));
        store.start_timer().finish(None);
        let text = metrics.text(&IDLE);
        assert!(text.contains("tallygate_store_errors_total{kind=\"timeout\"} 1\n"));
        assert!(text.contains("tallygate_store_errors_total{kind=\"refused\"} 1\n"));
        assert!(text.contains("tallygate_store_duration_seconds_count{store=\"redis\"} 3\n"));
    }

    #[test]
    fn a_delayed_request_counts_in_the_queue_depth_until_it_proceeds() {
        let metrics = Metrics::new("memory");
        metrics.set_rules(&["mail"]);
        let guard = metrics.enqueue(["mail"].into_iter());
        let depth = |n| format!("tallygate_queue_depth{{rule=\"mail\"}} {n}\n");
        assert!(metrics.text(&IDLE).contains(&depth(1)));
        drop(guard);
        assert!(metrics.text(&IDLE).contains(&depth(0)));
    }
}
