//! The plan of a run, its scenarios, and their interleaved measurement.

use std::fmt;

use crate::keys::{self, Key, Spread};
use crate::measure::median;
use crate::measurement::Measurement;
use crate::memory::contender::{self, BATCH, Entry};
use crate::memory::resident_memory::MemoryScenario;
use crate::memory::timed_run::{DynContender, Load, Shape};
use crate::options::{Options, Size};
use crate::quota_spec::{Algorithm, Outcome, QuotaSpec, algorithm_name};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Live keys.
    pub keys: usize,
    /// How often each key occurs.
    pub spread: Spread,
    /// The expected decision.
    pub outcome: Outcome,
    /// Concurrent threads.
    pub threads: usize,
    /// Single requests or batches.
    pub shape: Shape,
    /// The algorithm, in rows that compare algorithms; otherwise the first of each contender.
    pub algorithm: Option<Algorithm>,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Admitted => "admitted",
            Outcome::Refused => "refused",
        };
        if self.keys == 1 {
            write!(f, "1 hot key {outcome}")?;
        } else {
            write!(
                f,
                "{} {} {outcome}",
                format_count(self.keys),
                self.spread.name()
            )?;
        }
        match self.threads {
            1 => write!(f, ", 1 thread")?,
            threads => write!(f, ", {threads} threads")?,
        }
        if self.shape == Shape::Batch {
            write!(f, ", batches of {BATCH}")?;
        }
        if let Some(algorithm) = self.algorithm {
            write!(f, ", {}", algorithm_name(algorithm))?;
        }
        Ok(())
    }
}

/// Formats a number of keys.
pub fn format_count(keys: usize) -> String {
    match keys {
        0..1_000 => keys.to_string(),
        1_000..1_000_000 => format!("{}k", keys / 1_000),
        _ => format!("{}M", keys / 1_000_000),
    }
}

/// Everything a run measures.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The number of keys of the targets.
    pub target_keys: usize,
    /// Scenarios that share filled contenders; each group has its own process.
    pub groups: Vec<Vec<Scenario>>,
    /// The rows of the memory per key.
    pub memory_scenarios: Vec<MemoryScenario>,
    /// The number of keys that expire.
    pub expiring: usize,
    /// The number of runs in which they expire; the best counts.
    pub expiry_runs: usize,
    /// Decisions in a timed run.
    pub decisions: usize,
    /// Timed runs; the median counts.
    pub repetitions: usize,
}

impl Plan {
    /// The plan of a size.
    pub fn new(size: Size) -> Plan {
        let (keys, target_keys, decisions, repetitions): (&[usize], _, _, _) = match size {
            Size::Quick => (&[1, 1_000, 20_000], 20_000, 40_000, 3),
            Size::Usual => (&[1, 1_000, 1_000_000], 1_000_000, 500_000, 7),
            Size::Full => (&[1, 1_000, 1_000_000, 10_000_000], 1_000_000, 500_000, 9),
        };
        let (expiring, expiry_runs) = match size {
            Size::Quick => (50_000, 2),
            Size::Usual => (1_000_000, 5),
            Size::Full => (10_000_000, 5),
        };
        let mut groups: Vec<_> = keys
            .iter()
            .flat_map(|&keys| [Outcome::Admitted, Outcome::Refused].map(|o| group(keys, o)))
            .collect();
        groups.push(algorithms(target_keys));
        // A log of 100 entries takes a gigabyte at 1M keys.
        let fewer = if size == Size::Full {
            target_keys
        } else {
            target_keys / 5
        };
        Plan {
            target_keys,
            groups,
            memory_scenarios: memory_scenarios(target_keys, fewer),
            expiring,
            expiry_runs,
            decisions,
            repetitions,
        }
    }

    /// The row of the worst call in CPU time, µs.
    pub fn worst_cpu_row(&self) -> String {
        let keys = format_count(self.expiring);
        format!("worst call while {keys} keys expire, thread CPU, µs")
    }

    /// The row of the longest wait for a decision, µs.
    pub fn worst_wall_row(&self) -> String {
        let keys = format_count(self.expiring);
        format!("longest wait while {keys} keys expire, wall, µs")
    }

