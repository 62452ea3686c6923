//! What is asked of the contenders, and how it is measured. Knows nothing of how they are started.

use std::fmt;
use std::io;
use std::path::Path;

use super::contender::{Contender, Setup};
use super::process::On;
use super::wrk::{self, Load};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Requests that pass, on to an upstream.
    Proxied,
    /// Requests that are refused.
    Refused,
    /// Questions to the check API, all admitted.
    Checked,
}

/// How many threads and processors a contender has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// One, on a processor of its own.
    One,
    /// As many as it takes by itself, on all of them.
    Default,
}

/// One group of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// What is asked.
    pub asked: Asked,
    /// Of how many.
    pub workers: Workers,
}

/// The contender's processor time.
pub const CPU: &str = "CPU, µs a request";
/// How many requests it answers.
pub const RATE: &str = "thousand requests/s";
/// What is measured of each.
pub const FIGURES: [&str; 3] = [CPU, RATE, "p99, ms"];

impl Scenario {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Scenario> {
        let asked = [Asked::Proxied, Asked::Refused, Asked::Checked];
        let workers = [Workers::One, Workers::Default];
        workers.into_iter().flat_map(move |workers| {
            asked
                .into_iter()
                .map(move |asked| Scenario { asked, workers })
        })
    }

    /// Where the contender runs, and where the load comes from.
    pub fn places(self) -> (On, On) {
        match self.workers {
            Workers::One => (On::First, On::Others),
            Workers::Default => (On::Any, On::Any),
        }
    }

    /// The name of a row.
    pub fn row(self, figure: &str) -> String {
        format!("{self}, {figure}")
    }

    /// Gives a contender its turn and tells its [`FIGURES`].
    ///
    /// # Errors
    /// When it does not run, or answers otherwise than expected.
    pub fn measure(
        self,
        contender: Contender,
        setup: &Setup,
        load: Load,
    ) -> io::Result<[f64; FIGURES.len()]> {
        let (on, from) = self.places();
        let (process, url) = contender.start(self, setup, on)?;
        let script = setup.script();
        let script: Option<&Path> = match self.asked {
            Asked::Checked => Some(&script),
            Asked::Proxied | Asked::Refused => None,
        };
        // Connections are made and counters are there before it counts.
        let warm = Load { seconds: 1, ..load };
        wrk::run(from, warm, script, &url)?;
        let before = process.cpu()?;
        let told = wrk::run(from, load, script, &url)?;
        let cpu = process.cpu()? - before;
        let well = told.requests - told.not_well;
        let (expected, name) = match self.asked {
            Asked::Proxied | Asked::Checked => (well, "admitted"),
            Asked::Refused => (told.not_well, "refused"),
        };
        // One or the other passes a limit that fills up again.
        if expected * 1_000 < told.requests * 999 {
            let all = told.requests;
            let why = format!("{contender:?} {name} {expected} of {all}");
            return Err(io::Error::other(why));
        }
        Ok([
            cpu.as_secs_f64() * 1e6 / told.requests as f64,
            told.rate / 1_000.0,
            told.p99_ms,
        ])
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.asked {
            Asked::Proxied => "proxied",
            Asked::Refused => "refused",
            Asked::Checked => "POST /v1/check",
        })?;
        f.write_str(match self.workers {
            Workers::One => ", 1 worker",
            Workers::Default => ", default workers",
        })
    }
}
