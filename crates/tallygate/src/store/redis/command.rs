//! One request, or a part of it, as it travels: the names of its counters, what is asked of each,
//! and what came back. Knows no connection.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use smallvec::SmallVec;
use tallygate_core::lua::{self, Kinds, Operation};
use tallygate_core::{FoundState, Quota, State, Verb, evaluate_found};

use super::keys::{self, Names};
use crate::decision::{Decision, Taken};
use crate::request::Request;

/// What is asked of some counters in one atomic step.
#[derive(Debug)]
pub(super) struct Call {
    limits: SmallVec<[Limited; 1]>,
    kinds: Kinds,
    ask: Operation,
    /// When to decide, instead of at the server's own time.
    at_us: Option<u64>,
}

/// One counter of a call.
#[derive(Clone, Debug)]
pub(super) struct Limited {
    pub(super) name: Vec<u8>,
    pub(super) quota: Quota,
    pub(super) cost: u32,
    argument: Vec<u8>,
}

/// What a script answered to one call.
#[derive(Debug)]
pub(super) struct Answer {
    /// When it was decided, by the server's clock.
    now_us: u64,
    /// What was found, in the call's order.
    states: SmallVec<[State; 1]>,
}

impl Call {
    /// Puts a request into the form it travels in.
    pub(super) fn of(names: &Names, request: &Request<'_>, at_us: Option<u64>) -> Self {
        let asked = request.asked().iter();
        let limits = asked.map(|asked| {
            let name = names.counter(&asked.key, asked.limit);
            (name, *asked.limit.quota(), asked.units())
        });
        Self::new(limits, Operation::Verb(request.asks()), at_us)
    }

    pub(super) fn new(
        limits: impl ExactSizeIterator<Item = (Vec<u8>, Quota, u32)>,
        ask: Operation,
        at_us: Option<u64>,
    ) -> Self {
        let last = limits.len().saturating_sub(1);
        let mut kinds = Kinds::default();
        let limits = limits.enumerate().map(|(i, (name, quota, cost))| {
            let mut argument = Vec::with_capacity(48);
            lua::write_argument(&mut argument, &quota, ask, cost, i < last);
            kinds = kinds.union(Kinds::from_quota(&quota));
            Limited {
                name,
                quota,
                cost,
                argument,
            }
        });
        Call {
            limits: limits.collect(),
            kinds,
            ask,
            at_us,
        }
    }

    pub(super) fn limits(&self) -> &[Limited] {
        &self.limits
    }

    pub(super) fn ask(&self) -> Operation {
        self.ask
    }

    /// Whether its counters live in different slots of a cluster.
    pub(super) fn is_scattered(&self) -> bool {
        let mut slots = self.names().map(keys::slot);
        let first = slots.next();
        slots.any(|slot| Some(slot) != first)
    }

    /// The decision that a script came to.
    pub(super) fn decision(&self, verb: Verb, answer: Answer) -> Decision {
        let mut found: SmallVec<[FoundState<'_>; 1]> = self.found(answer).collect();
        let moments: SmallVec<[u64; 1]> = found.iter().map(FoundState::effective_time_us).collect();
        Decision::new(evaluate_found(&mut found, verb), self.taken(&moments))
    }

    /// When each of its counters was taken from.
    pub(super) fn taken(&self, moments: &[u64]) -> Taken {
        Taken::of(moments, |i| mark(&self.limits[i].name))
    }

    /// What a script found of each counter, to derive its decision from.
    pub(super) fn found(&self, answer: Answer) -> impl Iterator<Item = FoundState<'_>> {
        let now_us = answer.now_us;
        let each = self.limits.iter().zip(answer.states);
        each.map(move |(limit, state)| FoundState {
            quota: &limit.quota,
            state,
            cost: limit.cost,
            now_us,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.limits.len()
    }

    pub(super) fn kinds(&self) -> Kinds {
        self.kinds
    }

    pub(super) fn at_us(&self) -> Option<u64> {
        self.at_us
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.limits.iter().map(|limit| &*limit.name)
    }

    pub(super) fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        self.limits.iter().map(|limit| &*limit.argument)
    }

    /// Where in a cluster its counters live; they all share one slot.
    pub(super) fn slot(&self) -> u16 {
        self.names().next().map_or(0, keys::slot)
    }

    /// Reads this call's states off the front of a script's answer.
    pub(super) fn read(&self, now_us: u64, text: &mut &[u8]) -> Option<Answer> {
        let each = self.limits.iter();
        let states = each.map(|limit| lua::read_state(&limit.quota, text));
        let states = states.collect::<Option<_>>()?;
        Some(Answer { now_us, states })
    }
}

/// What a decision knows a counter by, without its name.
pub(super) fn mark(name: &[u8]) -> u64 {
    static KEYED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEYED.hash_one(name)
}

/// Reads when a script decided, and where its states begin.
pub(super) fn read_time(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut parts = text.splitn(3, |&byte| byte == b' ');
    let mut number = || str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
    let (seconds, micros) = (number()?, number()?);
    let now_us = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
    Some((now_us, parts.next()?))
}
