//! What is counted and timed while serving, as Prometheus reads it. Knows rules by name only; no
//! key is ever a label, so that the number of series has a bound: that of the rules.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use prometheus::core::Metric as _;
use prometheus::proto::{Metric, MetricFamily};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use tallygate::StoreErrorKind;
use tallygate::http::Outcome;

/// What decisions that no rule made are counted under. No rule can be called so.
pub(crate) const NO_RULE: &str = "(none)";
/// What requests are counted under that the kill switch turns away. No rule can be called so.
pub(crate) const KILL_SWITCH: &str = "(kill-switch)";

/// Bounds in seconds: a memory decision takes well below a microsecond, a lost store its deadline.
const BUCKETS: [f64; 16] = [
    0.000_001, 0.000_005, 0.000_025, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01,
    0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
];

/// Every kind of error that is counted.
const KINDS: [StoreErrorKind; 7] = [
    StoreErrorKind::Unreachable,
    StoreErrorKind::Timeout,
    StoreErrorKind::Overloaded,
    StoreErrorKind::Refused,
    StoreErrorKind::Misconfigured,
    StoreErrorKind::Garbled,
    StoreErrorKind::Other,
];

/// Everything that is counted and timed.
pub(crate) struct Metrics {
    registry: Registry,
    decisions: IntCounterVec,
    decision_seconds: Histogram,
    store_seconds: Histogram,
    store_errors: IntCounterVec,
    breaker: IntGauge,
    queue: IntGaugeVec,
    keys: IntGauge,
    shared: IntCounter,
    reloads: IntCounterVec,
    /// The rules that have series.
    rules: Mutex<HashSet<String>>,
}

/// What a store is timed with.
#[derive(Clone)]
pub(crate) struct StoreMetrics {
    seconds: Histogram,
    errors: IntCounterVec,
}

/// A question to a store that is not answered yet.
pub(crate) struct Asking<'m> {
    metrics: &'m StoreMetrics,
    began: Instant,
    answered: bool,
}

/// A request that is held back; it no longer is when this is dropped.
pub(crate) struct HeldBack(Vec<IntGauge>);

/// What is read off when somebody looks.
pub(crate) struct Readings {
    pub(crate) store_is_down: bool,
    pub(crate) keys: usize,
    pub(crate) shared: u64,
}

/// How many answers took at most how many seconds, in order; the last bound is infinite.
pub(crate) type Times = Vec<(f64, u64)>;

