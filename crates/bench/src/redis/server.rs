//! The measured server: started on a free port, pinned to a CPU.

use std::io;
use std::time::Duration;

use redis::{Connection, Pipeline, RedisResult, Value, cmd, pipe};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::script::Script;

/// A server and a connection to it.
pub struct Server {
    process: tallygate_testkit::redis::Server,
    connection: Connection,
}

impl Server {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// When it cannot be connected to.
    pub fn start() -> io::Result<Server> {
        let process = tallygate_testkit::redis::Server::start();
        let client = redis::Client::open(process.url()).map_err(io::Error::other)?;
        let connection = client.get_connection().map_err(io::Error::other)?;
        Ok(Server {
            process,
            connection,
        })
    }

    /// Pins it to the first CPU and the calling thread to the second.
    ///
    /// # Errors
    ///
    /// When there is only one CPU.
    pub fn pin(&self) -> io::Result<()> {
        let mut second = CpuSet::new();
        second.set(1);
        sched_setaffinity(None, &second)?;
        self.process.pin(0);
        Ok(())
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.process.url()
    }

    /// Deletes all keys and loads a script.
    pub fn prepare(&mut self, script: &dyn Script) {
        self.flush();
        if let Some(text) = script.text() {
            self.load(text);
        }
    }

    /// Loads a script.
    pub fn load(&mut self, text: &str) {
        self.query::<String>(cmd("SCRIPT").arg("LOAD").arg(text));
    }

    /// Deletes all keys.
    pub fn flush(&mut self) {
        self.query::<()>(&cmd("FLUSHALL"));
    }

    /// Sends all calls in one pipeline and waits for all replies.
    pub fn send(&mut self, calls: &Pipeline) -> Vec<Value> {
        expect_reply(calls.query(&mut self.connection))
    }

    /// Its CPU time since the start.
    pub fn cpu(&mut self) -> Duration {
        let info: String = self.query(cmd("INFO").arg("cpu"));
        ["used_cpu_sys:", "used_cpu_user:"]
            .iter()
            .filter_map(|name| info.lines().find_map(|line| line.strip_prefix(name)))
            .filter_map(|seconds| seconds.parse().ok())
            .map(Duration::from_secs_f64)
            .sum()
    }

    /// The memory of all keys, by `MEMORY USAGE`.
    pub fn bytes(&mut self) -> u64 {
        let keys: Vec<Vec<u8>> = self.query(cmd("KEYS").arg("*"));
        let mut bytes = 0;
        for keys in keys.chunks(1_000) {
            let mut calls = pipe();
            for key in keys {
                let call = calls.cmd("MEMORY").arg("USAGE").arg(key);
                call.arg("SAMPLES").arg(0);
            }
            let usage: Vec<u64> = expect_reply(calls.query(&mut self.connection));
            bytes += usage.iter().sum::<u64>();
        }
        bytes
    }

    /// Its name and version.
    pub fn version(&mut self) -> String {
        let info: String = self.query(cmd("INFO").arg("server"));
        let version = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        format!("Redis {}", version.unwrap_or("(unknown version)"))
    }

    fn query<T: redis::FromRedisValue>(&mut self, call: &redis::Cmd) -> T {
        expect_reply(call.query(&mut self.connection))
    }
}

/// Unwraps a reply: a bench cannot continue without its server.
pub(crate) fn expect_reply<T>(reply: RedisResult<T>) -> T {
    reply.unwrap_or_else(|error| panic!("no reply from the server: {error}"))
}
