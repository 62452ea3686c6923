//! Tallygate's script without the store: its cost in the server, independent of the client.

use redis::{Cmd, Pipeline, Value};
use tallygate_core::lua::{self, Kinds, NamedCaller, Operation};
use tallygate_core::{FoundState, Quota, Verb, evaluate_found};

use super::{BATCH, Evalsha, Script, When};
use crate::keys::Key;
use crate::quota_spec::QuotaSpec;

const CHECK: Operation = Operation::Verb(Verb::Check);

pub(crate) struct Tallygate {
    call: Evalsha,
    kinds: Kinds,
    quota: Quota,
    /// The argument of the last limit of a request.
    last: Vec<u8>,
    /// The argument of the other limits.
    more: Vec<u8>,
}

impl Tallygate {
    pub(crate) fn new(spec: &QuotaSpec) -> Self {
        let text = spec.to_string();
        let quota: Quota = text.parse().expect("a spec is a valid quota");
        let argument = |more| {
            let mut argument = Vec::new();
            let caller = NamedCaller::default();
            lua::write_argument(&mut argument, &quota, CHECK, &caller, 1, more);
            argument
        };
        let kinds = Kinds::new(&quota, CHECK);
        Tallygate {
            call: Evalsha::new(&lua::script(kinds)),
            kinds,
            last: argument(false),
            more: argument(true),
            quota,
        }
    }

    /// One call; with `one_request`, its keys are the limits of one request.
    fn call(&self, keys: &[Key], when: When, one_request: bool) -> Cmd {
        let mut call = self.call.with_keys(keys.len());
        call.arg(keys);
        let arguments = (0..keys.len()).map(|i| match one_request && i + 1 < keys.len() {
            true => &*self.more,
            false => &*self.last,
        });
        call.arg(lua::join_arguments(self.kinds, arguments));
        if let When::At(us) = when {
            call.arg(us / 1_000_000).arg(us % 1_000_000);
        }
        call
    }

    /// The states in a reply and the time they were read at; `None` if the reply is malformed.
    fn read(&self, reply: &Value) -> Option<Vec<FoundState<'_>>> {
        let Value::BulkString(bytes) = reply else {
            return None;
        };
        let mut rest = &bytes[..];
        let now_us = number(&mut rest)? * 1_000_000 + number(&mut rest)?;
        let mut found = Vec::new();
        while !rest.is_empty() {
            let state = lua::read_state(&self.quota, &mut rest)?;
            found.push(FoundState::new(&self.quota, state, 1, now_us));
        }
        Some(found)
    }
}

impl Script for Tallygate {
    fn text(&self) -> Option<&str> {
        Some(self.call.text())
    }

    fn single(&self, key: &Key, when: When) -> Cmd {
        self.call(std::slice::from_ref(key), when, false)
    }

    fn batch(&self, keys: &[Key], when: When, calls: &mut Pipeline) {
        for keys in keys.chunks(BATCH) {
            calls.add_command(self.call(keys, when, false));
        }
    }

    fn multi_limit(&self, keys: &[Key], when: When, calls: &mut Pipeline) {
        calls.add_command(self.call(keys, when, true));
    }

    fn admitted(&self, reply: &Value) -> usize {
        let found = self.read(reply).unwrap_or_default();
        found
            .into_iter()
            .map(|found| evaluate_found(&mut [found], Verb::Check))
            .filter(|decision| decision.verdict().allowed())
            .count()
    }
}

/// Takes the number at the start of a reply and the space after it.
fn number(reply: &mut &[u8]) -> Option<u64> {
    let end = reply.iter().position(|&byte| byte == b' ')?;
    let number = std::str::from_utf8(&reply[..end]).ok()?.parse().ok()?;
    *reply = &reply[end + 1..];
    Some(number)
}
