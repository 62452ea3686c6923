//! The exact limiter, which decides every request when it arrives, and the worst case of the limits.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use tallygate_core::{Entry, Quota, State, Verb, evaluate_all};

use super::results::WorstCase;
use super::scenario::{CountedBy, Scenario, ScenarioLimit};

/// One place for all counters, without a network.
pub(super) struct ExactLimiter<'s> {
    limits: &'s [ScenarioLimit],
    counters: HashMap<(u8, u64), State, FixedState>,
}

/// The counter of a limit that a key is counted by.
fn counted_key(limit: &ScenarioLimit, key: u64) -> u64 {
    match limit.by {
        CountedBy::Key => key,
        CountedBy::All => 0,
    }
}

impl<'s> ExactLimiter<'s> {
    pub(super) fn new(scenario: &'s Scenario) -> Self {
        ExactLimiter {
            limits: &scenario.limits,
            counters: HashMap::default(),
        }
    }

    pub(super) fn admits(&mut self, key: u64, cost: u32, now_us: u64) -> bool {
        let names = (0_u8..).zip(self.limits);
        let names = names.map(|(at, limit)| (at, counted_key(limit, key)));
        let names: Vec<(u8, u64)> = names.collect();
        let counters = &mut self.counters;
        let states = names.iter().map(|name| counters.remove(name));
        let mut states: Vec<State> = states.map(Option::unwrap_or_default).collect();
        let limits = self.limits.iter().zip(&mut states);
        let mut limits: Vec<Entry<'_>> = limits
            .map(|(limit, state)| Entry::new(limit.limit.quota(), state, cost))
            .collect();
        let decision = evaluate_all(&mut limits, Verb::Check, now_us);
        counters.extend(names.into_iter().zip(states));
        decision.verdict().allowed()
    }
}

/// What was admitted of a key.
#[derive(Clone, Copy)]
pub(super) struct Admission {
    pub(super) at_us: u64,
    pub(super) key: u64,
    pub(super) cost: u32,
}

/// How much of each limit's worst case was admitted, at most, over several spans.
pub(super) fn worst_cases(scenario: &Scenario, mut admissions: Vec<Admission>) -> Vec<WorstCase> {
    admissions.sort_unstable_by_key(|one| (one.key, one.at_us));
    let mut worst: Vec<WorstCase> = Vec::new();
    let by_time = |admissions: &[Admission]| {
        let mut sorted = admissions.to_vec();
        sorted.sort_unstable_by_key(|one| one.at_us);
        sorted
    };
    for limit in &scenario.limits {
        let mut of_limit = WorstCase::new(&limit.name);
        match limit.by {
            CountedBy::Key => {
                for of_key in admissions.chunk_by(|one, other| one.key == other.key) {
                    largest(limit.limit.quota(), of_key, scenario, &mut of_limit);
                }
            }
            CountedBy::All => {
                let sorted = by_time(&admissions);
                largest(limit.limit.quota(), &sorted, scenario, &mut of_limit);
            }
        }
        worst.push(of_limit);
    }
    worst
}

/// Compares the admissions of one counter with the worst case of its quota.
fn largest(quota: &Quota, admissions: &[Admission], scenario: &Scenario, worst: &mut WorstCase) {
    let period_us = quota.period_us();
    let mut spans = vec![
        period_us / 10,
        period_us / 2,
        period_us,
        period_us.saturating_mul(2),
        scenario.duration_us,
    ];
    spans.retain(|span_us| (1..=scenario.duration_us).contains(span_us));
    spans.sort_unstable();
    spans.dedup();
    for span_us in spans {
        let (mut first, mut sum) = (0, 0);
        for last in admissions {
            sum += u64::from(last.cost);
            while admissions[first].at_us + span_us <= last.at_us {
                sum -= u64::from(admissions[first].cost);
                first += 1;
            }
            worst.record(sum, quota.worst_case(span_us), span_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        let text = b"duration: 10s\nlimits: fixed-window 10/s\ntraffic: 1/s\n";
        Scenario::from_bytes("test", text).unwrap()
    }

    fn admissions(times_us: impl IntoIterator<Item = u64>) -> Vec<Admission> {
        let one = |at_us| Admission {
            at_us,
            key: 1,
            cost: 1,
        };
        times_us.into_iter().map(one).collect()
    }

    #[test]
    fn an_exact_limiter_stays_within_the_worst_case_and_a_greedy_one_does_not() {
        let scenario = scenario();
        let mut exact = ExactLimiter::new(&scenario);
        let times = (0..10_000).map(|i| 1_700_000_000_500_000 + i * 1_000);
        let admitted = times.clone().filter(|at_us| exact.admits(1, 1, *at_us));
        let worst = worst_cases(&scenario, admissions(admitted));
        assert!(worst[0].ratio() <= 1.0, "{:?}", worst[0]);
        assert!(worst[0].ratio() >= 0.9, "{:?}", worst[0]);
        let worst = worst_cases(&scenario, admissions(times));
        assert_eq!((worst[0].admitted, worst[0].bound), (10_000, 110));
        assert_eq!(worst[0].span_us, 10_000_000);
    }

    #[test]
    fn keys_are_counted_apart() {
        let scenario = scenario();
        let mut exact = ExactLimiter::new(&scenario);
        let admitted = (0..100).filter(|key| exact.admits(key % 5, 1, 0)).count();
        assert_eq!(admitted, 50);
        let mut spread = admissions([0; 50]);
        for (key, one) in (0..).zip(&mut spread) {
            one.key = key % 5;
        }
        assert_eq!(worst_cases(&scenario, spread)[0].admitted, 10);
    }
}
