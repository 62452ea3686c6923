//! redis-cell's semantics in plain Lua: GCRA on the server's clock.

use redis::{Cmd, Value};

use super::articles::first;
use super::{Evalsha, Script, When};
use crate::keys::Key;
use crate::quota_spec::QuotaSpec;

pub(crate) const NAME: &str = "redis-cell's GCRA in Lua";

pub(crate) struct Gcra {
    call: Evalsha,
    burst: u32,
    interval_us: u128,
}

impl Gcra {
    pub(crate) fn new(spec: &QuotaSpec) -> Self {
        Gcra {
            call: Evalsha::new(include_str!("gcra.lua")),
            burst: spec.capacity,
            interval_us: spec.interval().as_micros(),
        }
    }
}

impl Script for Gcra {
    fn text(&self) -> Option<&str> {
        Some(self.call.text())
    }

    fn single(&self, key: &Key, _: When) -> Cmd {
        let mut call = self.call.with_keys(1);
        call.arg(key)
            .arg(self.burst)
            .arg(self.interval_us.to_string());
        call
    }

    fn admitted(&self, reply: &Value) -> usize {
        // The first number is 1 if the request is limited.
        usize::from(first(reply) == Some(0))
    }
}
