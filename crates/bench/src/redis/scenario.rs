//! What is measured of the server: the plan of a run, its scenarios, and the turns the contenders
//! take in them.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redis::Pipeline;

use super::concurrency::Flight;
use super::memory::Question;
use super::script::{BATCH, Entry, SEVERAL, Script, When, now_us};
use super::server::Server;
use crate::keys::{self, Key, Spread};
use crate::options::Size;
use crate::setting::{Behaviour, Outcome, Setting};

/// Decisions that are on their way at once when the server's time is measured.
const IN_FLIGHT: usize = 64;

/// A log's period. At a pace of [`IN_FLIGHT`] requests every [`LOG_PACE`], 30,000 a second, half of
/// [`LOG_UNITS`] are in all logs together.
const LOG_PERIOD: Duration = Duration::from_millis(250);
const LOG_PACE: Duration = Duration::from_micros(2_133);
const LOG_UNITS: usize = 15_000;

/// How requests are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One call for each.
    OneByOne,
    /// One call for [`BATCH`] of them, where a contender can.
    Batches,
    /// One call for a request with [`SEVERAL`] limits, where a contender can.
    Several,
}

impl Shape {
    /// The limits of a request.
    fn limits(self) -> usize {
        match self {
            Shape::OneByOne | Shape::Batches => 1,
            Shape::Several => SEVERAL,
        }
    }
}

/// One row of the table: µs of the server's processor time for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// How it limits.
    pub behaviour: Behaviour,
    /// What is answered.
    pub outcome: Outcome,
    /// How requests are handed over.
    pub shape: Shape,
    /// The limit of a log.
    pub log: u32,
}

impl Scenario {
    /// Admitted one by one; a log has a limit of 100.
    pub fn one_by_one(behaviour: Behaviour) -> Scenario {
        Scenario {
            behaviour,
            outcome: Outcome::Admitted,
            shape: Shape::OneByOne,
            log: 100,
        }
    }

    /// The same in that shape.
    #[must_use]
    pub fn shaped(self, shape: Shape) -> Scenario {
        Scenario { shape, ..self }
    }

    fn is_log(self) -> bool {
        self.behaviour == Behaviour::SlidingWindowLog
    }
}

impl Entry {
    /// Whether it has something to show in that scenario: what limits nobody only what a call costs.
    pub fn can(&self, scenario: Scenario) -> bool {
        let plain = scenario == Scenario::one_by_one(scenario.behaviour);
        self.behaviours.contains(&scenario.behaviour) && (self.limits || plain)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.behaviour.name())?;
        if self.is_log() {
            write!(f, " of {}", self.log)?;
        }
        match self.outcome {
            Outcome::Admitted => {}
            Outcome::Refused => f.write_str(", refused")?,
        }
        match self.shape {
            Shape::OneByOne => f.write_str(", one by one"),
            Shape::Batches => write!(f, ", {BATCH} a call"),
            Shape::Several => write!(f, ", {SEVERAL} limits in one request"),
        }
    }
}

/// Everything a run measures.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How often everything is measured, in turns.
    pub rounds: usize,
    /// The rows about the server's time.
    pub scenarios: Vec<Scenario>,
    /// The rows about many decisions in flight.
    pub flights: Vec<Flight>,
    /// How long each of those lasts.
    pub flight_time: Duration,
    /// The rows about memory.
    pub questions: Vec<Question>,
    /// Requests over the keys, in the order of arrival.
    pub requests: Arc<[Key]>,
    keys: usize,
}

impl Plan {
    /// The plan of that size.
    pub fn of(size: Size) -> Plan {
        let (rounds, keys, decisions, flight_ms) = match size {
            Size::Quick => (3, 500, 2_500, 40),
            Size::Usual => (7, 2_000, 12_000, 200),
            Size::Full => (25, 10_000, 30_000, 300),
        };
        let flight = |behaviour, in_flight| Flight {
            behaviour,
            in_flight,
        };
        Plan {
            rounds,
            scenarios: scenarios(),
            flights: vec![
                flight(Behaviour::TokenBucket, 1),
                flight(Behaviour::TokenBucket, 64),
                flight(Behaviour::TokenBucket, 256),
                flight(Behaviour::FixedWindow, 64),
            ],
            flight_time: Duration::from_millis(flight_ms),
            questions: Question::all(),
            requests: keys::requests(Spread::Uniform, keys, decisions, 42).into(),
            keys,
        }
    }

    /// Gives one contender its turn in a scenario: µs of the server's time for a decision.
    pub fn measure(&self, scenario: Scenario, entry: &Entry, server: &mut Server) -> f64 {
        let setting = self.setting(scenario);
        let script = (entry.build)(&setting);
        let script = &*script;
        server.prepare(script);
        let mut turn = Turn {
            scenario,
            script,
            server,
        };
        let run = match (scenario.is_log(), scenario.outcome) {
            (true, Outcome::Admitted) => turn.on_busy_logs(&setting),
            (true, Outcome::Refused) | (false, _) => turn.on_keys(self, &setting),
        };
        let due = match scenario.outcome {
            Outcome::Admitted => run.asked,
            Outcome::Refused => 0,
        };
        if entry.limits && run.admitted != due {
            let (admitted, asked) = (run.admitted, run.asked);
            let name = entry.name;
            eprintln!("{scenario}: {name} admitted {admitted} of {asked}, not {due}");
        }
        let decisions = run.asked / scenario.shape.limits();
        run.cpu.as_secs_f64() * 1e6 / decisions as f64
    }

