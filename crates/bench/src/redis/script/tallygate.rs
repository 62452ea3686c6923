//! Tallygate's own script, without the store around it: what it costs the server, whoever calls.

use redis::{Cmd, Pipeline, Value};
use tallygate_core::lua::{self, Kinds, Operation};
use tallygate_core::{FoundState, Quota, Verb, evaluate_found};

use super::{BATCH, Evalsha, Script, When};
use crate::keys::Key;
use crate::setting::Setting;

pub(crate) struct Tallygate {
    call: Evalsha,
    quota: Quota,
    /// The argument of a limit that is the last of its request, and of one that is not.
    last: Vec<u8>,
    more: Vec<u8>,
}

impl Tallygate {
    pub(crate) fn new(setting: &Setting) -> Self {
        let text = setting.to_string();
        let quota: Quota = text.parse().expect("a setting is written as a quota");
        let argument = |more| {
            let mut argument = Vec::new();
            lua::write_argument(&mut argument, &quota, Operation::Verb(Verb::Check), 1, more);
            argument
        };
        Tallygate {
            call: Evalsha::new(&lua::script(Kinds::from_quota(&quota))),
            last: argument(false),
            more: argument(true),
            quota,
        }
    }

    /// One call; `together` says whether its keys are the limits of one request.
    fn call(&self, keys: &[Key], when: When, together: bool) -> Cmd {
        let mut call = self.call.with_keys(keys.len());
        call.arg(keys);
        let arguments = (1..=keys.len()).map(|i| match together && i < keys.len() {
            true => &*self.more,
            false => &*self.last,
        });
        call.arg(lua::join_arguments(arguments));
        if let When::At(us) = when {
            call.arg(us / 1_000_000).arg(us % 1_000_000);
        }
        call
    }

    /// The states of an answer and the time they were found at; none if it is no answer.
    fn read(&self, answer: &Value) -> Option<Vec<FoundState<'_>>> {
        let Value::BulkString(bytes) = answer else {
            return None;
        };
        let mut rest = &bytes[..];
        let now_us = number(&mut rest)? * 1_000_000 + number(&mut rest)?;
        let mut found = Vec::new();
        while !rest.is_empty() {
            found.push(FoundState {
                quota: &self.quota,
                state: lua::read_state(&self.quota, &mut rest)?,
                cost: 1,
                now_us,
            });
        }
        Some(found)
    }
}

impl Script for Tallygate {
    fn text(&self) -> Option<&str> {
        Some(self.call.text())
    }

    fn one(&self, key: &Key, when: When) -> Cmd {
        self.call(std::slice::from_ref(key), when, false)
    }

    fn many(&self, keys: &[Key], when: When, calls: &mut Pipeline) {
        for keys in keys.chunks(BATCH) {
            calls.add_command(self.call(keys, when, false));
        }
    }

    fn several(&self, keys: &[Key], when: When, calls: &mut Pipeline) {
        calls.add_command(self.call(keys, when, true));
    }

    fn admitted(&self, answer: &Value) -> usize {
        let found = self.read(answer).unwrap_or_default();
        found
            .into_iter()
            .map(|found| evaluate_found(&mut [found], Verb::Check))
            .filter(|decision| decision.verdict().allowed())
            .count()
    }
}

/// The number at the front of an answer and the space after it.
fn number(answer: &mut &[u8]) -> Option<u64> {
    let end = answer.iter().position(|&byte| byte == b' ')?;
    let number = std::str::from_utf8(&answer[..end]).ok()?.parse().ok()?;
    *answer = &answer[end + 1..];
    Some(number)
}
