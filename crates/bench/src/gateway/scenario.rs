//! The scenarios and how they are measured.

use std::fmt;
use std::io;
use std::path::Path;

use super::contender::{Contender, Setup};
use super::process::Cores;
use super::wrk::{self, Load};

/// The kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Admitted requests, forwarded to an upstream.
    Proxied,
    /// Refused requests.
    Refused,
    /// Admitted requests to the check API.
    Checked,
    /// Requests that are answered by a stream of events, at a fixed cost.
    Streamed,
    /// The same, at the cost that the last event says.
    Settled,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 5] = [
        Workload::Proxied,
        Workload::Refused,
        Workload::Checked,
        Workload::Streamed,
        Workload::Settled,
    ];
}

/// How many threads and processors a contender has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// One, on a core of its own.
    One,
    /// The default number, on all cores.
    Default,
}

/// A group of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The kind of requests.
    pub workload: Workload,
    /// The threads and cores.
    pub workers: Workers,
}

/// The contender's CPU time.
pub const CPU: &str = "CPU, µs per request";
/// Its throughput.
pub const RATE: &str = "thousand requests/s";
/// All metrics.
pub const METRICS: [&str; 3] = [CPU, RATE, "p99, ms"];

impl Scenario {
    /// All scenarios.
    pub fn all() -> impl Iterator<Item = Scenario> {
        let workers = [Workers::One, Workers::Default];
        workers.into_iter().flat_map(move |workers| {
            Workload::ALL
                .into_iter()
                .map(move |workload| Scenario { workload, workers })
        })
    }

    /// The cores of the contender and of the load generator.
    pub fn cores(self) -> (Cores, Cores) {
        match self.workers {
            Workers::One => (Cores::First, Cores::Others),
            Workers::Default => (Cores::Any, Cores::Any),
        }
    }

    /// The name of a row.
    pub fn row(self, metric: &str) -> String {
        format!("{self}, {metric}")
    }

    /// Measures a contender's [`METRICS`].
    ///
    /// # Errors
    /// When it does not run, or responds unexpectedly.
    pub fn measure(
        self,
        contender: Contender,
        setup: &Setup,
        load: Load,
    ) -> io::Result<[f64; METRICS.len()]> {
        let (on, from) = self.cores();
        let (process, url) = contender.start(self, setup, on)?;
        let script = setup.script();
        let script: Option<&Path> = match self.workload {
            Workload::Checked => Some(&script),
            Workload::Proxied | Workload::Refused | Workload::Streamed | Workload::Settled => None,
        };
        // Warm-up: opens connections and creates counters.
        let warm = Load { seconds: 1, ..load };
        wrk::run(from, warm, script, &url)?;
        let before = process.cpu()?;
        let result = wrk::run(from, load, script, &url)?;
        let cpu = process.cpu()? - before;
        if result.socket_errors > 0 {
            let reason = format!("{contender:?}: {} socket errors", result.socket_errors);
            return Err(io::Error::other(reason));
        }
        let successes = result.requests - result.errors;
        let (expected, name) = match self.workload {
            Workload::Refused => (result.errors, "refused"),
            Workload::Proxied | Workload::Checked | Workload::Streamed | Workload::Settled => {
                (successes, "admitted")
            }
        };
        // A few may pass a limit that refills.
        if expected * 1_000 < result.requests * 999 {
            let all = result.requests;
            let reason = format!("{contender:?} {name} {expected} of {all}");
            return Err(io::Error::other(reason));
        }
        Ok([
            cpu.as_secs_f64() * 1e6 / result.requests as f64,
            result.rate / 1_000.0,
            result.p99_ms,
        ])
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.workload {
            Workload::Proxied => "proxied",
            Workload::Refused => "refused",
            Workload::Checked => "POST /v1/check",
            Workload::Streamed => "100 events",
            Workload::Settled => "100 events with cost.actual",
        })?;
        f.write_str(match self.workers {
            Workers::One => ", 1 worker",
            Workers::Default => ", default workers",
        })
    }
}
