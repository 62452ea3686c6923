//! The description of a fleet, its traffic and what goes wrong. `config` reads it from a file.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::bound::{Bound, BoundError};
use super::traffic::Traffic;
use crate::config::{self, Report};
use crate::failure::OnFailure;
use crate::limit::Limit;
use crate::store::RefusalCacheSettings;

/// A fleet, its traffic and what goes wrong; docs/scaling.md describes the fields of its file.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) title: String,
    pub(crate) seed: u64,
    pub(crate) duration_us: u64,
    /// Processes.
    pub(crate) nodes: u32,
    /// Servers.
    pub(crate) shards: u32,
    pub(crate) limits: Vec<ScenarioLimit>,
    pub(crate) on_failure: OnFailure,
    pub(crate) deadline: Duration,
    pub(crate) refusal_cache: Option<RefusalCacheSettings>,
    pub(crate) batching: bool,
    pub(crate) traffic: Vec<Stream>,
    pub(crate) network: Network,
    pub(crate) clocks: Clocks,
    pub(crate) service: ServiceTime,
    pub(crate) faults: Vec<Fault>,
    pub(crate) defects: Vec<Defect>,
    pub(crate) bounds: Vec<Bound>,
}

/// A limit of every request.
#[derive(Clone, Debug)]
pub(crate) struct ScenarioLimit {
    /// How bounds name it.
    pub(crate) name: String,
    pub(crate) limit: Limit,
    pub(crate) by: CountedBy,
}

/// What requests are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedBy {
    Key,
    /// All of them share one counter.
    All,
}

/// Requests at random times, with keys of skewed popularity.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// In a second of all nodes.
    pub(crate) rate: f64,
    pub(crate) keys: u64,
    /// The most popular key; the others follow.
    pub(crate) first_key: u64,
    pub(crate) skew: f64,
    pub(crate) cost: u32,
    pub(crate) from_us: u64,
    pub(crate) until_us: u64,
}

impl Stream {
    /// So many requests in a period, for a second.
    pub(crate) fn rate_of(requests: u32, period_us: u64) -> f64 {
        f64::from(requests) * 1e6 / period_us as f64
    }

    /// How many requests it has, on average.
    pub(crate) fn mean_requests(&self) -> f64 {
        let us = self.until_us.saturating_sub(self.from_us);
        self.rate * us as f64 / 1e6
    }
}

/// Between each process and each server, in each direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// The least delay.
    pub(crate) delay_us: u64,
    /// The mean of a random delay in addition.
    pub(crate) jitter_us: u64,
    /// The share of messages that never arrive.
    pub(crate) loss: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clocks {
    /// How much faster or slower than true time each process' clock may be, in millionths.
    pub(crate) drift_ppm: u32,
}

/// The time that a server works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceTime {
    /// For a script call.
    pub(crate) call_us: f64,
    /// For each counter of it.
    pub(crate) counter_us: f64,
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) at_us: u64,
    pub(crate) for_us: u64,
    pub(crate) kind: FaultKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum FaultKind {
    /// So many processes end at once; others take their places.
    Kill(u32),
    /// So many processes are asked to end.
    Stop(u32),
    /// A server refuses connections.
    Dead(u32),
    /// A server does not reply.
    Silent(u32),
    /// A replica without the writes of the last `for_us` takes a server's place.
    FailOver(u32),
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::Kill(1) => f.write_str("1 node killed"),
            FaultKind::Kill(nodes) => write!(f, "{nodes} nodes killed"),
            FaultKind::Stop(1) => f.write_str("1 node stopped"),
            FaultKind::Stop(nodes) => write!(f, "{nodes} nodes stopped"),
            FaultKind::Dead(shard) => write!(f, "shard {} dead", shard + 1),
            FaultKind::Silent(shard) => write!(f, "shard {} silent", shard + 1),
            FaultKind::FailOver(shard) => write!(f, "fail-over of shard {}", shard + 1),
        }
    }
}

/// A fix that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    OverloadIsFailure,
    OneBreaker,
    ForgottenRefusals,
}

impl Scenario {
    /// Reads a scenario from a file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Report> {
        config::load_scenario(path)
    }

    /// Reads a scenario from the bytes of a file with a name.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, Report> {
        config::load_scenario_bytes(name, bytes)
    }

    /// Replaces the seed of all random numbers.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Adds a bound to be checked.
    ///
    /// # Errors
    /// If it is about a limit that the scenario does not have.
    pub fn with_bound(mut self, bound: Bound) -> Result<Self, BoundError> {
        bound.validate(self.limits.iter().map(|limit| &*limit.name))?;
        self.bounds.push(bound);
        Ok(self)
    }

    /// The title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The seed of all random numbers.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The number of processes.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The number of servers.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// How long requests arrive.
    pub fn duration(&self) -> Duration {
        Duration::from_micros(self.duration_us)
    }

    /// The limits of every request, with their names, and whether all requests share one counter.
    pub fn limits(&self) -> impl Iterator<Item = (&str, &Limit, bool)> {
        let limits = self.limits.iter();
        limits.map(|one| (&*one.name, &one.limit, one.by == CountedBy::All))
    }

    /// What goes wrong: when, for how long, and what.
    pub fn faults(&self) -> impl Iterator<Item = (Duration, Duration, String)> {
        self.faults.iter().map(|fault| {
            let at = Duration::from_micros(fault.at_us);
            let length = Duration::from_micros(fault.for_us);
            (at, length, fault.kind.to_string())
        })
    }

    /// The requests, in the order of their arrival.
    pub fn traffic(&self) -> Traffic {
        Traffic::new(self)
    }

    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defects.contains(&defect)
    }
}