    /// Measures one group in this process and prints the results.
    pub fn measure(&self, group: usize, options: &Options) {
        let scenarios: Vec<Scenario> = self.groups[group]
            .iter()
            .filter(|scenario| options.selects_scenario(&scenario.to_string()))
            .copied()
            .collect();
        let Some(&first) = scenarios.first() else {
            return;
        };
        // Before the contenders, so that the requests are contiguous in memory.
        let streams = [Spread::Uniform, Spread::Zipf].map(|spread| {
            let is_used = scenarios.iter().any(|scenario| scenario.spread == spread);
            is_used.then(|| RequestStream::new(spread, first.keys, self.decisions))
        });
        let contenders = fill_contenders(&scenarios, options);
        // Algorithms are interleaved too, so that noise affects all alike.
        if first.algorithm.is_some() {
            self.interleave(&scenarios, &contenders, &streams);
        } else {
            for scenario in scenarios {
                self.interleave(&[scenario], &contenders, &streams);
            }
        }
    }

    fn interleave(
        &self,
        scenarios: &[Scenario],
        contenders: &[FilledContender],
        streams: &[Option<RequestStream>; 2],
    ) {
        let mut runs = Vec::new();
        for scenario in scenarios {
            for contender in contenders
                .iter()
                .filter(|contender| contender.supports(scenario))
            {
                runs.push((scenario, contender, Vec::new()));
            }
        }
        let mut wrong = 0;
        for repetition in 0..self.repetitions {
            for (scenario, contender, ns) in &mut runs {
                let [uniform, zipf] = streams;
                let stream = match scenario.spread {
                    Spread::Uniform => uniform,
                    Spread::Zipf => zipf,
                };
                let Some(stream) = stream else { continue };
                let decisions = self.decisions / contender.entry.decisions_divisor;
                let run = contender
                    .limiter
                    .run(stream.load(repetition, decisions, scenario));
                ns.push(run.ns_per_decision());
                let expected = match scenario.outcome {
                    Outcome::Admitted => run.decided,
                    Outcome::Refused => 0,
                };
                if contender.entry.enforces_limit && run.admitted != expected {
                    wrong += 1;
                    eprintln!(
                        "{scenario}: {} admitted {} of {}, expected {expected}",
                        contender.entry.name, run.admitted, run.decided
                    );
                }
            }
        }
        if wrong > 0 {
            eprintln!("{wrong} runs had unexpected decisions");
        }
        for (scenario, contender, ns) in runs {
            Measurement {
                row: scenario.to_string(),
                contender: contender.entry.name.to_owned(),
                value: median(&ns),
            }
            .print();
        }
    }
}

/// The rows with this number of keys and this expected decision.
fn group(keys: usize, outcome: Outcome) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    let one = Scenario {
        keys,
        spread: Spread::Uniform,
        outcome,
        threads: 1,
        shape: Shape::Single,
        algorithm: None,
    };
    for spread in [Spread::Uniform, Spread::Zipf] {
        // With one key there is no distribution.
        if keys == 1 && spread == Spread::Zipf {
            continue;
        }
        for threads in [1, 2] {
            scenarios.push(Scenario {
                spread,
                threads,
                ..one
            });
        }
    }
    for threads in [1, 2] {
        if outcome == Outcome::Admitted {
            scenarios.push(Scenario {
                threads,
                shape: Shape::Batch,
                ..one
            });
        }
    }
    scenarios
}

/// The rows that compare the algorithms of a contender.
fn algorithms(keys: usize) -> Vec<Scenario> {
    Algorithm::BASIC
        .map(|algorithm| Scenario {
            keys,
            spread: Spread::Uniform,
            outcome: Outcome::Admitted,
            threads: 1,
            shape: Shape::Single,
            algorithm: Some(algorithm),
        })
        .to_vec()
}

fn memory_scenarios(target_keys: usize, fewer: usize) -> Vec<MemoryScenario> {
    let scenario = |keys, algorithm, entries| MemoryScenario {
        keys,
        algorithm,
        entries,
    };
    let mut memory_scenarios = vec![scenario(target_keys, Algorithm::TokenBucket, 1)];
    for algorithm in Algorithm::BASIC {
        if algorithm != Algorithm::TokenBucket {
            memory_scenarios.push(scenario(target_keys, algorithm, 1));
        }
    }
    memory_scenarios.push(scenario(target_keys, Algorithm::SlidingWindowLog, 10));
    memory_scenarios.push(scenario(fewer, Algorithm::SlidingWindowLog, 100));
    memory_scenarios
}

