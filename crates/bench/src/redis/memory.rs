//! The server's memory per key.

use redis::Pipeline;
use tokio::runtime::Runtime;

use super::client::tallygate;
use super::script::{Entry, When, now_us};
use super::server::Server;
use crate::keys::{self, Key};
use crate::setting::{Behaviour, Setting};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct MemoryScenario {
    /// Live keys.
    pub keys: usize,
    /// The algorithm.
    pub behaviour: Behaviour,
    /// Requests admitted for each key.
    pub entries: usize,
}

impl MemoryScenario {
    /// All scenarios.
    pub fn all() -> Vec<MemoryScenario> {
        let mut scenarios = Vec::new();
        for behaviour in Behaviour::ALL {
            let sizes: &[(usize, usize)] = match behaviour {
                Behaviour::SlidingWindowLog => &[(10_000, 1), (100, 100), (2, 10_000)],
                // The second request updates an existing counter.
                Behaviour::FixedWindow
                | Behaviour::SlidingWindowCounter
                | Behaviour::TokenBucket
                | Behaviour::LeakyPolicing
                | Behaviour::LeakyShaping => &[(10_000, 2)],
            };
            scenarios.extend(sizes.iter().map(|&(keys, entries)| MemoryScenario {
                keys,
                behaviour,
                entries,
            }));
        }
        scenarios
    }

    /// Its row in the table.
    pub fn row(&self) -> String {
        let behaviour = self.behaviour.name();
        match (self.behaviour, self.entries) {
            (Behaviour::SlidingWindowLog, 1) => {
                format!("memory, {behaviour} of 1 entry, bytes per key")
            }
            (Behaviour::SlidingWindowLog, entries) => {
                format!("memory, {behaviour} of {entries} entries, bytes per key")
            }
            (_, _) => format!("memory, {behaviour}, bytes per key"),
        }
    }

    /// Fills the server with a script. Returns the bytes per key, over all of its counters.
    pub fn measure_script(&self, entry: &Entry, server: &mut Server) -> f64 {
        let setting = self.setting();
        let script = (entry.build)(&setting);
        server.prepare(&*script);
        for chunk in self.requests(&setting).chunks(1_000) {
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
        let setting = self.setting();
        server.flush();
        tallygate::decide_at(runtime, &server.url(), &setting, &self.requests(&setting));
        server.bytes() as f64 / self.keys as f64
    }

    fn setting(&self) -> Setting {
        match self.behaviour {
            Behaviour::SlidingWindowLog => Setting::window(self.behaviour, 10_000),
            behaviour => Setting::roomy(behaviour, self.keys),
        }
    }

    /// The requests: key and time, in microseconds since the epoch.
    fn requests(&self, setting: &Setting) -> Vec<(Key, u64)> {
        let step_us = match self.behaviour {
            // One in each window.
            Behaviour::SlidingWindowCounter => setting.period.as_micros() as u64,
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
