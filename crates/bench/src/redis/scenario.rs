//! The plan of a run: its scenarios, and the measurement of the server's CPU time.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redis::Pipeline;

use super::concurrency::{ConcurrentScenario, Keys, ZIPF_KEYS};
use super::memory::MemoryScenario;
use super::script::{BATCH, Entry, LIMITS_PER_REQUEST, Script, When, now_us};
use super::server::Server;
use crate::keys::{self, Key, Spread};
use crate::options::Size;
use crate::quota_spec::{Algorithm, Outcome, QuotaSpec, algorithm_name};

/// Decisions in flight while the server's CPU time is measured.
const IN_FLIGHT: usize = 64;

/// A log's period. With [`IN_FLIGHT`] requests every [`LOG_INTERVAL`], 30,000 per second, all logs
/// together contain half of [`LOG_UNITS`].
const LOG_PERIOD: Duration = Duration::from_millis(250);
const LOG_INTERVAL: Duration = Duration::from_micros(2_133);
const LOG_UNITS: usize = 15_000;

/// How requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One request per call.
    Single,
    /// [`BATCH`] requests per call, if the contender supports it.
    Batch,
    /// One request with [`LIMITS_PER_REQUEST`] limits per call, if the contender supports it.
    MultiLimit,
}

impl Shape {
    /// The number of limits of a request.
    fn limits(self) -> usize {
        match self {
            Shape::Single | Shape::Batch => 1,
            Shape::MultiLimit => LIMITS_PER_REQUEST,
        }
    }
}

/// One row of the table: the server's CPU time per decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The expected decision.
    pub outcome: Outcome,
    /// How requests are sent.
    pub shape: Shape,
    /// The limit of a log.
    pub log: u32,
}

impl Scenario {
    /// Admitted, one request per call; a log has a limit of 100.
    pub fn single(algorithm: Algorithm) -> Scenario {
        Scenario {
            algorithm,
            outcome: Outcome::Admitted,
            shape: Shape::Single,
            log: 100,
        }
    }

    /// Changes the shape.
    #[must_use]
    pub fn with_shape(self, shape: Shape) -> Scenario {
        Scenario { shape, ..self }
    }

    fn is_log(self) -> bool {
        self.algorithm == Algorithm::SlidingWindowLog
    }
}

impl Entry {
    /// Whether it is measured in a scenario; the floor only with admitted single requests.
    pub fn supports(&self, scenario: Scenario) -> bool {
        let plain = scenario == Scenario::single(scenario.algorithm);
        self.algorithms.contains(&scenario.algorithm) && (self.enforces_limit || plain)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(algorithm_name(self.algorithm))?;
        if self.is_log() {
            write!(f, " of {}", self.log)?;
        }
        match self.outcome {
            Outcome::Admitted => {}
            Outcome::Refused => f.write_str(", refused")?,
        }
        match self.shape {
            Shape::Single => f.write_str(", 1 per call"),
            Shape::Batch => write!(f, ", {BATCH} per call"),
            Shape::MultiLimit => write!(f, ", {LIMITS_PER_REQUEST} limits per request"),
        }
    }
}

/// Everything a run measures.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How often everything is measured.
    pub rounds: usize,
    /// The rows of the server's CPU time.
    pub scenarios: Vec<Scenario>,
    /// The rows with many decisions in flight.
    pub concurrent: Vec<ConcurrentScenario>,
    /// The duration of each of those.
    pub load_time: Duration,
    /// The warm-up of those with skewed keys: leases are taken for keys that were asked for before.
    pub skewed_warm_up: Duration,
    /// The rows of the memory per key.
    pub memory: Vec<MemoryScenario>,
    /// Requests over the keys, in the order of arrival.
    pub requests: Arc<[Key]>,
    /// For one key.
    hot: Arc<[Key]>,
    zipf: Arc<[Key]>,
    keys: usize,
}

