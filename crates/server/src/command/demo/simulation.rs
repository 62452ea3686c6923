//! Runs the demo's traffic through one algorithm.

use std::time::Duration;

use tallygate_core::{Algorithm, Outcome, Quota, Retry, State, Verb, evaluate};

use super::traffic::{LIMIT, START_US, TICK_US, TICKS, TICKS_PER_PERIOD, TRAFFIC, ticks};
use crate::describe;

pub(super) struct Simulation {
    pub(super) quota: Quota,
    pub(super) admitted: [u32; TICKS],
    pub(super) refused: [u32; TICKS],
    /// The admitted requests by the time at which they proceed, after their delay.
    pub(super) dequeued: [u32; TICKS],
    pub(super) max_delay_us: u64,
    pub(super) max_retry_us: u64,
    /// When each admitted request proceeds, in order.
    proceed_us: Vec<u64>,
}

impl Simulation {
    pub(super) fn run(algorithm: Algorithm) -> Self {
        let capacity = describe::demo(algorithm).capacity.unwrap_or(LIMIT);
        let period = Duration::from_micros(TICK_US * TICKS_PER_PERIOD);
        let quota = Quota::with_capacity(algorithm, LIMIT, period, capacity)
            .expect("the demo's quotas are valid");
        let mut simulation = Simulation {
            quota,
            admitted: [0; TICKS],
            refused: [0; TICKS],
            dequeued: [0; TICKS],
            max_delay_us: 0,
            max_retry_us: 0,
            proceed_us: Vec::new(),
        };
        let mut state = State::New;
        for (tick, since_start) in ticks() {
            for _ in 0..TRAFFIC[tick] {
                simulation.send(&mut state, tick, since_start);
            }
        }
        simulation.proceed_us.sort_unstable();
        simulation
    }

    fn send(&mut self, state: &mut State, tick: usize, since_start: u64) {
        let now = START_US + since_start;
        match evaluate(&self.quota, state, Verb::Check, 1, now).outcome {
            Outcome::Admitted { delay_us, .. } => {
                self.admitted[tick] += 1;
                self.max_delay_us = self.max_delay_us.max(delay_us);
                self.proceed_us.push(now + delay_us);
                let column = (since_start + delay_us) / TICK_US;
                let column = usize::try_from(column).unwrap_or(usize::MAX);
                if let Some(dequeued) = self.dequeued.get_mut(column) {
                    *dequeued += 1;
                }
            }
            Outcome::Refused { retry } => {
                self.refused[tick] += 1;
                if let Retry::After(us) = retry {
                    self.max_retry_us = self.max_retry_us.max(us.get());
                }
            }
        }
    }

    pub(super) fn max_per_period(&self) -> u64 {
        let mut first = 0;
        let mut max = 0;
        for (i, at) in self.proceed_us.iter().enumerate() {
            while self.proceed_us[first] + self.quota.period_us() <= *at {
                first += 1;
            }
            max = max.max(i + 1 - first);
        }
        u64::try_from(max).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(ticks: &[u32; TICKS]) -> u32 {
        ticks.iter().sum()
    }

    #[test]
    fn every_request_is_counted_and_the_worst_case_holds() {
        for algorithm in Algorithm::ALL {
            let run = Simulation::run(algorithm);
            assert_eq!(total(&run.admitted) + total(&run.refused), total(&TRAFFIC));
            assert_eq!(total(&run.dequeued), total(&run.admitted), "{}", run.quota);
            let max = run.quota.worst_case(run.quota.period_us());
            assert!(run.max_per_period() <= max, "{}", run.quota);
        }
    }

    #[test]
    fn the_captions_describe_the_results() {
        let fixed = Simulation::run(Algorithm::FixedWindow);
        assert_eq!(fixed.admitted[8..12], [5; 4], "the boundary burst");
        assert_eq!(fixed.max_per_period(), 2 * u64::from(LIMIT));

        let log = Simulation::run(Algorithm::SlidingWindowLog);
        assert_eq!(log.admitted[10..18], [0; 8], "nothing fits before 1.8 s");
        assert_eq!(log.admitted[18..20], [1; 2]);
        assert_eq!(log.max_per_period(), u64::from(LIMIT));

        let counter = Simulation::run(Algorithm::SlidingWindowCounter);
        assert_eq!(counter.admitted[10], 0);
        assert_eq!(counter.admitted[11..20], [1; 9], "the smoothed edge");

        let token = Simulation::run(Algorithm::TokenBucket);
        assert_eq!(token.admitted[41..44], [9, 9, 4], "the banked burst");

        let policing = Simulation::run(Algorithm::LeakyPolicing);
        assert_eq!(policing.admitted[41..44], [5, 1, 1], "the steady level");

        let shaping = Simulation::run(Algorithm::LeakyShaping);
        assert!(shaping.dequeued.iter().all(|&n| n <= 1), "the steady drain");
        assert_eq!(shaping.dequeued[41..63], [1; 22]);
        assert_eq!(shaping.max_per_period(), u64::from(LIMIT));
    }
}
