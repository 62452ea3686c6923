//! Where a replay keeps its counters. Knows keys and quotas; knows nothing of lines or answers.
//!
//! A further store is a further variant of [`Store`]: the rest of replay asks only `open` and
//! `decide`.

use std::collections::HashMap;

use tollgate_core::{Decision, Quota, State, apply, apply_all};

use super::line::Line;
use crate::failure::Failure;

/// The store that `--store` names.
pub(super) enum Store {
    Memory(Memory),
}

impl Store {
    /// Opens a store for counters under these quotas, told apart by position.
    pub(super) fn open(url: &str, quotas: &[Quota]) -> Result<Self, Failure> {
        if url == "memory" {
            return Ok(Store::Memory(Memory::new(quotas)));
        }
        // The URL itself is not repeated: it may carry a password.
        let scheme = url.split_once(':').map(|(scheme, _)| scheme);
        let redis = scheme.is_some_and(|s| s.starts_with("redis") || s.starts_with("valkey"));
        Err(Failure::Input(if redis {
            "--store: this build has no Redis store; use --store memory".into()
        } else {
            "--store: not a store that is known; use --store memory".into()
        }))
    }

    /// Decides one request, all quotas or none.
    pub(super) fn decide(&mut self, line: &Line<'_>) -> Result<Decision, Failure> {
        match self {
            Store::Memory(memory) => Ok(memory.decide(line)),
        }
    }
}

/// Counters in this process, kept for the whole run: a plain map that never evicts.
// The map's hasher is the standard library's, keyed at random: a trace may be hostile.
pub(super) enum Memory {
    /// One quota: its state lies in the map itself.
    One(Quota, HashMap<Box<str>, State>),
    /// Several quotas: a state for each, in their order.
    Several(Vec<Quota>, HashMap<Box<str>, Box<[State]>>),
}

impl Memory {
    fn new(quotas: &[Quota]) -> Self {
        match quotas {
            [quota] => Memory::One(*quota, HashMap::new()),
            _ => Memory::Several(quotas.to_vec(), HashMap::new()),
        }
    }

    fn decide(&mut self, line: &Line<'_>) -> Decision {
        let key = line.key.as_ref();
        match self {
            Memory::One(quota, counters) => {
                let decide = |state: &mut State| {
                    Decision::one(apply(quota, state, line.verb, line.cost, line.t_us))
                };
                if let Some(state) = counters.get_mut(key) {
                    return decide(state);
                }
                let mut state = State::New;
                let decision = decide(&mut state);
                // What changed nothing is not worth remembering.
                if state != State::New {
                    counters.insert(key.into(), state);
                }
                decision
            }
            Memory::Several(quotas, counters) => {
                let decide = |states: &mut [State]| {
                    let mut limits: Vec<_> = quotas.iter().zip(states).collect();
                    apply_all(&mut limits, line.verb, line.cost, line.t_us)
                };
                if let Some(states) = counters.get_mut(key) {
                    return decide(states);
                }
                let mut states = vec![State::New; quotas.len()];
                let decision = decide(&mut states);
                if states.iter().any(|state| *state != State::New) {
                    counters.insert(key.into(), states.into());
                }
                decision
            }
        }
    }
}