impl Plan {
    /// The plan of a size.
    pub fn new(size: Size) -> Plan {
        let (rounds, keys, decisions, load_ms) = match size {
            Size::Quick => (3, 500, 2_500, 40),
            Size::Usual => (7, 2_000, 12_000, 200),
            Size::Full => (25, 10_000, 30_000, 300),
        };
        let bucket = |in_flight| ConcurrentScenario::new(Algorithm::TokenBucket, in_flight);
        Plan {
            rounds,
            scenarios: scenarios(),
            concurrent: vec![
                bucket(1),
                bucket(64),
                bucket(256),
                ConcurrentScenario::new(Algorithm::FixedWindow, 64),
                bucket(64).with_keys(Keys::Hot),
                bucket(64).with_keys(Keys::Zipf),
                // What those cost who does not need them.
                bucket(1).with_keys(Keys::Zipf),
                bucket(256).with_threads(),
                bucket(64).in_cluster(),
                bucket(256).in_cluster(),
                bucket(1_024).in_cluster(),
                bucket(256).in_cluster().with_threads(),
            ],
            load_time: Duration::from_millis(load_ms),
            skewed_warm_up: Duration::from_millis(10 * load_ms),
            memory: MemoryScenario::all(),
            requests: keys::requests(Spread::Uniform, keys, decisions, 42).into(),
            hot: vec![keys::key(0); decisions].into(),
            zipf: keys::requests(Spread::Zipf, ZIPF_KEYS, 100 * decisions, 42).into(),
            keys,
        }
    }

    /// The requests with many in flight.
    pub fn requests_of(&self, scenario: ConcurrentScenario) -> &Arc<[Key]> {
        match scenario.keys {
            Keys::Uniform => &self.requests,
            Keys::Hot => &self.hot,
            Keys::Zipf => &self.zipf,
        }
    }

    /// Measures a contender in a scenario: the server's CPU time per decision, µs.
    pub fn measure(&self, scenario: Scenario, entry: &Entry, server: &mut Server) -> f64 {
        let spec = self.spec(scenario);
        let script = (entry.build)(&spec);
        let script = &*script;
        server.prepare(script);
        let mut measurement = ScriptMeasurement {
            scenario,
            script,
            server,
        };
        let run = match (scenario.is_log(), scenario.outcome) {
            (true, Outcome::Admitted) => measurement.run_on_busy_logs(&spec),
            (true, Outcome::Refused) | (false, _) => measurement.run_on_keys(self, &spec),
        };
        let expected = match scenario.outcome {
            Outcome::Admitted => run.checks,
            Outcome::Refused => 0,
        };
        if entry.enforces_limit && run.admitted != expected {
            let (admitted, checks) = (run.admitted, run.checks);
            let name = entry.name;
            eprintln!("{scenario}: {name} admitted {admitted} of {checks}, expected {expected}");
        }
        let decisions = run.checks / scenario.shape.limits();
        run.cpu.as_secs_f64() * 1e6 / decisions as f64
    }

    fn spec(&self, scenario: Scenario) -> QuotaSpec {
        match (scenario.is_log(), scenario.outcome) {
            (true, Outcome::Admitted) => QuotaSpec {
                period: LOG_PERIOD,
                ..QuotaSpec::window(scenario.algorithm, scenario.log)
            },
            (true, Outcome::Refused) => QuotaSpec::window(scenario.algorithm, scenario.log),
            (false, Outcome::Admitted) => QuotaSpec::unreached(scenario.algorithm, self.keys),
            (false, Outcome::Refused) => QuotaSpec::small(scenario.algorithm),
        }
    }
}

fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for algorithm in Algorithm::BASIC {
        let one = Scenario::single(algorithm);
        scenarios.push(one);
        if one.is_log() {
            scenarios.push(Scenario { log: 10_000, ..one });
        }
        scenarios.push(Scenario {
            outcome: Outcome::Refused,
            ..one
        });
        scenarios.push(one.with_shape(Shape::Batch));
        if !one.is_log() {
            scenarios.push(one.with_shape(Shape::MultiLimit));
        }
    }
    scenarios
}

