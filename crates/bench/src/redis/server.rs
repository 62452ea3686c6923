//! The server that is measured: started on a free port, kept on one processor, asked what it spent.

use std::io;
use std::time::Duration;

use redis::{Connection, Pipeline, RedisResult, Value, cmd, pipe};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::script::Script;

/// A server of this bench's own and a connection to it.
pub struct Server {
    process: tallygate_testkit::redis::Server,
    connection: Connection,
}

impl Server {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// It cannot be connected to.
    pub fn start() -> io::Result<Server> {
        let process = tallygate_testkit::redis::Server::start();
        let client = redis::Client::open(process.url()).map_err(io::Error::other)?;
        let connection = client.get_connection().map_err(io::Error::other)?;
        Ok(Server {
            process,
            connection,
        })
    }

    /// Keeps it on the first processor and the calling thread on the second.
    ///
    /// # Errors
    ///
    /// There is but one.
    pub fn keep_apart(&self) -> io::Result<()> {
        let mut second = CpuSet::new();
        second.set(1);
        sched_setaffinity(None, &second)?;
        self.process.pin(0);
        Ok(())
    }

    /// Where a client finds it.
    pub fn url(&self) -> String {
        self.process.url()
    }

    /// Forgets every key and is given the script.
    pub fn prepare(&mut self, script: &dyn Script) {
        self.forget();
        if let Some(text) = script.text() {
            self.ask::<String>(cmd("SCRIPT").arg("LOAD").arg(text));
        }
    }

    /// Forgets every key.
    pub fn forget(&mut self) {
        self.ask::<()>(&cmd("FLUSHALL"));
    }

    /// Sends all calls at once and waits for all answers.
    pub fn send(&mut self, calls: &Pipeline) -> Vec<Value> {
        must(calls.query(&mut self.connection))
    }

    /// The processor time it has spent since it was started.
    pub fn cpu(&mut self) -> Duration {
        let info: String = self.ask(cmd("INFO").arg("cpu"));
        ["used_cpu_sys:", "used_cpu_user:"]
            .iter()
            .filter_map(|name| info.lines().find_map(|line| line.strip_prefix(name)))
            .filter_map(|seconds| seconds.parse().ok())
            .map(Duration::from_secs_f64)
            .sum()
    }

    /// What all keys take up, by `MEMORY USAGE`.
    pub fn bytes(&mut self) -> u64 {
        let keys: Vec<Vec<u8>> = self.ask(cmd("KEYS").arg("*"));
        let mut bytes = 0;
        for keys in keys.chunks(1_000) {
            let mut calls = pipe();
            for key in keys {
                let call = calls.cmd("MEMORY").arg("USAGE").arg(key);
                call.arg("SAMPLES").arg(0);
            }
            let usage: Vec<u64> = must(calls.query(&mut self.connection));
            bytes += usage.iter().sum::<u64>();
        }
        bytes
    }

    /// What it is: name and version.
    pub fn version(&mut self) -> String {
        let info: String = self.ask(cmd("INFO").arg("server"));
        let version = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        format!("Redis {}", version.unwrap_or("of an unknown version"))
    }

    fn ask<T: redis::FromRedisValue>(&mut self, call: &redis::Cmd) -> T {
        must(call.query(&mut self.connection))
    }
}

/// A bench has no use for a server that is gone.
pub(crate) fn must<T>(answer: RedisResult<T>) -> T {
    answer.unwrap_or_else(|error| panic!("the server answers: {error}"))
}