/// A contender that contains all keys.
struct FilledContender {
    entry: Entry,
    algorithm: Algorithm,
    limiter: Box<dyn DynContender>,
}

impl FilledContender {
    fn supports(&self, scenario: &Scenario) -> bool {
        match scenario.algorithm {
            // Only contenders with several algorithms are compared.
            Some(algorithm) => self.entry.algorithms.len() > 1 && self.algorithm == algorithm,
            None => true,
        }
    }
}

fn fill_contenders(scenarios: &[Scenario], options: &Options) -> Vec<FilledContender> {
    let Some(first) = scenarios.first() else {
        return Vec::new();
    };
    let keys = first.keys;
    let mut contenders = Vec::new();
    let is_selected =
        |entry: &Entry| options.selects_contender(entry.name) && keys <= entry.max_keys;
    let algorithms: Vec<Algorithm> = scenarios.iter().filter_map(|s| s.algorithm).collect();
    let algorithms = if algorithms.is_empty() {
        vec![Algorithm::TokenBucket]
    } else {
        algorithms
    };
    for algorithm in algorithms {
        for entry in contender::all().into_iter().filter(is_selected) {
            let compares_algorithms = first.algorithm.is_some();
            if !entry.algorithms.contains(&algorithm)
                || compares_algorithms && entry.algorithms.len() < 2
            {
                continue;
            }
            let spec = match first.outcome {
                Outcome::Admitted => QuotaSpec::unreached(algorithm, keys),
                Outcome::Refused => QuotaSpec::small(algorithm),
            };
            let limiter = (entry.build)(&spec, keys);
            match first.outcome {
                Outcome::Admitted => limiter.fill(keys),
                Outcome::Refused => limiter.exhaust(keys),
            }
            contenders.push(FilledContender {
                entry,
                algorithm,
                limiter,
            });
        }
    }
    contenders
}

/// Requests that are generated in advance. A short list is repeated.
struct RequestStream {
    requests: Vec<Key>,
    short: bool,
}

impl RequestStream {
    /// With few keys, so many requests stay in the L2 cache.
    const SHORT_LENGTH: usize = 8_192;
    const FEW_KEYS: usize = 1_000;

    fn new(spread: Spread, keys: usize, decisions: usize) -> RequestStream {
        let short = keys <= RequestStream::FEW_KEYS;
        let count = if short {
            RequestStream::SHORT_LENGTH
        } else {
            // Enough for two threads and warm-up, and more, so that runs differ.
            decisions * 5
        };
        RequestStream {
            requests: keys::requests(spread, keys, count, 42),
            short,
        }
    }

    fn load(&self, repetition: usize, decisions: usize, scenario: &Scenario) -> Load<'_> {
        let Scenario { threads, shape, .. } = *scenario;
        if self.short {
            return Load {
                requests: &self.requests,
                rounds: (decisions * threads / self.requests.len()).max(1),
                threads,
                shape,
            };
        }
        // The first ninth of each thread is warm-up.
        let length = decisions * threads * 9 / 8;
        let start = repetition * length % (self.requests.len() - length);
        Load {
            requests: &self.requests[start..start + length],
            rounds: 1,
            threads,
            shape,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_names_are_unique() {
        let plan = Plan::new(Size::Full);
        let mut names: Vec<String> = plan
            .groups
            .iter()
            .flatten()
            .map(|s| s.to_string())
            .collect();
        names.extend(plan.memory_scenarios.iter().map(MemoryScenario::row));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_load_has_the_requested_number_of_decisions_after_warm_up() {
        let stream = RequestStream::new(Spread::Uniform, 2_000, 8_000);
        let scenario = group(2_000, Outcome::Admitted)[1];
        for repetition in 0..10 {
            let load = stream.load(repetition, 8_000, &scenario);
            assert_eq!(load.requests.len(), 18_000);
        }
    }
}
