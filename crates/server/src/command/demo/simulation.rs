//! One behaviour before the traffic: asks the engine and measures what came of it. Knows nothing
//! of terminals.

use std::time::Duration;

use tallygate_core::{Algorithm, Outcome, Quota, Retry, State, Verb, evaluate};

use super::traffic::{LIMIT, START_US, TICK_US, TICKS, TICKS_A_PERIOD, TRAFFIC, ticks};
use crate::describe;

/// What happened in one lane, by column.
pub(super) struct Lane {
    pub(super) quota: Quota,
    pub(super) let_in: [u32; TICKS],
    pub(super) refused: [u32; TICKS],
    /// When those let in came through: at once, or at the end of their wait.
    pub(super) leaves: [u32; TICKS],
    pub(super) longest_wait_us: u64,
    pub(super) longest_retry_us: u64,
    /// When each came through, in order.
    through_us: Vec<u64>,
}

impl Lane {
    /// Sends all the traffic through one behaviour.
    pub(super) fn drive(algorithm: Algorithm) -> Self {
        let capacity = describe::part(algorithm).capacity.unwrap_or(LIMIT);
        let period = Duration::from_micros(TICK_US * TICKS_A_PERIOD);
        let quota = Quota::with_capacity(algorithm, LIMIT, period, capacity)
            .expect("the demo's limits are within every bound");
        let mut lane = Lane {
            quota,
            let_in: [0; TICKS],
            refused: [0; TICKS],
            leaves: [0; TICKS],
            longest_wait_us: 0,
            longest_retry_us: 0,
            through_us: Vec::new(),
        };
        let mut state = State::New;
        for (tick, since_start) in ticks() {
            for _ in 0..TRAFFIC[tick] {
                lane.ask(&mut state, tick, since_start);
            }
        }
        lane.through_us.sort_unstable();
        lane
    }

    fn ask(&mut self, state: &mut State, tick: usize, since_start: u64) {
        let now = START_US + since_start;
        match evaluate(&self.quota, state, Verb::Check, 1, now).outcome {
            Outcome::Admitted { delay_us, .. } => {
                self.let_in[tick] += 1;
                self.longest_wait_us = self.longest_wait_us.max(delay_us);
                self.through_us.push(now + delay_us);
                let column = (since_start + delay_us) / TICK_US;
                let column = usize::try_from(column).unwrap_or(usize::MAX);
                if let Some(leaves) = self.leaves.get_mut(column) {
                    *leaves += 1;
                }
            }
            Outcome::Refused { retry } => {
                self.refused[tick] += 1;
                if let Retry::After(us) = retry {
                    self.longest_retry_us = self.longest_retry_us.max(us.get());
                }
            }
        }
    }

    /// The most that came through within one period, wherever it starts.
    pub(super) fn most_in_a_period(&self) -> u64 {
        let mut first = 0;
        let mut most = 0;
        for (i, at) in self.through_us.iter().enumerate() {
            while self.through_us[first] + self.quota.period_us() <= *at {
                first += 1;
            }
            most = most.max(i + 1 - first);
        }
        u64::try_from(most).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(algorithm: Algorithm) -> Lane {
        Lane::drive(algorithm)
    }

    fn total(ticks: &[u32; TICKS]) -> u32 {
        ticks.iter().sum()
    }

    #[test]
    fn nobody_is_lost_and_nothing_passes_the_stated_worst_case() {
        for algorithm in Algorithm::ALL {
            let lane = lane(algorithm);
            assert_eq!(total(&lane.let_in) + total(&lane.refused), total(&TRAFFIC));
            assert_eq!(total(&lane.leaves), total(&lane.let_in), "{}", lane.quota);
            let bound = lane.quota.worst_case(lane.quota.period_us());
            assert!(lane.most_in_a_period() <= bound, "{}", lane.quota);
        }
    }

    #[test]
    fn each_caption_tells_what_its_lane_shows() {
        let fixed = lane(Algorithm::FixedWindow);
        assert_eq!(fixed.let_in[8..12], [5; 4], "the boundary burst");
        assert_eq!(fixed.most_in_a_period(), 2 * u64::from(LIMIT));

        let log = lane(Algorithm::SlidingWindowLog);
        assert_eq!(log.let_in[10..18], [0; 8], "nothing fits before 1.8 s");
        assert_eq!(log.let_in[18..20], [1; 2]);
        assert_eq!(log.most_in_a_period(), u64::from(LIMIT));

        let counter = lane(Algorithm::SlidingWindowCounter);
        assert_eq!(counter.let_in[10], 0);
        assert_eq!(counter.let_in[11..20], [1; 9], "the smoothed edge");

        let token = lane(Algorithm::TokenBucket);
        assert_eq!(token.let_in[41..44], [9, 9, 4], "the banked burst");

        let policing = lane(Algorithm::LeakyPolicing);
        assert_eq!(policing.let_in[41..44], [5, 1, 1], "the steady level");

        let shaping = lane(Algorithm::LeakyShaping);
        assert!(shaping.leaves.iter().all(|&n| n <= 1), "the steady drain");
        assert_eq!(shaping.leaves[41..63], [1; 22]);
        assert_eq!(shaping.most_in_a_period(), u64::from(LIMIT));
    }
}