impl Metrics {
    /// Everything at 0, for a store of that kind.
    pub(crate) fn new(store: &str) -> Self {
        let registry = Registry::new();
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let made = IntCounterVec::new(Opts::new(name, help), labels);
            let made = made.expect("the names are well formed");
            enter(&registry, made.clone());
            made
        };
        let seconds = |name: &str, help: &str, labels: &[&str]| {
            let options = HistogramOpts::new(name, help).buckets(BUCKETS.to_vec());
            let made = HistogramVec::new(options, labels).expect("the names are well formed");
            enter(&registry, made.clone());
            made
        };
        let gauge = |name: &str, help: &str| {
            let made = IntGauge::new(name, help).expect("the name is well formed");
            enter(&registry, made.clone());
            made
        };
        let gauges = |name: &str, help: &str, label: &str| {
            let made = IntGaugeVec::new(Opts::new(name, help), &[label]);
            let made = made.expect("the names are well formed");
            enter(&registry, made.clone());
            made
        };
        let shared = IntCounter::new(
            "tallygate_shared_budgets_total",
            "Decisions on budgets shared for want of room in memory.",
        )
        .expect("the name is well formed");
        enter(&registry, shared.clone());
        let metrics = Metrics {
            decisions: counters(
                "tallygate_decisions_total",
                "Decisions by rule and outcome.",
                &["rule", "outcome"],
            ),
            decision_seconds: seconds(
                "tallygate_decision_duration_seconds",
                "Time from a request to its decision, without waiting in a queue.",
                &[],
            )
            .with_label_values::<&str>(&[]),
            store_seconds: seconds(
                "tallygate_store_duration_seconds",
                "Time that the store took to answer.",
                &["store"],
            )
            .with_label_values(&[store]),
            store_errors: counters(
                "tallygate_store_errors_total",
                "Answers that the store did not give, by kind.",
                &["kind"],
            ),
            breaker: gauges(
                "tallygate_breaker_state",
                "1 while the breaker of a server is open and requests are decided without it.",
                "server",
            )
            .with_label_values(&[store]),
            queue: gauges(
                "tallygate_queue_depth",
                "Requests that a rule holds back at the moment.",
                "rule",
            ),
            keys: gauge(
                "tallygate_keys",
                "Live keys in this process's memory; a key with two limits counts twice.",
            ),
            shared,
            reloads: counters(
                "tallygate_reloads_total",
                "Times the rules file was read again, by result.",
                &["result"],
            ),
            registry,
            rules: Mutex::default(),
        };
        for result in ["ok", "error"] {
            metrics.reloads.with_label_values(&[result]);
        }
        for kind in KINDS {
            metrics.store_errors.with_label_values(&[kind.name()]);
        }
        metrics.keep(&[]);
        metrics
    }

    /// Gives every one of these rules its series, at 0 if they are new, and ends those of others.
    pub(crate) fn keep(&self, rules: &[&str]) {
        let wanted: HashSet<String> = [NO_RULE, KILL_SWITCH]
            .iter()
            .chain(rules)
            .map(|rule| (*rule).to_owned())
            .collect();
        let mut known = self.known();
        for gone in known.iter().filter(|rule| !wanted.contains(*rule)) {
            self.end(gone);
        }
        for rule in &wanted {
            for outcome in Outcome::ALL {
                self.decisions
                    .with_label_values(&[rule.as_str(), outcome.name()]);
            }
            self.queue.with_label_values(&[rule]);
        }
        *known = wanted;
    }

    /// Ends the series of a rule; one that is not there need not be removed.
    fn end(&self, rule: &str) {
        for outcome in Outcome::ALL {
            let _ = self.decisions.remove_label_values(&[rule, outcome.name()]);
        }
        let _ = self.queue.remove_label_values(&[rule]);
    }

    fn known(&self) -> MutexGuard<'_, HashSet<String>> {
        // What it holds is whole between any two statements.
        self.rules.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Counts what a rule came to.
    pub(crate) fn decided(&self, rule: &str, outcome: Outcome) {
        self.decisions
            .with_label_values(&[rule, outcome.name()])
            .inc();
    }

    /// Times a decision.
    pub(crate) fn took(&self, time: Duration) {
        self.decision_seconds.observe(time.as_secs_f64());
    }

    /// Counts a request among those that these rules hold back, until what this gives is dropped.
    pub(crate) fn held_back<'r>(&self, rules: impl Iterator<Item = &'r str>) -> HeldBack {
        let gauges: Vec<IntGauge> = rules
            .map(|rule| self.queue.with_label_values(&[rule]))
            .collect();
        gauges.iter().for_each(IntGauge::inc);
        HeldBack(gauges)
    }

    /// Counts a reading of the rules file.
    pub(crate) fn reloaded(&self, well: bool) {
        let result = if well { "ok" } else { "error" };
        self.reloads.with_label_values(&[result]).inc();
    }

    /// What a store is timed with.
    pub(crate) fn store(&self) -> StoreMetrics {
        StoreMetrics {
            seconds: self.store_seconds.clone(),
            errors: self.store_errors.clone(),
        }
    }

    /// Everything as text.
    pub(crate) fn text(&self, readings: &Readings) -> String {
        let mut text = String::new();
        TextEncoder::new()
            .encode_utf8(&self.gather(readings), &mut text)
            .expect("a text takes what is written to it");
        text
    }

    /// Everything, family by family.
    pub(crate) fn gather(&self, readings: &Readings) -> Vec<MetricFamily> {
        self.breaker.set(readings.store_is_down.into());
        self.keys
            .set(i64::try_from(readings.keys).unwrap_or(i64::MAX));
        self.shared
            .inc_by(readings.shared.saturating_sub(self.shared.get()));
        let mut families = self.registry.gather();
        // A request that was under way when its rule was removed may have brought its series back.
        let known = self.known();
        let stale = |metric: &Metric| {
            let mut labels = metric.get_label().iter();
            let rule = labels.find(|label| label.name() == "rule")?.value();
            (!known.contains(rule)).then(|| rule.to_owned())
        };
        for family in &mut families {
            let gone: Vec<String> = family.get_metric().iter().filter_map(&stale).collect();
            if gone.is_empty() {
                continue;
            }
            gone.iter().for_each(|rule| self.end(rule));
            let kept = family.take_metric().into_iter();
            family.set_metric(kept.filter(|metric| stale(metric).is_none()).collect());
        }
        families
    }

    /// How often a rule came to each outcome, in their order. One that has no series has nothing.
    pub(crate) fn decisions_of(&self, rule: &str) -> [u64; Outcome::ALL.len()] {
        if !self.known().contains(rule) {
            return [0; _];
        }
        Outcome::ALL.map(|outcome| {
            let counted = self.decisions.with_label_values(&[rule, outcome.name()]);
            counted.get()
        })
    }

    /// How many requests a rule holds back at the moment.
    pub(crate) fn queue_of(&self, rule: &str) -> i64 {
        match self.known().contains(rule) {
            true => self.queue.with_label_values(&[rule]).get(),
            false => 0,
        }
    }

    /// How many answers the store took how long for.
    pub(crate) fn store_times(&self) -> Times {
        let metric = self.store_seconds.metric();
        let histogram = metric.get_histogram();
        let buckets = histogram.get_bucket().iter();
        let buckets = buckets.map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
        let all = (f64::INFINITY, histogram.get_sample_count());
        buckets.chain([all]).collect()
    }

    /// How many answers the store did not give.
    pub(crate) fn store_errors(&self) -> u64 {
        let counted = |kind: &StoreErrorKind| self.store_errors.with_label_values(&[kind.name()]);
        KINDS.iter().map(|kind| counted(kind).get()).sum()
    }

    /// How often the rules file was read again well, and how often it was wrong.
    pub(crate) fn reloads(&self) -> (u64, u64) {
        let [ok, error] = ["ok", "error"].map(|result| self.reloads.with_label_values(&[result]));
        (ok.get(), error.get())
    }
}

