//! The server's CPU time of undoing requests on a sliding window log.

use std::time::Duration;

use redis::{Cmd, pipe};
use tallygate_core::lua::{self, Kinds, NamedCaller, Operation};
use tallygate_core::{Quota, Verb};

use super::script::{Evalsha, now_us};
use super::server::Server;

/// The number of entries in a log before the undo.
pub const LENGTHS: [usize; 4] = [0, 2_000, 10_000, 19_000];

/// The newest entries that an undo reaches.
const REACH: usize = 256;
/// Requests per measurement.
const REQUESTS: usize = 1_000;
/// Measurements of each kind; the least counts.
const ROUNDS: usize = 5;

/// The server's CPU time by log length.
#[derive(Clone, Copy, Debug)]
pub struct LogUndo {
    /// Of a check.
    pub check: Duration,
    /// Of the undo of the newest entry.
    pub newest: Duration,
    /// Of the undo of the oldest entry within reach.
    pub oldest: Duration,
}

/// A log in the server, and the times of its entries.
struct Log {
    quota: Quota,
    script: Evalsha,
    key: String,
    times: Vec<u64>,
    now: u64,
}

/// Measures undos on a log of so many entries.
pub fn measure(server: &mut Server, entries: usize) -> LogUndo {
    let quota: Quota = "sliding-window-log 20000/h".parse().expect("a valid quota");
    let script = lua::script(Kinds::new(&quota, Operation::Verb(Verb::Check)));
    server.flush();
    server.load(&script);
    let mut log = Log {
        quota,
        script: Evalsha::new(&script),
        key: format!("log:{entries}"),
        times: Vec::new(),
        now: now_us(),
    };
    // One at a time: entries of the same instant are merged.
    let filling: Vec<Cmd> = (0..entries).map(|_| log.check()).collect();
    for calls in filling.chunks(REQUESTS) {
        cpu(server, calls);
    }
    let mut least = [Duration::MAX; 3];
    for _ in 0..ROUNDS {
        let checks: Vec<Cmd> = (0..REQUESTS).map(|_| log.check()).collect();
        let check = cpu(server, &checks);
        let refund = log.refund(REQUESTS);
        cpu(server, &[refund]);
        // Every check is undone, or an older one instead: the length stays the same.
        let mut pair = |depth: usize| {
            let calls: Vec<Cmd> = (0..REQUESTS)
                .flat_map(|_| [log.check(), log.undo(depth)])
                .collect();
            cpu(server, &calls)
        };
        let newest = pair(1);
        let oldest = pair(REACH.min(entries + 1));
        for (least, time) in least.iter_mut().zip([check, newest, oldest]) {
            *least = (*least).min(time);
        }
    }
    let requests = u32::try_from(REQUESTS).expect("a small constant");
    let [check, newest, oldest] = least.map(|time| time / requests);
    LogUndo {
        check,
        newest: newest.saturating_sub(check),
        oldest: oldest.saturating_sub(check),
    }
}

impl Log {
    /// A call at the current time.
    fn call(&self, operation: Operation, cost: u32) -> Cmd {
        let mut argument = Vec::new();
        let caller = NamedCaller::default();
        lua::write_argument(&mut argument, &self.quota, operation, &caller, cost, false);
        let mut call = self.script.with_keys(1);
        call.arg(&self.key).arg(argument);
        call.arg(self.now / 1_000_000).arg(self.now % 1_000_000);
        call
    }

    /// A check at a new time.
    fn check(&mut self) -> Cmd {
        self.now += 1;
        self.times.push(self.now);
        self.call(Operation::Verb(Verb::Check), 1)
    }

    /// The undo of an entry; depth 1 is the newest.
    fn undo(&mut self, depth: usize) -> Cmd {
        let taken_us = self.times.remove(self.times.len() - depth);
        self.call(Operation::Undo { taken_us }, 1)
    }

    /// Drops the newest entries.
    fn refund(&mut self, entries: usize) -> Cmd {
        self.times.truncate(self.times.len() - entries);
        let cost = u32::try_from(entries).expect("fewer than the limit");
        self.call(Operation::Verb(Verb::Refund), cost)
    }
}

/// The server's CPU time for a pipeline of calls.
fn cpu(server: &mut Server, calls: &[Cmd]) -> Duration {
    let mut all = pipe();
    for call in calls {
        all.add_command(call.clone());
    }
    let before = server.cpu();
    server.send(&all);
    server.cpu() - before
}
