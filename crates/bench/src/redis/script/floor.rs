//! The floor: what any decision in the server pays. It limits nobody.

use redis::{Cmd, Value, cmd};

use super::{Script, When};
use crate::keys::Key;

pub(crate) const INCR: &str = "INCR";
pub(crate) const PING: &str = "PING";

/// Counts and forgets nothing.
pub(crate) struct Incr;

impl Script for Incr {
    fn text(&self) -> Option<&str> {
        None
    }

    fn one(&self, key: &Key, _: When) -> Cmd {
        let mut call = cmd(INCR);
        call.arg(key);
        call
    }

    fn admitted(&self, answer: &Value) -> usize {
        usize::from(matches!(answer, Value::Int(_)))
    }
}

/// Touches no key.
pub(crate) struct Ping;

impl Script for Ping {
    fn text(&self) -> Option<&str> {
        None
    }

    fn one(&self, _: &Key, _: When) -> Cmd {
        cmd(PING)
    }

    fn admitted(&self, answer: &Value) -> usize {
        usize::from(matches!(answer, Value::SimpleString(_)))
    }
}