/// The measurement of one contender in a scenario.
struct ScriptMeasurement<'a> {
    scenario: Scenario,
    script: &'a dyn Script,
    server: &'a mut Server,
}

/// The checks that were sent, one per limit of each request, and the server's CPU time for them.
#[derive(Default)]
struct Run {
    checks: usize,
    admitted: usize,
    cpu: Duration,
}

impl ScriptMeasurement<'_> {
    /// Measures with existing counters, exhausted ones for refusals.
    fn run_on_keys(&mut self, plan: &Plan, spec: &QuotaSpec) -> Run {
        let keys = match self.scenario.is_log() {
            true => LOG_UNITS / spec.limit as usize,
            false => plan.keys,
        };
        let all: Vec<Key> = (0..keys).map(keys::key).collect();
        match self.scenario.outcome {
            Outcome::Admitted => {
                // A sliding window counter needs units in both windows.
                let before = now_us() - spec.period.as_micros() as u64;
                self.send_singles(&all, When::At(before));
                self.send_singles(&all, When::Now);
            }
            Outcome::Refused => {
                for _ in 0..spec.capacity {
                    self.send_singles(&all, When::Now);
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
        let mut run = self.send(requests, When::Now);
        run.cpu = self.server.cpu() - before;
        run
    }

    /// Measures with logs in a steady state: requests arrive at a rate that keeps each log half
    /// full, so that one entry expires for each new one.
    fn run_on_busy_logs(&mut self, spec: &QuotaSpec) -> Run {
        let keys = (LOG_UNITS / spec.limit as usize).max(1);
        let pipelines = LOG_PERIOD.div_duration_f64(LOG_INTERVAL) as usize;
        let requests = keys::requests(Spread::Uniform, keys, IN_FLIGHT * pipelines, 42);
        let start = Instant::now();
        let mut sent = 0;
        let mut pass = |measurement: &mut Self| {
            let mut run = Run::default();
            for requests in requests.chunks(IN_FLIGHT) {
                let due = start + LOG_INTERVAL * sent;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let part = measurement.send(requests, When::Now);
                run.checks += part.checks;
                run.admitted += part.admitted;
                sent += 1;
            }
            run
        };
        // The first period fills the logs.
        pass(self);
        let before = self.server.cpu();
        let mut run = pass(self);
        run.cpu = self.server.cpu() - before;
        run
    }

    /// Sends one request per key, one per call, whatever the scenario's shape.
    fn send_singles(&mut self, keys: &[Key], when: When) {
        for keys in keys.chunks(IN_FLIGHT) {
            let mut calls = Pipeline::with_capacity(IN_FLIGHT);
            for key in keys {
                calls.add_command(self.script.single(key, when));
            }
            self.server.send(&calls);
        }
    }

    /// Sends the requests in the scenario's shape.
    fn send(&mut self, requests: &[Key], when: When) -> Run {
        let mut run = Run::default();
        for keys in requests.chunks_exact(IN_FLIGHT * self.scenario.shape.limits()) {
            let mut calls = Pipeline::with_capacity(keys.len());
            match self.scenario.shape {
                Shape::Single => {
                    for key in keys {
                        calls.add_command(self.script.single(key, when));
                    }
                }
                Shape::Batch => self.script.batch(keys, when, &mut calls),
                Shape::MultiLimit => {
                    for keys in keys.chunks(LIMITS_PER_REQUEST) {
                        self.script.multi_limit(keys, when, &mut calls);
                    }
                }
            }
            let replies = self.server.send(&calls);
            run.checks += keys.len();
            run.admitted += replies
                .iter()
                .map(|reply| self.script.admitted(reply))
                .sum::<usize>();
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_names_are_unique() {
        let plan = Plan::new(Size::Quick);
        let mut names: Vec<String> = plan.scenarios.iter().map(Scenario::to_string).collect();
        names.extend(plan.memory.iter().map(MemoryScenario::row));
        names.extend(plan.concurrent.iter().map(|scenario| scenario.row("")));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
