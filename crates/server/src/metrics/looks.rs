//! Single figures out of the metrics, for whoever shows them to people. Counts nothing itself.

use prometheus::core::Metric as _;
use tallygate::StoreErrorKind;
use tallygate::http::Outcome;

use super::{KINDS, Metrics};

/// How many answers took at most how many seconds, in order; the last bound is infinite.
pub(crate) type Times = Vec<(f64, u64)>;

impl Metrics {
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
