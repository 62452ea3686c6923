//! Counters, gauges and histograms of a server, as Prometheus reads them. Keys are never labels:
//! the number of series is bounded by the number of rules.

mod gateway;
#[cfg(target_os = "linux")]
mod process;

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::core::Metric as _;
use prometheus::proto::{Metric, MetricFamily};
use prometheus::{
    Histogram, HistogramTimer, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, register_histogram_vec_with_registry, register_histogram_with_registry,
    register_int_counter_vec_with_registry, register_int_counter_with_registry,
    register_int_gauge_vec_with_registry, register_int_gauge_with_registry,
};
use tallygate::http::{NO_RULE, Outcome};
use tallygate::store::{LeaseStats, OverloadStats, RefusalCacheStats, StoreErrorKind};

pub(crate) use self::gateway::{GatewayMetrics, UpstreamErrorKind, UpstreamMetrics};
use crate::budgets::LimitReport;

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
    near_limit: IntCounterVec,
    decision_seconds: Histogram,
    store_seconds: Histogram,
    store_errors: IntCounterVec,
    breakers: IntGaugeVec,
    evicts: IntGaugeVec,
    overload: IntCounterVec,
    refusal_cache: IntCounterVec,
    leases: IntCounter,
    leased_units: IntCounterVec,
    outstanding_units: IntGauge,
    leased_decisions: IntCounter,
    queue_depth: IntGaugeVec,
    keys: IntGauge,
    keys_capacity: IntGauge,
    shared_budgets: IntCounter,
    reloads: IntCounterVec,
    budget_limit: IntGaugeVec,
    budget_remaining: IntGaugeVec,
    budget_ends: IntGaugeVec,
    connections: IntGaugeVec,
    connections_capacity: IntGaugeVec,
    access_log: AccessLogMetrics,
    store_queue: IntGaugeVec,
    store_queue_capacity: IntGauge,
    rules: Mutex<HashSet<String>>,
}

#[derive(Clone)]
pub(crate) struct StoreMetrics {
    seconds: Histogram,
    errors: IntCounterVec,
}

/// The lines of the access log.
#[derive(Clone, Debug)]
pub(crate) struct AccessLogMetrics {
    pub(crate) written: IntCounter,
    /// They could not be written.
    pub(crate) failed: IntCounter,
    /// The queue was full.
    pub(crate) dropped: IntCounter,
}

impl AccessLogMetrics {
    fn new(lines: &IntCounterVec) -> Self {
        let counter = |result| lines.with_label_values(&[result]);
        AccessLogMetrics {
            written: counter("written"),
            failed: counter("failed"),
            dropped: counter("dropped"),
        }
    }

    #[cfg(test)]
    pub(crate) fn unregistered() -> Self {
        let lines = IntCounterVec::new(Opts::new("lines", "Lines."), &["result"]);
        Self::new(&lines.unwrap())
    }
}

/// Counts a request in the queue depth of its rules until dropped.
pub(crate) struct QueueGuard(Vec<IntGauge>);

/// State of the store that is only read when metrics are gathered.
#[derive(Default)]
pub(crate) struct StoreStats {
    /// The servers, and whether the circuit breaker of each is open.
    pub(crate) breakers: Vec<(String, bool)>,
    pub(crate) keys: usize,
    pub(crate) keys_capacity: usize,
    pub(crate) shared_budgets: u64,
    /// The servers, and the calls that wait for the connection to each.
    pub(crate) queues: Vec<(String, usize)>,
    pub(crate) queue_capacity: usize,
    pub(crate) timeouts: u64,
    pub(crate) overload: OverloadStats,
    pub(crate) refusal_cache: RefusalCacheStats,
    pub(crate) leases: LeaseStats,
}

