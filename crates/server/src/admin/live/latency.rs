//! Latency quantiles over the last seconds, from the buckets of a histogram.

// For display only.
#![allow(clippy::float_arithmetic)]

use std::collections::VecDeque;

use crate::metrics::Buckets;

const SNAPSHOTS: usize = 10;

#[derive(Default)]
pub(super) struct RecentLatency(VecDeque<Buckets>);

impl RecentLatency {
    pub(super) fn push(&mut self, buckets: Buckets) {
        if self.0.len() > SNAPSHOTS {
            self.0.pop_front();
        }
        self.0.push_back(buckets);
    }

    /// A quantile in microseconds of the time since the oldest snapshot, interpolated linearly
    /// within its bucket. None without observations.
    pub(super) fn quantile(&self, quantile: f64) -> Option<f64> {
        let (first, last) = (self.0.front()?, self.0.back()?);
        let since_first = |i: usize| {
            let before = first.get(i).map_or(0, |(_, count)| *count);
            last[i].1.saturating_sub(before)
        };
        let total = since_first(last.len().checked_sub(1)?);
        if total == 0 {
            return None;
        }
        let rank = quantile * total as f64;
        let (mut lower_bound, mut below) = (0.0, 0.0);
        for (i, (bound, _)) in last.iter().enumerate() {
            let count = since_first(i) as f64;
            if count >= rank {
                // The last bucket has no upper bound: report its lower one.
                let within = match bound.is_finite() {
                    true => (bound - lower_bound) * (rank - below) / (count - below).max(1.0),
                    false => 0.0,
                };
                let tenths = ((lower_bound + within) * 10_000_000.0).round();
                return Some(tenths / 10.0);
            }
            (lower_bound, below) = (*bound, count);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_spans_the_stored_snapshots() {
        let mut latency = RecentLatency::default();
        assert_eq!(latency.quantile(0.5), None);
        let buckets = |a, b, c| vec![(0.001, a), (0.002, b), (f64::INFINITY, c)];
        latency.push(buckets(1_000, 1_000, 1_000));
        assert_eq!(latency.quantile(0.5), None);
        latency.push(buckets(1_050, 1_100, 1_100));
        assert_eq!(latency.quantile(0.5), Some(1_000.0));
        assert_eq!(latency.quantile(0.99), Some(1_980.0));
        latency.push(buckets(1_050, 1_100, 9_999));
        assert_eq!(latency.quantile(0.99), Some(2_000.0));
        for _ in 0..SNAPSHOTS {
            latency.push(buckets(1_050, 1_100, 9_999));
        }
        assert_eq!(latency.quantile(0.5), None);
    }
}
