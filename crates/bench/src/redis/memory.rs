//! Memory: what a key costs the server.

use redis::Pipeline;
use tokio::runtime::Runtime;

use super::client::tallygate;
use super::script::{Entry, When, now_us};
use super::server::Server;
use crate::keys::{self, Key};
use crate::setting::{Behaviour, Setting};

/// One question about memory.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Live keys.
    pub keys: usize,
    /// How it limits.
    pub behaviour: Behaviour,
    /// Requests admitted for each key.
    pub entries: usize,
}

impl Question {
    /// Every question.
    pub fn all() -> Vec<Question> {
        let mut questions = Vec::new();
        for behaviour in Behaviour::ALL {
            let sizes: &[(usize, usize)] = match behaviour {
                Behaviour::SlidingWindowLog => &[(10_000, 1), (100, 100), (2, 10_000)],
                // The second request sees a counter that is there.
                Behaviour::FixedWindow
                | Behaviour::SlidingWindowCounter
                | Behaviour::TokenBucket
                | Behaviour::LeakyPolicing
                | Behaviour::LeakyShaping => &[(10_000, 2)],
            };
            questions.extend(sizes.iter().map(|&(keys, entries)| Question {
                keys,
                behaviour,
                entries,
            }));
        }
        questions
    }

    /// Its row in the table.
    pub fn row(&self) -> String {
        let behaviour = self.behaviour.name();
        match (self.behaviour, self.entries) {
            (Behaviour::SlidingWindowLog, 1) => {
                format!("memory, {behaviour} of 1 entry, bytes a key")
            }
            (Behaviour::SlidingWindowLog, entries) => {
                format!("memory, {behaviour} of {entries} entries, bytes a key")
            }
            (_, _) => format!("memory, {behaviour}, bytes a key"),
        }
    }

    /// Lets a script fill the server and tells what that keeps for each key, all of its counters
    /// together.
    pub fn answer(&self, entry: &Entry, server: &mut Server) -> f64 {
        let setting = self.setting();
        let script = (entry.build)(&setting);
        server.prepare(&*script);
        for asked in self.requests(&setting).chunks(1_000) {
            let mut calls = Pipeline::with_capacity(asked.len());
            for (key, at) in asked {
                calls.add_command(script.one(key, When::At(*at)));
            }
            server.send(&calls);
        }
        server.bytes() as f64 / self.keys as f64
    }

    /// The same for Tallygate's store, which names its counters itself.
    pub fn answer_of_store(&self, runtime: &Runtime, server: &mut Server) -> f64 {
        let setting = self.setting();
        server.forget();
        tallygate::decide_at(runtime, &server.url(), &setting, &self.requests(&setting));
        server.bytes() as f64 / self.keys as f64
    }

    fn setting(&self) -> Setting {
        match self.behaviour {
            Behaviour::SlidingWindowLog => Setting::window(self.behaviour, 10_000),
            behaviour => Setting::roomy(behaviour, self.keys),
        }
    }

    /// Who asks when, µs since the epoch.
    fn requests(&self, setting: &Setting) -> Vec<(Key, u64)> {
        let step_us = match self.behaviour {
            // One in each window.
            Behaviour::SlidingWindowCounter => setting.period.as_micros() as u64,
            // An instant of its own for each entry of a log: equal ones may share one.
            _ => 1_000,
        };
        let begin_us = now_us() - step_us * (self.entries - 1) as u64;
        let mut requests = Vec::with_capacity(self.keys * self.entries);
        for entry in 0..self.entries {
            let at = begin_us + step_us * entry as u64;
            requests.extend((0..self.keys).map(|index| (keys::key(index), at)));
        }
        requests
    }
}