impl StoreStats {
    pub(crate) fn is_down(&self) -> bool {
        self.breakers.iter().any(|(_, open)| *open)
    }
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
        if store == "memory" {
            metrics.set_evicts(store, false);
        }
        metrics.set_rules(&[]);
        metrics
    }

    fn register(store: &str) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let build = Opts::new("tallygate_build_info", "1; the labels describe the build.")
            .const_label("version", env!("CARGO_PKG_VERSION"))
            .const_label("os", std::env::consts::OS)
            .const_label("arch", std::env::consts::ARCH);
        register_int_gauge_with_registry!(build, registry)?.set(1);
        #[cfg(target_os = "linux")]
        registry.register(Box::new(process::ProcessCollector::new()?))?;
        let buckets = || BUCKETS_SECONDS.to_vec();
        Ok(Metrics {
            decisions: register_int_counter_vec_with_registry!(
                "tallygate_decisions_total",
                "Decisions by rule and outcome.",
                &["rule", "outcome"],
                registry
            )?,
            near_limit: register_int_counter_vec_with_registry!(
                "tallygate_near_limit_total",
                "Admitted requests that left less than a fifth of a limit of the rule.",
                &["rule"],
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
            breakers: register_int_gauge_vec_with_registry!(
                "tallygate_breaker_state",
                "1 while the circuit breaker of a server is open and requests bypass it.",
                &["server"],
                registry
            )?,
            evicts: register_int_gauge_vec_with_registry!(
                "tallygate_store_evicts",
                "1 if a server may evict counters when its memory is full.",
                &["server"],
                registry
            )?,
            overload: register_int_counter_vec_with_registry!(
                "tallygate_overload_total",
                "Requests that missed their deadline or could not be queued although the store \
                 was up, by answer.",
                &["answer"],
                registry
            )?,
            refusal_cache: register_int_counter_vec_with_registry!(
                "tallygate_refusal_cache_total",
                "Requests that the refusal cache refused (hit) and others (miss).",
                &["result"],
                registry
            )?,
            leases: register_int_counter_with_registry!(
                "tallygate_leases_total",
                "Leases taken from the store.",
                registry
            )?,
            leased_units: register_int_counter_vec_with_registry!(
                "tallygate_leased_units_total",
                "Units that were taken ahead, returned unspent, or may be lost (stranded).",
                &["result"],
                registry
            )?,
            outstanding_units: register_int_gauge_with_registry!(
                "tallygate_leased_units_outstanding",
                "Units that are leased and not spent.",
                registry
            )?,
            leased_decisions: register_int_counter_with_registry!(
                "tallygate_leased_decisions_total",
                "Requests decided from leases, without a call to the store.",
                registry
            )?,
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
            keys_capacity: register_int_gauge_with_registry!(
                "tallygate_keys_capacity",
                "Live keys that fit in the memory of this process, each with its own counter.",
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
            budget_limit: register_int_gauge_vec_with_registry!(
                "tallygate_budget_limit",
                "Units of a budget that all clients share, by limit.",
                &["budget", "limit"],
                registry
            )?,
            budget_remaining: register_int_gauge_vec_with_registry!(
                "tallygate_budget_remaining",
                "Units that are left of a budget that all clients share.",
                &["budget", "limit"],
                registry
            )?,
            budget_ends: register_int_gauge_vec_with_registry!(
                "tallygate_budget_ends_seconds",
                "When a budget that all clients share is used up at the present rate; no series if it \
                 is not.",
                &["budget", "limit"],
                registry
            )?,
            connections: register_int_gauge_vec_with_registry!(
                "tallygate_connections",
                "Open connections of clients, by listener.",
                &["listener"],
                registry
            )?,
            connections_capacity: register_int_gauge_vec_with_registry!(
                "tallygate_connections_capacity",
                "Connections that a listener has room for; further ones replace idle ones, or wait.",
                &["listener"],
                registry
            )?,
            access_log: AccessLogMetrics::new(&register_int_counter_vec_with_registry!(
                "tallygate_access_log_lines_total",
                "Lines of the access log by result; dropped: the queue was full.",
                &["result"],
                registry
            )?),
            store_queue: register_int_gauge_vec_with_registry!(
                "tallygate_store_queue",
                "Calls that wait to be sent, by server.",
                &["server"],
                registry
            )?,
            store_queue_capacity: register_int_gauge_with_registry!(
                "tallygate_store_queue_capacity",
                "Calls that may wait for each server; further requests are shed. 0 in memory.",
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
            self.near_limit.with_label_values(&[rule]);
            self.queue_depth.with_label_values(&[rule]);
        }
        *current = new;
    }

    fn remove_rule(&self, rule: &str) {
        // Errors mean that there is no such series.
        for outcome in Outcome::ALL {
            let _ = self.decisions.remove_label_values(&[rule, outcome.name()]);
        }
        let _ = self.near_limit.remove_label_values(&[rule]);
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

    pub(crate) fn record_near_limit(&self, rule: &str) {
        self.near_limit.with_label_values(&[rule]).inc();
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

    /// Sets the figures of all budgets that all clients share.
    pub(crate) fn set_budgets<'b>(&self, limits: impl Iterator<Item = (&'b str, &'b LimitReport)>) {
        for gauges in [
            &self.budget_limit,
            &self.budget_remaining,
            &self.budget_ends,
        ] {
            gauges.reset();
        }
        for (budget, limit) in limits {
            let name = limit.limit_name.split(' ').next_back();
            let labels = [budget, name.unwrap_or_default()];
            let figures = &limit.figures;
            let set = |gauges: &IntGaugeVec, number: u64| {
                gauges.with_label_values(&labels).set(gauge(number));
            };
            set(&self.budget_limit, figures.limit.into());
            set(&self.budget_remaining, figures.remaining);
            if let Some(ends) = figures.ends_in_us {
                set(&self.budget_ends, ends / 1_000_000);
            }
        }
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

    /// The gauge of a listener's open connections, of which there may be `max`.
    pub(crate) fn connections(&self, listener: &str, max: usize) -> IntGauge {
        let capacity = self.connections_capacity.with_label_values(&[listener]);
        capacity.set(gauge(max));
        self.connections.with_label_values(&[listener])
    }

    /// Adds the metrics of the gateway, at 0. Call it once.
    pub(crate) fn gateway(
        &self,
        upstreams: impl IntoIterator<Item = String>,
        max_connections: usize,
    ) -> GatewayMetrics {
        let connections = self.connections("gateway", max_connections);
        let metrics = GatewayMetrics::new(upstreams, connections, &self.registry);
        metrics.expect("metric names are valid and unique")
    }

    pub(crate) fn access_log(&self) -> &AccessLogMetrics {
        &self.access_log
    }

    pub(crate) fn text(&self, store: &StoreStats) -> String {
        let mut text = String::new();
        TextEncoder::new()
            .encode_utf8(&self.gather(store), &mut text)
            .expect("writing to a String cannot fail");
        text
    }

    pub(crate) fn gather(&self, store: &StoreStats) -> Vec<MetricFamily> {
        self.update(store);
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

    /// Copies the numbers that the store counts itself.
    fn update(&self, store: &StoreStats) {
        // Servers may have left a cluster.
        self.breakers.reset();
        for (server, open) in &store.breakers {
            let breaker = self.breakers.with_label_values(&[server]);
            breaker.set((*open).into());
        }
        self.store_queue.reset();
        for (server, queued) in &store.queues {
            let queue = self.store_queue.with_label_values(&[server]);
            queue.set(gauge(*queued));
        }
        self.store_queue_capacity.set(gauge(store.queue_capacity));
        self.keys.set(gauge(store.keys));
        self.keys_capacity.set(gauge(store.keys_capacity));
        raise(&self.shared_budgets, store.shared_budgets);
        let timeouts = StoreErrorKind::Timeout.name();
        raise(
            &self.store_errors.with_label_values(&[timeouts]),
            store.timeouts,
        );
        let OverloadStats {
            cached,
            local,
            closed,
            shed,
            ..
        } = store.overload;
        for (answer, count) in [
            ("cached", cached),
            ("local", local),
            ("closed", closed),
            ("shed", shed),
        ] {
            raise(&self.overload.with_label_values(&[answer]), count);
        }
        let RefusalCacheStats { hits, misses, .. } = store.refusal_cache;
        for (result, count) in [("hit", hits), ("miss", misses)] {
            raise(&self.refusal_cache.with_label_values(&[result]), count);
        }
        let leases = store.leases;
        raise(&self.leases, leases.leases);
        raise(&self.leased_decisions, leases.saved);
        let outstanding = i64::try_from(leases.outstanding).unwrap_or(i64::MAX);
        self.outstanding_units.set(outstanding);
        for (result, units) in [
            ("taken", leases.taken),
            ("returned", leases.returned),
            ("stranded", leases.stranded),
        ] {
            raise(&self.leased_units.with_label_values(&[result]), units);
        }
    }

    pub(crate) fn set_evicts(&self, server: &str, evicts: bool) {
        self.evicts.with_label_values(&[server]).set(evicts.into());
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

    /// Store errors of all kinds.
    pub(crate) fn store_errors(&self, store: &StoreStats) -> u64 {
        self.update(store);
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

    /// Observes the time until the timer is dropped.
    pub(crate) fn start_timer(&self) -> HistogramTimer {
        self.seconds.start_timer()
    }

    pub(crate) fn record_error(&self, kind: StoreErrorKind) {
        self.errors.with_label_values(&[kind.name()]).inc();
    }
}

/// A number as the value of a gauge.
fn gauge(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Raises a counter to a number that was counted elsewhere.
fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        self.0.iter().for_each(IntGauge::dec);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_rule_has_no_series() {
        let metrics = Metrics::new("memory");
        metrics.set_rules(&["a", "b"]);
        metrics.record_decision("a", Outcome::Refused);
        let line = "tallygate_decisions_total{outcome=\"refused\",rule=\"a\"} 1\n";
        assert!(metrics.text(&StoreStats::default()).contains(line));
        metrics.set_rules(&["a"]);
        assert!(metrics.text(&StoreStats::default()).contains(line));
        metrics.set_rules(&["b"]);
        assert!(!metrics.text(&StoreStats::default()).contains("rule=\"a\""));
        // A request that was in flight during the reload.
        metrics.record_decision("a", Outcome::Refused);
        drop(metrics.enqueue(["a"].into_iter()));
        let text = metrics.text(&StoreStats::default());
        assert!(!text.contains("rule=\"a\"") && text.contains("rule=\"b\""));
        assert!(metrics.queue_depth.remove_label_values(&["a"]).is_err());
    }

    #[test]
    fn numbers_of_the_store_are_copied_and_servers_that_are_gone_have_no_series() {
        let metrics = Metrics::new("redis");
        let mut stats = StoreStats {
            breakers: vec![("a:1".to_owned(), true), ("b:1".to_owned(), false)],
            timeouts: 3,
            ..StoreStats::default()
        };
        stats.overload.local = 7;
        stats.refusal_cache.hits = 5;
        stats.leases.saved = 9;
        stats.leases.stranded = 4;
        stats.leases.outstanding = 6;
        for _ in 0..2 {
            let text = metrics.text(&stats);
            for line in [
                "tallygate_breaker_state{server=\"a:1\"} 1\n",
                "tallygate_breaker_state{server=\"b:1\"} 0\n",
                "tallygate_store_errors_total{kind=\"timeout\"} 3\n",
                "tallygate_overload_total{answer=\"local\"} 7\n",
                "tallygate_overload_total{answer=\"shed\"} 0\n",
                "tallygate_refusal_cache_total{result=\"hit\"} 5\n",
                "tallygate_leased_decisions_total 9\n",
                "tallygate_leased_units_total{result=\"stranded\"} 4\n",
                "tallygate_leased_units_outstanding 6\n",
            ] {
                assert!(text.contains(line), "{line} {text}");
            }
        }
        stats.breakers.pop();
        assert!(!metrics.text(&stats).contains("b:1"));
    }

    #[test]
    fn a_delayed_request_counts_in_the_queue_depth_until_it_proceeds() {
        let metrics = Metrics::new("memory");
        metrics.set_rules(&["mail"]);
        let guard = metrics.enqueue(["mail"].into_iter());
        let depth = |n| format!("tallygate_queue_depth{{rule=\"mail\"}} {n}\n");
        assert!(metrics.text(&StoreStats::default()).contains(&depth(1)));
        drop(guard);
        assert!(metrics.text(&StoreStats::default()).contains(&depth(0)));
    }
}
