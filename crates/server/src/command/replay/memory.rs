//! Counters of a replay in this process. Knows keys and quotas; knows nothing of lines' text or
//! answers.

use std::collections::HashMap;

use tallygate_core::{Decision, Quota, State, evaluate, evaluate_all};

use super::request::Line;

/// Counters in this process, kept for the whole run: a plain map that never evicts.
// The map's hasher is the standard library's, keyed at random: a trace may be hostile.
pub(super) enum Memory {
    /// One quota: its state lies in the map itself.
    One(Quota, HashMap<Box<str>, State>),
    /// Several quotas: a state for each, in their order.
    Several(Vec<Quota>, HashMap<Box<str>, Box<[State]>>),
}

impl Memory {
    pub(super) fn new(quotas: &[Quota]) -> Self {
        match quotas {
            [quota] => Memory::One(*quota, HashMap::new()),
            _ => Memory::Several(quotas.to_vec(), HashMap::new()),
        }
    }

    /// Decides one request, all quotas or none.
    pub(super) fn decide(&mut self, line: &Line<'_>) -> Decision {
        let key = line.key.as_ref();
        match self {
            Memory::One(quota, counters) => {
                let decide = |state: &mut State| {
                    Decision::from_verdict(evaluate(quota, state, line.verb, line.cost, line.t_us))
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
                    let each = quotas.iter().zip(states);
                    let mut limits: Vec<_> = each
                        .map(|(quota, state)| (quota, state, line.cost))
                        .collect();
                    evaluate_all(&mut limits, line.verb, line.t_us)
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
