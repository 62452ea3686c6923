//! The demo's traffic, and what one algorithm does with it.

use std::time::Duration;

use tallygate_core::{Algorithm, Outcome, Quota, Retry, State, Verb, evaluate};

use crate::command::busiest_period::max_per_period;
use crate::describe;

pub(super) const LIMIT: u32 = 10;
pub(super) const PERIOD_US: u64 = 1_000_000;
/// One column of the chart.
pub(super) const TICK_US: u64 = 100_000;
pub(super) const TICKS: usize = 64;
/// A whole second, so that windows start on the ruler.
pub(super) const START_US: u64 = 1_700_000_000_000_000;

/// Requests per tick: the whole limit on both sides of 1 s, then one per tick until 2 s; at 4.1 s
/// a burst of 25.
pub(super) const TRAFFIC: [u32; TICKS] = [
    0, 0, 0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

pub(super) struct Simulation {
    pub(super) quota: Quota,
    pub(super) admitted: [u32; TICKS],
    pub(super) refused: [u32; TICKS],
    /// The admitted requests by the time at which they proceed, after their delay.
    pub(super) dequeued: [u32; TICKS],
    pub(super) max_delay_us: u64,
    pub(super) max_retry_us: u64,
    pub(super) max_per_period: u64,
}

impl Simulation {
    pub(super) fn run(algorithm: Algorithm) -> Self {
        let capacity = describe::demo(algorithm).capacity.unwrap_or(LIMIT);
        let period = Duration::from_micros(PERIOD_US);
        let quota = Quota::with_capacity(algorithm, LIMIT, period, capacity)
            .expect("the demo's quotas are valid");
        let mut run = Simulation {
            quota,
            admitted: [0; TICKS],
            refused: [0; TICKS],
            dequeued: [0; TICKS],
            max_delay_us: 0,
            max_retry_us: 0,
            max_per_period: 0,
        };
        let mut state = State::New;
        let mut proceeded = Vec::new();
        let requests = (0..TICKS).flat_map(|tick| (0..TRAFFIC[tick]).map(move |_| tick));
        for tick in requests {
            let now = START_US + tick as u64 * TICK_US;
            match evaluate(&quota, &mut state, Verb::Check, 1, now).outcome {
                Outcome::Admitted { delay_us, .. } => {
                    run.admitted[tick] += 1;
                    run.max_delay_us = run.max_delay_us.max(delay_us);
                    proceeded.push((now + delay_us, 1));
                    let later = usize::try_from(delay_us / TICK_US).unwrap_or(TICKS);
                    if let Some(dequeued) = run.dequeued.get_mut(tick + later) {
                        *dequeued += 1;
                    }
                }
                Outcome::Refused { retry } => {
                    run.refused[tick] += 1;
                    if let Retry::After(us) = retry {
                        run.max_retry_us = run.max_retry_us.max(us.get());
                    }
                }
            }
        }
        proceeded.sort_unstable();
        run.max_per_period = max_per_period(&proceeded, PERIOD_US);
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_counted_and_the_worst_case_holds() {
        let total = |ticks: &[u32; TICKS]| ticks.iter().sum::<u32>();
        for algorithm in Algorithm::BASIC {
            let run = Simulation::run(algorithm);
            assert_eq!(total(&run.admitted) + total(&run.refused), total(&TRAFFIC));
            assert_eq!(total(&run.dequeued), total(&run.admitted), "{}", run.quota);
            let max = run.quota.worst_case(PERIOD_US);
            assert!(run.max_per_period <= max, "{}", run.quota);
        }
    }
}
