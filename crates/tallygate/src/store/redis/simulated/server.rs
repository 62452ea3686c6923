//! A simulated server: decides with the core what a real one decides with the script.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;
use smallvec::SmallVec;
use tallygate_core::lua::Operation;
use tallygate_core::{Entry, State, Verb, evaluate, evaluate_all, evaluate_lease, undo};

use super::super::batch::CallResult;
use super::super::command::{Counter, RepeatedCall, ScriptCall, ScriptReply};
use super::super::error::StoreFailure;
use super::super::replicas::EXPIRY_MS;
use super::{Body, Instant, Message, Reply, ReplyBody};

type States = HashMap<Box<[u8]>, State, FixedState>;

/// A clone of a server is what its replica has.
#[derive(Clone, Default)]
pub(crate) struct Server {
    states: States,
    /// When each process last sent a heartbeat.
    processes: BTreeMap<u64, u64>,
    /// The same, by time.
    heartbeats: BTreeSet<(u64, u64)>,
}

impl Server {
    /// The counters that a message makes it look at, and whether it is a call of a script.
    pub(crate) fn work(message: &Message) -> (usize, bool) {
        match &message.body {
            Body::Batch { calls, .. } => {
                let counters = calls.iter().map(|repeated| repeated.call.len());
                (counters.sum(), true)
            }
            Body::Connect | Body::Probe(_) => (0, false),
            Body::Heartbeat { .. } => (1, false),
        }
    }

    /// Carries a message out at a time of its own clock.
    pub(crate) fn execute(&mut self, message: &Message, now_us: u64, at: Instant) -> Reply {
        let body = match &message.body {
            Body::Connect => ReplyBody::Connected,
            Body::Probe(probing) => ReplyBody::Probed(*probing),
            Body::Heartbeat { process, sent_us } => ReplyBody::Counted {
                sent_us: *sent_us,
                processes: self.count(*process, now_us),
            },
            Body::Batch { number, calls } => ReplyBody::Batch {
                number: *number,
                results: calls.iter().map(|call| self.decide(call, now_us)).collect(),
            },
        };
        Reply {
            connection: message.connection,
            body,
            at,
        }
    }

    /// The number of processes that sent a heartbeat of late.
    fn count(&mut self, process: u64, now_us: u64) -> u32 {
        if let Some(seen_us) = self.processes.insert(process, now_us) {
            self.heartbeats.remove(&(seen_us, process));
        }
        self.heartbeats.insert((now_us, process));
        let expiry_us = u64::from(EXPIRY_MS) * 1_000;
        while let Some(&(seen_us, gone)) = self.heartbeats.first()
            && now_us.saturating_sub(seen_us) >= expiry_us
        {
            self.heartbeats.pop_first();
            self.processes.remove(&gone);
        }
        u32::try_from(self.processes.len()).unwrap_or(u32::MAX)
    }

    fn decide(&mut self, repeated: &RepeatedCall, now_us: u64) -> CallResult {
        let call = &*repeated.call;
        let found = match call.counters.as_slice() {
            [counter] => {
                let mut state = self.take(counter);
                let found = state.clone();
                for _ in 0..repeated.times {
                    apply(call.operation, counter, &mut state, now_us)?;
                }
                self.put(counter, state);
                [(found, now_us)].into_iter().collect()
            }
            counters => self.decide_all(repeated, counters, now_us)?,
        };
        Ok(ScriptReply::new(found))
    }

    fn decide_all(
        &mut self,
        repeated: &RepeatedCall,
        counters: &[Counter],
        now_us: u64,
    ) -> Result<SmallVec<[(State, u64); 1]>, StoreFailure> {
        let call: &ScriptCall = &repeated.call;
        let mut states: Vec<State> = counters.iter().map(|counter| self.take(counter)).collect();
        let found = states
            .iter()
            .cloned()
            .map(|state| (state, now_us))
            .collect();
        match call.operation {
            Operation::Verb(verb) => {
                for _ in 0..repeated.times {
                    let limits = counters.iter().zip(&mut states);
                    let mut limits: Vec<Entry<'_>> = limits
                        .map(|(counter, state)| Entry::new(&counter.quota, state, counter.cost))
                        .collect();
                    evaluate_all(&mut limits, verb, now_us);
                }
            }
            operation => {
                for (counter, state) in counters.iter().zip(&mut states) {
                    apply(operation, counter, state, now_us)?;
                }
            }
        }
        for (counter, state) in counters.iter().zip(states) {
            self.put(counter, state);
        }
        Ok(found)
    }

    fn take(&mut self, counter: &Counter) -> State {
        let state = self.states.get_mut(&*counter.key);
        state.map_or(State::New, std::mem::take)
    }

    fn put(&mut self, counter: &Counter, state: State) {
        match self.states.get_mut(&*counter.key) {
            Some(known) => *known = state,
            None if state == State::New => {}
            None => {
                self.states.insert(counter.key.as_slice().into(), state);
            }
        }
    }
}

fn apply(
    operation: Operation,
    counter: &Counter,
    state: &mut State,
    now_us: u64,
) -> Result<(), StoreFailure> {
    let Counter { quota, cost, .. } = counter;
    match operation {
        Operation::Verb(verb) => evaluate(quota, state, verb, *cost, now_us),
        Operation::RepeatedCheck { times } => {
            for _ in 1..times {
                evaluate(quota, state, Verb::Check, *cost, now_us);
            }
            evaluate(quota, state, Verb::Check, *cost, now_us)
        }
        Operation::Lease { divisor } => evaluate_lease(quota, state, *cost, divisor, now_us),
        Operation::Undo { taken_us } => undo(quota, state, taken_us, *cost, now_us),
        // Of shaping and concurrency limits, which are not simulated.
        Operation::RefundTail { .. } | Operation::Restore { .. } => {
            return Err(StoreFailure::Rejected("ERR"));
        }
    };
    Ok(())
}
