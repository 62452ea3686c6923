//! The server's CPU time of [turns](crate::callers::TURNS), one call at a time.

use std::ops::Range;

use redis::{Cmd, pipe};
use tallygate_core::lua::{self, Kinds, NamedCaller, Operation};
use tallygate_core::{Quota, Verb};

use super::script::Evalsha;
use super::server::Server;
use crate::callers::{CALLERS, KEYS, Turn};

/// The name of a row.
pub fn row(turn: &Turn) -> String {
    format!("one by one: {}", turn.name)
}

/// Microseconds of the server's CPU for a call.
pub fn measure(turn: &Turn, server: &mut Server, turns: usize) -> f64 {
    let quota: Quota = turn.quota.parse().expect("a valid quota");
    let kinds = turn.verbs.iter().fold(Kinds::default(), |kinds, verb| {
        kinds.union(Kinds::new(&quota, Operation::Verb(*verb)))
    });
    let script = Evalsha::new(&lua::script(kinds));
    server.flush();
    server.load(script.text());
    let mut ask = |numbers: Range<usize>| {
        for number in numbers {
            for (verb, cost) in turn.steps() {
                let call = call(&quota, kinds, &script, number, verb, cost);
                server.send(pipe().add_command(call));
            }
        }
        server.cpu()
    };
    let warm = KEYS * CALLERS;
    let before = ask(0..warm);
    let spent = ask(warm..warm + turns) - before;
    spent.as_secs_f64() * 1e6 / (turns * turn.verbs.len()) as f64
}

fn call(quota: &Quota, kinds: Kinds, script: &Evalsha, turn: usize, verb: Verb, cost: u32) -> Cmd {
    let operation = Operation::Verb(verb);
    let key = format!("tallygate:1:{{user:{}}}t1s", turn % KEYS);
    let name = format!("caller:{}", turn / KEYS % CALLERS);
    let caller = NamedCaller {
        member: name.as_bytes(),
        owner: name.as_bytes(),
        ..NamedCaller::default()
    };
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