    fn setting(&self, scenario: Scenario) -> Setting {
        match (scenario.is_log(), scenario.outcome) {
            (true, Outcome::Admitted) => Setting {
                period: LOG_PERIOD,
                ..Setting::window(scenario.behaviour, scenario.log)
            },
            (true, Outcome::Refused) => Setting::window(scenario.behaviour, scenario.log),
            (false, Outcome::Admitted) => Setting::roomy(scenario.behaviour, self.keys),
            (false, Outcome::Refused) => Setting::scarce(scenario.behaviour),
        }
    }
}

fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for behaviour in Behaviour::ALL {
        let one = Scenario::one_by_one(behaviour);
        scenarios.push(one);
        if one.is_log() {
            scenarios.push(Scenario { log: 10_000, ..one });
        }
        scenarios.push(Scenario {
            outcome: Outcome::Refused,
            ..one
        });
        scenarios.push(one.shaped(Shape::Batches));
        if !one.is_log() {
            scenarios.push(one.shaped(Shape::Several));
        }
    }
    scenarios
}

/// One contender's turn in a scenario.
struct Turn<'a> {
    scenario: Scenario,
    script: &'a dyn Script,
    server: &'a mut Server,
}

/// What was asked of the server and what that cost it.
#[derive(Default)]
struct Run {
    asked: usize,
    admitted: usize,
    cpu: Duration,
}

impl Turn<'_> {
    /// Counters that are there already and, where refusals are measured, used up.
    fn on_keys(&mut self, plan: &Plan, setting: &Setting) -> Run {
        let keys = match self.scenario.is_log() {
            true => LOG_UNITS / setting.limit as usize,
            false => plan.keys,
        };
        let all: Vec<Key> = (0..keys).map(keys::key).collect();
        match self.scenario.outcome {
            Outcome::Admitted => {
                // A counter of two windows is to have something in both.
                let before = now_us() - setting.period.as_micros() as u64;
                self.ask_for(&all, When::At(before));
                self.ask_for(&all, When::Now);
            }
            Outcome::Refused => {
                for _ in 0..setting.capacity {
                    self.ask_for(&all, When::Now);
                }
            }
        }
        let fewer: Vec<Key>;
        let requests = if keys == plan.keys {
            &plan.requests[..]
        } else {
            fewer = keys::requests(Spread::Uniform, keys, plan.requests.len(), 42);
            &fewer[..]
        };
        let before = self.server.cpu();
        let mut run = self.ask(requests, When::Now);
        run.cpu = self.server.cpu() - before;
        run
    }

    /// Logs in the middle of their life: at a steady pace that fills half of each, every entry that
    /// comes finds another one that goes.
    fn on_busy_logs(&mut self, setting: &Setting) -> Run {
        let keys = (LOG_UNITS / setting.limit as usize).max(1);
        let pipelines = LOG_PERIOD.div_duration_f64(LOG_PACE) as usize;
        let requests = keys::requests(Spread::Uniform, keys, IN_FLIGHT * pipelines, 42);
        let begin = Instant::now();
        let mut sent = 0;
        let mut pass = |turn: &mut Self| {
            let mut run = Run::default();
            for requests in requests.chunks(IN_FLIGHT) {
                let due = begin + LOG_PACE * sent;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let answered = turn.ask(requests, When::Now);
                run.asked += answered.asked;
                run.admitted += answered.admitted;
                sent += 1;
            }
            run
        };
        // The first period fills them.
        pass(self);
        let before = self.server.cpu();
        let mut run = pass(self);
        run.cpu = self.server.cpu() - before;
        run
    }

    /// Asks once for each of the keys, whatever the scenario's shape.
    fn ask_for(&mut self, keys: &[Key], when: When) {
        for keys in keys.chunks(IN_FLIGHT) {
            let mut calls = Pipeline::with_capacity(IN_FLIGHT);
            for key in keys {
                calls.add_command(self.script.one(key, when));
            }
            self.server.send(&calls);
        }
    }

    /// Sends the requests in the scenario's shape.
    fn ask(&mut self, requests: &[Key], when: When) -> Run {
        let mut run = Run::default();
        for keys in requests.chunks_exact(IN_FLIGHT * self.scenario.shape.limits()) {
            let mut calls = Pipeline::with_capacity(keys.len());
            match self.scenario.shape {
                Shape::OneByOne => {
                    for key in keys {
                        calls.add_command(self.script.one(key, when));
                    }
                }
                Shape::Batches => self.script.many(keys, when, &mut calls),
                Shape::Several => {
                    for keys in keys.chunks(SEVERAL) {
                        self.script.several(keys, when, &mut calls);
                    }
                }
            }
            let answers = self.server.send(&calls);
            run.asked += keys.len();
            run.admitted += answers
                .iter()
                .map(|answer| self.script.admitted(answer))
                .sum::<usize>();
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let plan = Plan::of(Size::Quick);
        let mut names: Vec<String> = plan.scenarios.iter().map(Scenario::to_string).collect();
        names.extend(plan.questions.iter().map(Question::row));
        names.extend(plan.flights.iter().map(|flight| flight.row("")));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
