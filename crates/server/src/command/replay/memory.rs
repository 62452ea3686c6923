//! Replay counters in this process: a plain map that never evicts.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use smallvec::{SmallVec, smallvec};
use tallygate_core::{Caller, Decision, Entry, Quota, Reservation, Room, State, evaluate_all};

use super::request::ReplayRequest;

/// The counters of every key.
// The standard hasher is randomly keyed: a trace may be hostile.
pub(super) struct MemoryCounters {
    quotas: Vec<Quota>,
    counters: HashMap<Box<str>, KeyCounters>,
    /// Numbers members and owners.
    hasher: RandomState,
}

/// The states of one key, one for each quota, and what they remember by id.
struct KeyCounters {
    states: SmallVec<[State; 1]>,
    reserved: HashMap<Box<str>, Reservations>,
}

/// One for each quota.
type Reservations = SmallVec<[Option<Reservation>; 1]>;

impl KeyCounters {
    fn new(quotas: usize) -> Self {
        KeyCounters {
            states: smallvec![State::New; quotas],
            reserved: HashMap::new(),
        }
    }

    /// Whether it differs from one that was never seen.
    fn is_used(&self) -> bool {
        !self.reserved.is_empty() || self.states.iter().any(|state| *state != State::New)
    }

    fn decide(
        &mut self,
        quotas: &[Quota],
        request: &ReplayRequest<'_>,
        caller: Caller,
    ) -> Decision {
        let mut reserved: Reservations = smallvec![None; quotas.len()];
        if let Some(known) = request.id.as_deref().and_then(|id| self.reserved.get(id)) {
            reserved.clone_from(known);
        }
        let limits = quotas.iter().zip(&mut self.states).zip(&reserved);
        let mut limits: SmallVec<[_; 2]> = limits
            .map(|((quota, state), reservation)| Entry {
                caller,
                reservation: *reservation,
                ..Entry::new(quota, state, request.cost)
            })
            .collect();
        let decision = evaluate_all(&mut limits, request.verb, request.t_us);
        if let Some(id) = &request.id {
            let after: Reservations = limits.iter().map(|limit| limit.reservation).collect();
            if after.iter().all(Option::is_none) {
                self.reserved.remove(id.as_ref());
            } else if after != reserved {
                self.reserved.insert(id.as_ref().into(), after);
            }
        }
        decision
    }
}

impl MemoryCounters {
    pub(super) fn new(quotas: &[Quota]) -> Self {
        MemoryCounters {
            quotas: quotas.to_vec(),
            counters: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    /// Decides one request, all quotas or none.
    pub(super) fn decide(&mut self, request: &ReplayRequest<'_>) -> Decision {
        let caller = self.caller(request);
        let key = request.key.as_ref();
        if let Some(counters) = self.counters.get_mut(key) {
            return counters.decide(&self.quotas, request, caller);
        }
        let mut counters = KeyCounters::new(self.quotas.len());
        let decision = counters.decide(&self.quotas, request, caller);
        if counters.is_used() {
            self.counters.insert(key.into(), counters);
        }
        decision
    }

    fn caller(&self, request: &ReplayRequest<'_>) -> Caller {
        let has = |is: fn(&Quota) -> bool| self.quotas.iter().any(is);
        let number = |name: &str, counts| match counts {
            true => self.hasher.hash_one(name),
            false => 0,
        };
        Caller {
            member: number(&request.member, has(|quota| quota.algorithm().is_shared())),
            weight: request.weight,
            owner: number(
                &request.owner,
                has(|quota| quota.algorithm().is_concurrent()),
            ),
            room: Room::Bounded,
        }
    }
}
