//! What is measured: the plan of a run, its scenarios, and the turns the contenders take in them.

use std::fmt;

use crate::figure::Figure;
use crate::keys::{self, Key, Spread};
use crate::measure::median;
use crate::memory::contender::{self, BATCH, Entry};
use crate::memory::lane::{Lane, Load, Shape};
use crate::memory::resident::Question;
use crate::options::{Options, Size};
use crate::setting::{Behaviour, Outcome, Setting};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Live keys.
    pub keys: usize,
    /// How often each is asked for.
    pub spread: Spread,
    /// What is answered.
    pub outcome: Outcome,
    /// Threads that ask at once.
    pub threads: usize,
    /// One by one or in batches.
    pub shape: Shape,
    /// The behaviour, in the rows that compare behaviours; otherwise each contender's first.
    pub behaviour: Option<Behaviour>,
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
            write!(f, "{} {} {outcome}", count(self.keys), self.spread.name())?;
        }
        match self.threads {
            1 => write!(f, ", 1 thread")?,
            threads => write!(f, ", {threads} threads")?,
        }
        if self.shape == Shape::Batches {
            write!(f, ", batches of {BATCH}")?;
        }
        if let Some(behaviour) = self.behaviour {
            write!(f, ", {}", behaviour.name())?;
        }
        Ok(())
    }
}

/// A number of keys as the table writes it.
pub fn count(keys: usize) -> String {
    match keys {
        0..1_000 => keys.to_string(),
        1_000..1_000_000 => format!("{}k", keys / 1_000),
        _ => format!("{}M", keys / 1_000_000),
    }
}

/// Everything a run measures.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The number of keys that the targets speak of.
    pub many: usize,
    /// Scenarios that share their filled contenders, each group in a process of its own.
    pub groups: Vec<Vec<Scenario>>,
    /// The questions about memory.
    pub questions: Vec<Question>,
    /// How many keys expire.
    pub expiring: usize,
    /// How often they do, the best run counting.
    pub expiry_runs: usize,
    /// Decisions in a timed run.
    decisions: usize,
    /// Timed runs, the median counting.
    repetitions: usize,
}

impl Plan {
    /// The plan of that size.
    pub fn of(size: Size) -> Plan {
        let (keys, many, decisions, repetitions): (&[usize], _, _, _) = match size {
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
        groups.push(behaviours(many));
        // A hundred entries are a gigabyte at 1M keys.
        let fewer = if size == Size::Full { many } else { many / 5 };
        Plan {
            many,
            groups,
            questions: questions(many, fewer),
            expiring,
            expiry_runs,
            decisions,
            repetitions,
        }
    }

    /// The row of the worst call in processor time, microseconds.
    pub fn worst_cpu_row(&self) -> String {
        let keys = count(self.expiring);
        format!("worst call while {keys} keys expire, thread CPU, µs")
    }

    /// The row of the longest wait for a decision, microseconds.
    pub fn worst_wall_row(&self) -> String {
        let keys = count(self.expiring);
        format!("longest wait while {keys} keys expire, wall, µs")
    }

    /// Measures one group in this process and prints its figures.
    pub fn measure(&self, group: usize, options: &Options) {
        let scenarios: Vec<Scenario> = self.groups[group]
            .iter()
            .filter(|scenario| options.wants_scenario(&scenario.to_string()))
            .copied()
            .collect();
        let Some(&first) = scenarios.first() else {
            return;
        };
        // Before the contenders: their keys must not be scattered over a used heap.
        let streams = [Spread::Uniform, Spread::Zipf].map(|spread| {
            let wanted = scenarios.iter().any(|scenario| scenario.spread == spread);
            wanted.then(|| Stream::new(spread, first.keys, self.decisions))
        });
        let lanes = lanes(&scenarios, options);
        // Scenarios over different behaviours take turns too, so that noise hits all alike.
        if first.behaviour.is_some() {
            self.take_turns(&scenarios, &lanes, &streams);
        } else {
            for scenario in scenarios {
                self.take_turns(&[scenario], &lanes, &streams);
            }
        }
    }

    fn take_turns(&self, scenarios: &[Scenario], lanes: &[Filled], streams: &[Option<Stream>; 2]) {
        let mut turns = Vec::new();
        for scenario in scenarios {
            for lane in lanes.iter().filter(|lane| lane.is_in(scenario)) {
                turns.push((scenario, lane, Vec::new()));
            }
        }
        let mut wrong = 0;
        for repetition in 0..self.repetitions {
            for (scenario, lane, ns) in &mut turns {
                let [uniform, zipf] = streams;
                let stream = match scenario.spread {
                    Spread::Uniform => uniform,
                    Spread::Zipf => zipf,
                };
                let Some(stream) = stream else { continue };
                let decisions = self.decisions / lane.entry.slowness;
                let run = lane.lane.run(stream.load(repetition, decisions, scenario));
                ns.push(run.ns_per_decision());
                let due = match scenario.outcome {
                    Outcome::Admitted => run.decided,
                    Outcome::Refused => 0,
                };
                if lane.entry.limits && run.admitted != due {
                    wrong += 1;
                    eprintln!(
                        "{scenario}: {} admitted {} of {}, not {due}",
                        lane.entry.name, run.admitted, run.decided
                    );
                }
            }
        }
        if wrong > 0 {
            eprintln!("{wrong} runs answered otherwise than the scenario says");
        }
        for (scenario, lane, ns) in turns {
            Figure {
                row: scenario.to_string(),
                contender: lane.entry.name.to_owned(),
                value: median(&ns),
            }
            .print();
        }
    }
}

/// The rows over that many keys with that answer.
fn group(keys: usize, outcome: Outcome) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    let one = Scenario {
        keys,
        spread: Spread::Uniform,
        outcome,
        threads: 1,
        shape: Shape::OneByOne,
        behaviour: None,
    };
    for spread in [Spread::Uniform, Spread::Zipf] {
        // One key has but one spread.
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
                shape: Shape::Batches,
                ..one
            });
        }
    }
    scenarios
}

