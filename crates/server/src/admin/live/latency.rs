//! How long most answers took lately, from the counts of a histogram. Knows buckets; knows nothing
//! of what was timed.

// For people to look at; nothing is decided by it.
#![allow(clippy::float_arithmetic)]

use std::collections::VecDeque;

use crate::metrics::Buckets;

/// How many looks the figures are of.
const LOOKS: usize = 10;

/// The counts of the last looks.
#[derive(Default)]
pub(super) struct Lately(VecDeque<Buckets>);

impl Lately {
    /// Adds a look.
    pub(super) fn look(&mut self, times: Buckets) {
        if self.0.len() > LOOKS {
            self.0.pop_front();
        }
        self.0.push_back(times);
    }

    /// The time in microseconds that a share of the answers since the first of these looks took at
    /// most; none if there were none. Between the bounds of a bucket it is a straight line.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let (first, last) = (self.0.front()?, self.0.back()?);
        let since = |i: usize| {
            let before = first.get(i).map_or(0, |(_, count)| *count);
            last[i].1.saturating_sub(before)
        };
        let all = since(last.len().checked_sub(1)?);
        if all == 0 {
            return None;
        }
        let wanted = share * all as f64;
        let (mut from, mut below) = (0.0, 0.0);
        for (i, (bound, _)) in last.iter().enumerate() {
            let count = since(i) as f64;
            if count >= wanted {
                // Above the last bound nobody knows: at least that.
                let within = match bound.is_finite() {
                    true => (bound - from) * (wanted - below) / (count - below).max(1.0),
                    false => 0.0,
                };
                let tenths = ((from + within) * 10_000_000.0).round();
                return Some(tenths / 10.0);
            }
            (from, below) = (*bound, count);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_of_what_came_since_the_first_look() {
        let mut lately = Lately::default();
        assert_eq!(lately.quantile(0.5), None);
        let times = |a, b, c| vec![(0.001, a), (0.002, b), (f64::INFINITY, c)];
        lately.look(times(1_000, 1_000, 1_000));
        assert_eq!(lately.quantile(0.5), None);
        lately.look(times(1_050, 1_100, 1_100));
        assert_eq!(lately.quantile(0.5), Some(1_000.0));
        assert_eq!(lately.quantile(0.99), Some(1_980.0));
        lately.look(times(1_050, 1_100, 9_999));
        assert_eq!(lately.quantile(0.99), Some(2_000.0));
        for _ in 0..LOOKS {
            lately.look(times(1_050, 1_100, 9_999));
        }
        assert_eq!(lately.quantile(0.5), None);
    }
}
