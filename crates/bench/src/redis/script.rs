//! Who decides inside the server: scripts and plain commands, all sent by the same client.
//!
//! A contender is one file here and one line in [`all`].

use std::time::SystemTime;

use redis::{Cmd, Pipeline, Value};

use crate::keys::Key;
use crate::setting::{Behaviour, Setting};

pub(crate) mod articles;
pub(crate) mod floor;
pub(crate) mod gcra;
pub(crate) mod tallygate;

/// Decisions in one call of a script that can decide several.
pub const BATCH: usize = 16;

/// Limits in a request of several.
pub const SEVERAL: usize = 3;

/// What decides requests of cost 1 inside the server.
pub trait Script: Send + Sync {
    /// The script's text; none for a plain command.
    fn text(&self) -> Option<&str>;

    /// The call that decides one request.
    fn one(&self, key: &Key, when: When) -> Cmd;

    /// Adds the calls that decide a request for each of these keys, [`BATCH`] in a call.
    ///
    /// One by one, where a contender has no better way.
    fn many(&self, keys: &[Key], when: When, calls: &mut Pipeline) {
        for key in keys {
            calls.add_command(self.one(key, when));
        }
    }

    /// Adds the calls for a request that has a limit for each of these keys.
    ///
    /// A call for each, where a contender has no better way.
    fn several(&self, keys: &[Key], when: When, calls: &mut Pipeline) {
        for key in keys {
            calls.add_command(self.one(key, when));
        }
    }

    /// How many of the limits that a call asked for the answer admits.
    fn admitted(&self, answer: &Value) -> usize;
}

/// A script that the server has been given, and the calls of it.
pub(crate) struct Evalsha {
    text: String,
    hash: String,
}

impl Evalsha {
    pub(crate) fn new(text: &str) -> Self {
        Evalsha {
            text: text.to_owned(),
            hash: redis::Script::new(text).get_hash().to_owned(),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The call up to its number of keys.
    pub(crate) fn with_keys(&self, keys: usize) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.hash).arg(keys);
        call
    }
}

/// When a request is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the real time, read where the contender reads it.
    Now,
    /// At that time, µs since the epoch, where the contender can be told.
    At(u64),
}

impl When {
    /// The time as an application knows it, µs since the epoch.
    pub fn us(self) -> u64 {
        match self {
            When::Now => now_us(),
            When::At(us) => us,
        }
    }
}

/// The time by this machine's clock, µs since the epoch.
pub fn now_us() -> u64 {
    let passed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let us = passed.expect("the clock is past 1970").as_micros();
    u64::try_from(us).expect("the clock is before the year 500,000")
}

/// A line in the list of contenders.
pub struct Entry {
    /// Its column in the table.
    pub name: &'static str,
    /// The behaviours it is measured with.
    pub behaviours: &'static [Behaviour],
    /// Whether it limits at all; the floor does not.
    pub limits: bool,
    /// Builds it.
    pub build: fn(&Setting) -> Box<dyn Script>,
}

/// The name of the contender that the others are compared with.
pub const TALLYGATE: &str = "tallygate";

/// The name of the contender that the targets speak of.
pub const ARTICLES: &str = "articles' script";

/// Every contender, in the order of the table's columns.
pub fn all() -> Vec<Entry> {
    vec![
        Entry {
            name: TALLYGATE,
            behaviours: &Behaviour::ALL,
            limits: true,
            build: |setting| Box::new(tallygate::Tallygate::new(setting)),
        },
        Entry {
            name: ARTICLES,
            behaviours: &Behaviour::ALL,
            limits: true,
            build: |setting| Box::new(articles::Article::new(setting)),
        },
        Entry {
            name: gcra::NAME,
            behaviours: &[Behaviour::TokenBucket],
            limits: true,
            build: |setting| Box::new(gcra::Gcra::new(setting)),
        },
        Entry {
            name: floor::INCR,
            behaviours: &[Behaviour::FixedWindow],
            limits: false,
            build: |_| Box::new(floor::Incr),
        },
        Entry {
            name: floor::PING,
            behaviours: &[Behaviour::FixedWindow],
            limits: false,
            build: |_| Box::new(floor::Ping),
        },
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::keys;
    use crate::redis::server::Server;

    /// A limit of 5 that stays used up.
    fn five(behaviour: Behaviour) -> Setting {
        Setting {
            behaviour,
            limit: 5,
            period: Duration::from_secs(30 * 86_400),
            capacity: 5,
        }
    }

    fn admitted(script: &dyn Script, server: &mut Server, calls: &Pipeline) -> usize {
        let answers = server.send(calls);
        answers.iter().map(|answer| script.admitted(answer)).sum()
    }

    #[test]
    fn every_script_admits_its_capacity_and_then_refuses() {
        let mut server = Server::start().unwrap();
        for entry in all().iter().filter(|entry| entry.limits) {
            for &behaviour in entry.behaviours {
                let script = &*(entry.build)(&five(behaviour));
                server.prepare(script);
                let mut calls = redis::pipe();
                for _ in 0..12 {
                    calls.add_command(script.one(&keys::key(1), When::Now));
                }
                let admitted = admitted(script, &mut server, &calls);
                assert_eq!(admitted, 5, "{} {behaviour:?}", entry.name);
            }
        }
    }

    #[test]
    fn every_script_admits_in_batches_what_it_admits_one_by_one() {
        let mut server = Server::start().unwrap();
        for entry in all().iter().filter(|entry| entry.limits) {
            for &behaviour in entry.behaviours {
                let script = &*(entry.build)(&five(behaviour));
                server.prepare(script);
                // 4 keys, 8 requests each, equal keys inside a batch too.
                let requests: Vec<Key> = (0..32).map(|n| keys::key(n % 4)).collect();
                let mut calls = redis::pipe();
                script.many(&requests, When::Now, &mut calls);
                let admitted = admitted(script, &mut server, &calls);
                assert_eq!(admitted, 20, "{} {behaviour:?}", entry.name);
            }
        }
    }

    #[test]
    fn several_limits_of_one_request_are_all_asked() {
        let mut server = Server::start().unwrap();
        for entry in all().iter().filter(|entry| entry.limits) {
            for &behaviour in entry.behaviours {
                let script = &*(entry.build)(&five(behaviour));
                server.prepare(script);
                let limits: Vec<Key> = (0..SEVERAL).map(keys::key).collect();
                let mut calls = redis::pipe();
                script.several(&limits, When::Now, &mut calls);
                let admitted = admitted(script, &mut server, &calls);
                assert_eq!(admitted, SEVERAL, "{} {behaviour:?}", entry.name);
            }
        }
    }
}
