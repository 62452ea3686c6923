//! Replay counters in this process: a plain map that never evicts.

use std::collections::HashMap;

use smallvec::{SmallVec, smallvec};
use tallygate_core::{Decision, Quota, State, evaluate_all};

use super::request::ReplayRequest;

/// The states of every key, one for each quota.
// The standard hasher is randomly keyed: a trace may be hostile.
pub(super) struct MemoryCounters {
    quotas: Vec<Quota>,
    states: HashMap<Box<str>, SmallVec<[State; 1]>>,
}

impl MemoryCounters {
    pub(super) fn new(quotas: &[Quota]) -> Self {
        MemoryCounters {
            quotas: quotas.to_vec(),
            states: HashMap::new(),
        }
    }

    /// Decides one request, all quotas or none.
    pub(super) fn decide(&mut self, request: &ReplayRequest<'_>) -> Decision {
        let quotas = &self.quotas;
        let decide = |states: &mut [State]| {
            let limits = quotas.iter().zip(states);
            let mut limits: SmallVec<[_; 2]> = limits
                .map(|(quota, state)| (quota, state, request.cost))
                .collect();
            evaluate_all(&mut limits, request.verb, request.t_us)
        };
        let key = request.key.as_ref();
        if let Some(states) = self.states.get_mut(key) {
            return decide(states);
        }
        let mut states: SmallVec<[State; 1]> = smallvec![State::New; quotas.len()];
        let decision = decide(&mut states);
        // An unchanged state need not be stored.
        if states.iter().any(|state| *state != State::New) {
            self.states.insert(key.into(), states);
        }
        decision
    }
}
