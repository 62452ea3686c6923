//! Decisions that tell callers apart or remember reservations, and the plain check beside them.

use tallygate::Verb;

/// Counters.
pub const KEYS: usize = 1_000;
/// Callers of each counter.
pub const CALLERS: usize = 10;
/// What is reserved; 1 unit of it is settled.
pub const ESTIMATE: u32 = 20;

/// Verbs that each caller of each counter asks in turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The name of the row, without the store's prefix.
    pub name: &'static str,
    /// The quota, which is never reached.
    pub quota: &'static str,
    /// The verbs.
    pub verbs: &'static [Verb],
    /// The most CPU time of a call to Redis, relative to a plain check.
    pub max_redis: f64,
    /// The most CPU time of a decision in memory, relative to a plain check.
    pub max_memory: f64,
}

impl Turn {
    /// The verbs and their costs.
    pub fn steps(&self) -> impl Iterator<Item = (Verb, u32)> {
        self.verbs.iter().map(|&verb| match verb {
            Verb::Reserve => (verb, ESTIMATE),
            _ => (verb, 1),
        })
    }
}

/// The plain check, and the others.
pub const TURNS: [Turn; 4] = [
    Turn {
        name: "token bucket",
        quota: "token-bucket 100000/s burst 100000",
        verbs: &[Verb::Check],
        max_redis: 1.0,
        max_memory: 1.0,
    },
    Turn {
        name: "token bucket, shared",
        quota: "token-bucket 100000/s burst 100000 shared 4",
        verbs: &[Verb::Check],
        max_redis: 2.5,
        max_memory: 3.0,
    },
    Turn {
        name: "concurrent, check or release",
        quota: "concurrent 100 for 30s",
        verbs: &[Verb::Check, Verb::Release],
        max_redis: 2.0,
        max_memory: 3.0,
    },
    Turn {
        name: "token bucket, reserve or settle",
        quota: "token-bucket 100000/s burst 100000",
        verbs: &[Verb::Reserve, Verb::Settle],
        max_redis: 2.0,
        max_memory: 3.0,
    },
];
