//! The server's CPU time of decisions that tell callers apart or remember reservations, one call at a
//! time, beside a plain check.

use redis::{Cmd, pipe};
use tallygate_core::lua::{self, Kinds, NamedCaller, Operation};
use tallygate_core::{Quota, Verb};

use super::script::Evalsha;
use super::server::Server;

/// Counters, and callers of each.
const KEYS: usize = 1_000;
const CALLERS: usize = 10;

/// Verbs that each caller of each counter asks in turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The name of the row.
    pub row: &'static str,
    quota: &'static str,
    verbs: &'static [Verb],
    /// The most CPU time of a call, relative to a plain check.
    pub max: f64,
}

/// The plain check, and the others.
pub const TURNS: [Turn; 4] = [
    Turn {
        row: "one by one: token bucket",
        quota: "token-bucket 100000/s burst 100000",
        verbs: &[Verb::Check],
        max: 1.0,
    },
    Turn {
        row: "one by one: token bucket, shared",
        quota: "token-bucket 100000/s burst 100000 shared 4",
        verbs: &[Verb::Check],
        max: 2.5,
    },
    Turn {
        row: "one by one: concurrent, check or release",
        quota: "concurrent 100 for 30s",
        verbs: &[Verb::Check, Verb::Release],
        max: 2.0,
    },
    Turn {
        row: "one by one: token bucket, reserve or settle",
        quota: "token-bucket 100000/s burst 100000",
        verbs: &[Verb::Reserve, Verb::Settle],
        max: 2.0,
    },
];

impl Turn {
    /// Microseconds of the server's CPU for a call.
    pub fn measure(&self, server: &mut Server, turns: usize) -> f64 {
        let quota: Quota = self.quota.parse().expect("a valid quota");
        let kinds = self.verbs.iter().fold(Kinds::default(), |kinds, verb| {
            kinds.union(Kinds::new(&quota, Operation::Verb(*verb)))
        });
        let script = Evalsha::new(&lua::script(kinds));
        server.flush();
        server.load(script.text());
        let call = |turn: usize, verb: Verb| call(&quota, kinds, &script, turn, verb);
        let mut ask = |turns: std::ops::Range<usize>| {
            for turn in turns {
                for verb in self.verbs {
                    server.send(pipe().add_command(call(turn, *verb)));
                }
            }
            server.cpu()
        };
        let warm = KEYS * CALLERS;
        let before = ask(0..warm);
        let spent = ask(warm..warm + turns) - before;
        spent.as_secs_f64() * 1e6 / (turns * self.verbs.len()) as f64
    }
}

fn call(quota: &Quota, kinds: Kinds, script: &Evalsha, turn: usize, verb: Verb) -> Cmd {
    let operation = Operation::Verb(verb);
    let key = format!("tallygate:1:{{user:{}}}t1s", turn % KEYS);
    let name = format!("caller:{}", turn / KEYS % CALLERS);
    let caller = NamedCaller {
        member: name.as_bytes(),
        owner: name.as_bytes(),
        ..NamedCaller::default()
    };
    // A settle of less than was reserved.
    let cost = if verb == Verb::Reserve { 20 } else { 1 };
    let mut argument = Vec::new();
    lua::write_argument(&mut argument, quota, operation, &caller, cost, false);
    let mut keys: Vec<String> = vec![key.clone()];
    keys.extend(
        lua::key_suffixes(quota)
            .iter()
            .map(|suffix| format!("{key}{suffix}")),
    );
    if operation.has_reservation(quota) {
        keys.push(format!("{key}|r{turn}"));
    }
    let mut call = script.with_keys(keys.len());
    call.arg(keys);
    call.arg(lua::join_arguments(kinds, [&*argument].into_iter()));
    call
}