/// The rows that compare a contender's behaviours.
fn behaviours(keys: usize) -> Vec<Scenario> {
    Behaviour::ALL
        .map(|behaviour| Scenario {
            keys,
            spread: Spread::Uniform,
            outcome: Outcome::Admitted,
            threads: 1,
            shape: Shape::OneByOne,
            behaviour: Some(behaviour),
        })
        .to_vec()
}

fn questions(many: usize, fewer: usize) -> Vec<Question> {
    let ask = |keys, behaviour, entries| Question {
        keys,
        behaviour,
        entries,
    };
    let mut questions = vec![ask(many, Behaviour::TokenBucket, 1)];
    for behaviour in Behaviour::ALL {
        if behaviour != Behaviour::TokenBucket {
            questions.push(ask(many, behaviour, 1));
        }
    }
    questions.push(ask(many, Behaviour::SlidingWindowLog, 10));
    questions.push(ask(fewer, Behaviour::SlidingWindowLog, 100));
    questions
}

/// A contender with all keys in it.
struct Filled {
    entry: Entry,
    behaviour: Behaviour,
    lane: Box<dyn Lane>,
}

impl Filled {
    fn is_in(&self, scenario: &Scenario) -> bool {
        match scenario.behaviour {
            // A contender with one behaviour has nothing to compare.
            Some(behaviour) => self.entry.behaviours.len() > 1 && self.behaviour == behaviour,
            None => true,
        }
    }
}

fn lanes(scenarios: &[Scenario], options: &Options) -> Vec<Filled> {
    let Some(first) = scenarios.first() else {
        return Vec::new();
    };
    let keys = first.keys;
    let mut lanes = Vec::new();
    let wanted = |entry: &Entry| options.wants_contender(entry.name) && keys <= entry.most_keys;
    let behaviours: Vec<Behaviour> = scenarios.iter().filter_map(|s| s.behaviour).collect();
    let behaviours = if behaviours.is_empty() {
        vec![Behaviour::TokenBucket]
    } else {
        behaviours
    };
    for behaviour in behaviours {
        for entry in contender::all().into_iter().filter(wanted) {
            let compares = first.behaviour.is_some();
            if !entry.behaviours.contains(&behaviour) || compares && entry.behaviours.len() < 2 {
                continue;
            }
            let setting = match first.outcome {
                Outcome::Admitted => Setting::roomy(behaviour, keys),
                Outcome::Refused => Setting::scarce(behaviour),
            };
            let lane = (entry.build)(&setting, keys);
            match first.outcome {
                Outcome::Admitted => lane.fill(keys),
                Outcome::Refused => lane.exhaust(keys),
            }
            lanes.push(Filled {
                entry,
                behaviour,
                lane,
            });
        }
    }
    lanes
}

/// Requests made up front; short ones are gone through again and again.
struct Stream {
    requests: Vec<Key>,
    short: bool,
}

impl Stream {
    /// Over few keys the requests stay in the second cache, so that reading them costs nothing.
    const SHORT: usize = 8_192;
    const FEW_KEYS: usize = 1_000;

    fn new(spread: Spread, keys: usize, decisions: usize) -> Stream {
        let short = keys <= Stream::FEW_KEYS;
        let count = if short {
            Stream::SHORT
        } else {
            // Two threads and the warming up, and then some, so that runs differ.
            decisions * 5
        };
        Stream {
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
        // A ninth of each share warms up.
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
    fn every_row_has_a_name_of_its_own() {
        let plan = Plan::of(Size::Full);
        let mut names: Vec<String> = plan
            .groups
            .iter()
            .flatten()
            .map(|s| s.to_string())
            .collect();
        names.extend(plan.questions.iter().map(Question::row));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_load_of_many_keys_decides_as_often_as_asked() {
        let stream = Stream::new(Spread::Uniform, 2_000, 8_000);
        let scenario = group(2_000, Outcome::Admitted)[1];
        for repetition in 0..10 {
            let load = stream.load(repetition, 8_000, &scenario);
            assert_eq!(load.requests.len(), 18_000);
        }
    }
}
