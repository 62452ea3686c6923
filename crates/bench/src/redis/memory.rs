//! The server's memory per key.

use redis::Pipeline;
use tokio::runtime::Runtime;

use super::client::tallygate;
use super::script::{Entry, When, now_us};
use super::server::Server;
use crate::keys::{self, Key};
use crate::quota_spec::{Algorithm, QuotaSpec, algorithm_name};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct MemoryScenario {
    /// Live keys.
    pub keys: usize,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Requests admitted for each key.
    pub entries: usize,
}

impl MemoryScenario {
    /// All scenarios.
    pub fn all() -> Vec<MemoryScenario> {
        let mut scenarios = Vec::new();
        for algorithm in Algorithm::BASIC {
            let sizes: &[(usize, usize)] = match algorithm {
                Algorithm::SlidingWindowLog => &[(10_000, 1), (100, 100), (2, 10_000)],
                // The second request updates an existing counter.
                _ => &[(10_000, 2)],
            };
            scenarios.extend(sizes.iter().map(|&(keys, entries)| MemoryScenario {
                keys,
                algorithm,
                entries,
            }));
        }
        scenarios
    }

    /// Its row in the table.
    pub fn row(&self) -> String {
        let algorithm = algorithm_name(self.algorithm);
        match (self.algorithm, self.entries) {
            (Algorithm::SlidingWindowLog, 1) => {
                format!("memory, {algorithm} of 1 entry, bytes per key")
            }
            (Algorithm::SlidingWindowLog, entries) => {
                format!("memory, {algorithm} of {entries} entries, bytes per key")
            }
            (_, _) => format!("memory, {algorithm}, bytes per key"),
        }
    }

    /// Fills the server with a script. Returns the bytes per key, over all of its counters.
    pub fn measure_script(&self, entry: &Entry, server: &mut Server) -> f64 {
        let spec = self.spec();
        let script = (entry.build)(&spec);
        server.prepare(&*script);
        for chunk in self.requests(&spec).chunks(1_000) {
            let mut calls = Pipeline::with_capacity(chunk.len());
            for (key, at) in chunk {
                calls.add_command(script.single(key, When::At(*at)));
            }
            server.send(&calls);
        }
        server.bytes() as f64 / self.keys as f64
    }

    /// Fills the server with Tallygate's store, which chooses the names of its counters.
    pub fn measure_store(&self, runtime: &Runtime, server: &mut Server) -> f64 {
        let spec = self.spec();
        server.flush();
        tallygate::decide_at(runtime, &server.url(), &spec, &self.requests(&spec));
        server.bytes() as f64 / self.keys as f64
    }

    fn spec(&self) -> QuotaSpec {
        match self.algorithm {
            Algorithm::SlidingWindowLog => QuotaSpec::window(self.algorithm, 10_000),
            algorithm => QuotaSpec::unreached(algorithm, self.keys),
        }
    }

    /// The requests: key and time, in microseconds since the epoch.
    fn requests(&self, spec: &QuotaSpec) -> Vec<(Key, u64)> {
        let step_us = match self.algorithm {
            // One in each window.
            Algorithm::SlidingWindowCounter => spec.period.as_micros() as u64,
            // A separate time for each entry of a log: entries of the same time may be merged.
            _ => 1_000,
        };
        let start_us = now_us() - step_us * (self.entries - 1) as u64;
        let mut requests = Vec::with_capacity(self.keys * self.entries);
        for entry in 0..self.entries {
            let at = start_us + step_us * entry as u64;
            requests.extend((0..self.keys).map(|index| (keys::key(index), at)));
        }
        requests
    }
}