fn enter(registry: &Registry, metric: impl prometheus::core::Collector + 'static) {
    registry
        .register(Box::new(metric))
        .expect("no two metrics have one name");
}

impl StoreMetrics {
    /// Times an answer that came at once.
    pub(crate) fn took(&self, time: Duration) {
        self.seconds.observe(time.as_secs_f64());
    }

    /// Times a question from now on. One that is dropped unanswered timed out.
    pub(crate) fn asking(&self) -> Asking<'_> {
        Asking {
            metrics: self,
            began: Instant::now(),
            answered: false,
        }
    }
}

impl Asking<'_> {
    /// Notes the answer, or why there is none.
    pub(crate) fn answered(mut self, error: Option<StoreErrorKind>) {
        self.answered = true;
        self.metrics.took(self.began.elapsed());
        if let Some(kind) = error {
            self.metrics.errors.with_label_values(&[kind.name()]).inc();
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let kind = StoreErrorKind::Timeout.name();
            self.metrics.took(self.began.elapsed());
            self.metrics.errors.with_label_values(&[kind]).inc();
        }
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        self.0.iter().for_each(IntGauge::dec);
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Readings = Readings {
        store_is_down: false,
        keys: 0,
        shared: 0,
    };

    #[test]
    fn a_rule_that_is_gone_has_no_series_any_more() {
        let metrics = Metrics::new("memory");
        metrics.keep(&["a", "b"]);
        metrics.decided("a", Outcome::Refused);
        let line = "tallygate_decisions_total{outcome=\"refused\",rule=\"a\"} 1\n";
        assert!(metrics.text(&NOTHING).contains(line));
        metrics.keep(&["a"]);
        assert!(metrics.text(&NOTHING).contains(line));
        metrics.keep(&["b"]);
        assert!(!metrics.text(&NOTHING).contains("rule=\"a\""));
        // Decided under the rules of before, a moment too late.
        metrics.decided("a", Outcome::Refused);
        drop(metrics.held_back(["a"].into_iter()));
        let text = metrics.text(&NOTHING);
        assert!(!text.contains("rule=\"a\"") && text.contains("rule=\"b\""));
        assert!(metrics.queue.remove_label_values(&["a"]).is_err());
    }

    #[test]
    fn a_question_that_is_given_up_timed_out() {
        let metrics = Metrics::new("redis");
        let store = metrics.store();
        drop(store.asking());
        store.asking().answered(Some(StoreErrorKind::Refused));
        store.asking().answered(None);
        let text = metrics.text(&NOTHING);
        assert!(text.contains("tallygate_store_errors_total{kind=\"timeout\"} 1\n"));
        assert!(text.contains("tallygate_store_errors_total{kind=\"refused\"} 1\n"));
        assert!(text.contains("tallygate_store_duration_seconds_count{store=\"redis\"} 3\n"));
    }

    #[test]
    fn who_is_held_back_is_counted_until_let_go() {
        let metrics = Metrics::new("memory");
        metrics.keep(&["mail"]);
        let held = metrics.held_back(["mail"].into_iter());
        let depth = |n| format!("tallygate_queue_depth{{rule=\"mail\"}} {n}\n");
        assert!(metrics.text(&NOTHING).contains(&depth(1)));
        drop(held);
        assert!(metrics.text(&NOTHING).contains(&depth(0)));
    }
}
