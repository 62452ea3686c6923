//! The floor: the minimum cost of any decision in the server. It enforces no limit.

use redis::{Cmd, Value, cmd};

use super::{Script, When};
use crate::keys::Key;

pub(crate) const INCR: &str = "INCR";
pub(crate) const PING: &str = "PING";

/// Counts without expiry.
pub(crate) struct Incr;

impl Script for Incr {
    fn text(&self) -> Option<&str> {
        None
    }

    fn single(&self, key: &Key, _: When) -> Cmd {
        let mut call = cmd(INCR);
        call.arg(key);
        call
    }

    fn admitted(&self, reply: &Value) -> usize {
        usize::from(matches!(reply, Value::Int(_)))
    }
}

/// Accesses no key.
pub(crate) struct Ping;

impl Script for Ping {
    fn text(&self) -> Option<&str> {
        None
    }

    fn single(&self, _: &Key, _: When) -> Cmd {
        cmd(PING)
    }

    fn admitted(&self, reply: &Value) -> usize {
        usize::from(matches!(reply, Value::SimpleString(_)))
    }
}
