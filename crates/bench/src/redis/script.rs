//! Contenders that decide inside the server: scripts and plain commands, all sent by the same
//! client.
//!
//! A contender is one file here and one entry in [`all`].

use std::time::SystemTime;

use redis::{Cmd, Pipeline, Value};

use crate::keys::Key;
use crate::quota_spec::{Algorithm, QuotaSpec};

pub(crate) mod articles;
pub(crate) mod floor;
pub(crate) mod gcra;
pub(crate) mod tallygate;

/// Requests per call of a script that supports batches.
pub const BATCH: usize = 16;

/// Limits of a request with several.
pub const LIMITS_PER_REQUEST: usize = 3;

/// Decides requests of cost 1 inside the server.
pub trait Script: Send + Sync {
    /// The script's text; `None` for a plain command.
    fn text(&self) -> Option<&str>;

    /// The call that decides one request.
    fn single(&self, key: &Key, when: When) -> Cmd;

    /// Adds the calls that decide one request per key, [`BATCH`] per call.
    ///
    /// By default, one request per call.
    fn batch(&self, keys: &[Key], when: When, calls: &mut Pipeline) {
        for key in keys {
            calls.add_command(self.single(key, when));
        }
    }

    /// Adds the calls for a request with one limit per key.
    ///
    /// By default, one limit per call.
    fn multi_limit(&self, keys: &[Key], when: When, calls: &mut Pipeline) {
        for key in keys {
            calls.add_command(self.single(key, when));
        }
    }

    /// How many of the limits of a call its reply admits.
    fn admitted(&self, reply: &Value) -> usize;
}

/// Calls of a script that is loaded in the server.
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

    /// The start of a call, up to its number of keys.
    pub(crate) fn with_keys(&self, keys: usize) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.hash).arg(keys);
        call
    }
}

/// When a request is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the current time, read wherever the contender reads it.
    Now,
    /// At this time in microseconds since the epoch, if the contender supports it.
    At(u64),
}

impl When {
    /// The time by the client's clock, in microseconds since the epoch.
    pub fn us(self) -> u64 {
        match self {
            When::Now => now_us(),
            When::At(us) => us,
        }
    }
}

/// The time by this machine's clock, in microseconds since the epoch.
pub fn now_us() -> u64 {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let us = elapsed.expect("the clock is past 1970").as_micros();
    u64::try_from(us).expect("the clock is before the year 500,000")
}

/// An entry in the list of contenders.
pub struct Entry {
    /// Its column in the table.
    pub name: &'static str,
    /// The algorithms it is measured with.
    pub algorithms: &'static [Algorithm],
    /// Whether it enforces a limit; the floor does not.
    pub enforces_limit: bool,
    /// Builds it.
    pub build: fn(&QuotaSpec) -> Box<dyn Script>,
}

/// The name of the contender that the others are compared with.
pub const TALLYGATE: &str = "tallygate";

/// The name of the peer of the targets.
pub const ARTICLES: &str = "articles' script";

/// Every contender, in the order of the table's columns.
pub fn all() -> Vec<Entry> {
    vec![
        Entry {
            name: TALLYGATE,
            algorithms: &Algorithm::BASIC,
            enforces_limit: true,
            build: |spec| Box::new(tallygate::Tallygate::new(spec)),
        },
        Entry {
            name: ARTICLES,
            algorithms: &Algorithm::BASIC,
            enforces_limit: true,
            build: |spec| Box::new(articles::Article::new(spec)),
        },
        Entry {
            name: gcra::NAME,
            algorithms: &[Algorithm::TokenBucket],
            enforces_limit: true,
            build: |spec| Box::new(gcra::Gcra::new(spec)),
        },
        Entry {
            name: floor::INCR,
            algorithms: &[Algorithm::FixedWindow],
            enforces_limit: false,
            build: |_| Box::new(floor::Incr),
        },
        Entry {
            name: floor::PING,
            algorithms: &[Algorithm::FixedWindow],
            enforces_limit: false,
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

    /// A limit of 5 that is not refilled during a test.
    fn five(algorithm: Algorithm) -> QuotaSpec {
        QuotaSpec {
            algorithm,
            limit: 5,
            period: Duration::from_secs(30 * 86_400),
            capacity: 5,
        }
    }

    fn admitted(script: &dyn Script, server: &mut Server, calls: &Pipeline) -> usize {
        let replies = server.send(calls);
        replies.iter().map(|reply| script.admitted(reply)).sum()
    }

    #[test]
    fn every_script_admits_its_capacity_and_then_refuses() {
        let mut server = Server::start().unwrap();
        for entry in all().iter().filter(|entry| entry.enforces_limit) {
            for &algorithm in entry.algorithms {
                let script = &*(entry.build)(&five(algorithm));
                server.prepare(script);
                let mut calls = redis::pipe();
                for _ in 0..12 {
                    calls.add_command(script.single(&keys::key(1), When::Now));
                }
                let admitted = admitted(script, &mut server, &calls);
                assert_eq!(admitted, 5, "{} {algorithm:?}", entry.name);
            }
        }
    }

    #[test]
    fn every_script_admits_the_same_in_batches_as_in_single_calls() {
        let mut server = Server::start().unwrap();
        for entry in all().iter().filter(|entry| entry.enforces_limit) {
            for &algorithm in entry.algorithms {
                let script = &*(entry.build)(&five(algorithm));
                server.prepare(script);
                // 4 keys, 8 requests each, equal keys inside a batch too.
                let requests: Vec<Key> = (0..32).map(|n| keys::key(n % 4)).collect();
                let mut calls = redis::pipe();
                script.batch(&requests, When::Now, &mut calls);
                let admitted = admitted(script, &mut server, &calls);
                assert_eq!(admitted, 20, "{} {algorithm:?}", entry.name);
            }
        }
    }

    #[test]
    fn all_limits_of_a_request_are_checked() {
        let mut server = Server::start().unwrap();
        for entry in all().iter().filter(|entry| entry.enforces_limit) {
            for &algorithm in entry.algorithms {
                let script = &*(entry.build)(&five(algorithm));
                server.prepare(script);
                let limits: Vec<Key> = (0..LIMITS_PER_REQUEST).map(keys::key).collect();
                let mut calls = redis::pipe();
                script.multi_limit(&limits, When::Now, &mut calls);
                let admitted = admitted(script, &mut server, &calls);
                assert_eq!(admitted, LIMITS_PER_REQUEST, "{} {algorithm:?}", entry.name);
            }
        }
    }
}
