//! Script calls: a request, or a part of one, as the command that is sent, and the reply to it.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock, OnceLock};

use redis::{Cmd, Script};
use smallvec::SmallVec;
use tallygate_core::lua::{self, Kinds, Operation};
use tallygate_core::{FoundState, Quota, State, Verb, evaluate_found};

use super::cache::CounterCache;
use super::keys::{self, Keyspace};
use crate::decision::{Decision, TakenAt};
use crate::request::Request;
use crate::store::refusal_cache::RefusalCache;

/// One atomic operation on some counters.
#[derive(Debug)]
pub(super) struct ScriptCall {
    pub(super) counters: SmallVec<[Counter; 1]>,
    pub(super) kinds: Kinds,
    pub(super) operation: Operation,
    /// The time to decide at, instead of the server's.
    pub(super) at_us: Option<u64>,
    /// The verb, if the refusal cache may answer the call.
    pub(super) cached_verb: Option<Verb>,
}

#[derive(Clone, Debug)]
pub(super) struct Counter {
    pub(super) key: Vec<u8>,
    pub(super) quota: Quota,
    pub(super) cost: u32,
    /// Identifies it in the refusal cache; 0 without one.
    pub(super) id: u64,
    argument: Vec<u8>,
}

impl Counter {
    pub(super) fn new(key: Vec<u8>, quota: Quota, cost: u32, id: u64) -> Self {
        Counter {
            key,
            quota,
            cost,
            id,
            argument: Vec::new(),
        }
    }

    pub(super) fn with_cost(&self, cost: u32) -> Self {
        Counter::new(self.key.clone(), self.quota, cost, self.id)
    }
}

/// The states before the decision, in the call's order, each with the time of the decision by the
/// server's clock.
#[derive(Clone, Debug)]
pub(super) struct ScriptReply {
    states: SmallVec<[(State, u64); 1]>,
}

impl ScriptReply {
    pub(super) fn new(states: SmallVec<[(State, u64); 1]>) -> Self {
        ScriptReply { states }
    }

    pub(super) fn states(&self) -> &[(State, u64)] {
        &self.states
    }
}

impl ScriptCall {
    pub(super) fn from_request(
        keyspace: &Keyspace,
        request: &Request<'_>,
        at_us: Option<u64>,
        cache: Option<&CounterCache>,
    ) -> Self {
        let verb = request.requested_verb();
        let counters = request.entries().iter().map(|entry| {
            let key = keyspace.counter_key(&entry.key, entry.limit);
            let id = cache.map_or(0, |cache| cache.id(entry));
            Counter::new(key, *entry.limit.quota(), entry.cost(), id)
        });
        let mut call = Self::new(counters, Operation::Verb(verb), at_us);
        if cache.is_some() && at_us.is_none() && RefusalCache::applies_to(verb) {
            call.cached_verb = Some(verb);
        }
        call
    }

    pub(super) fn new(
        counters: impl ExactSizeIterator<Item = Counter>,
        operation: Operation,
        at_us: Option<u64>,
    ) -> Self {
        let last = counters.len().saturating_sub(1);
        let mut kinds = Kinds::default();
        let counters = counters.enumerate().map(|(i, mut counter)| {
            let Counter { quota, cost, .. } = counter;
            counter.argument.reserve(48);
            lua::write_argument(&mut counter.argument, &quota, operation, cost, i < last);
            kinds = kinds.union(Kinds::from_quota(&quota));
            counter
        });
        ScriptCall {
            counters: counters.collect(),
            kinds,
            operation,
            at_us,
            cached_verb: None,
        }
    }

    /// The same operation on one of the counters, with another cost.
    pub(super) fn single(
        counter: &Counter,
        cost: u32,
        operation: Operation,
        at: Option<u64>,
    ) -> Self {
        let counter = counter.with_cost(cost);
        Self::new(std::iter::once(counter), operation, at)
    }

    pub(super) fn is_cross_slot(&self) -> bool {
        let mut slots = self.keys().map(keys::slot);
        let first = slots.next();
        slots.any(|slot| Some(slot) != first)
    }

    /// Derives the script's decision from the states it found.
    pub(super) fn decision(&self, verb: Verb, reply: ScriptReply) -> Decision {
        let mut found: SmallVec<[FoundState<'_>; 1]> = self.found(reply).collect();
        let times: SmallVec<[u64; 1]> = found.iter().map(FoundState::effective_time_us).collect();
        Decision::new(evaluate_found(&mut found, verb), self.taken_at(&times))
    }

    pub(super) fn taken_at(&self, times_us: &[u64]) -> TakenAt {
        TakenAt::new(times_us, |i| counter_id(&self.counters[i].key))
    }

    /// The same for the counters at some positions.
    pub(super) fn taken_at_positions(&self, positions: &[usize], times_us: &[u64]) -> TakenAt {
        TakenAt::new(times_us, |i| counter_id(&self.counters[positions[i]].key))
    }

    /// The counters as the script found them.
    pub(super) fn found(&self, reply: ScriptReply) -> impl Iterator<Item = FoundState<'_>> {
        let counters = self.counters.iter().zip(reply.states);
        counters.map(|(counter, (state, now_us))| FoundState {
            quota: &counter.quota,
            state,
            cost: counter.cost,
            now_us,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.counters.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.counters.iter().map(|counter| &*counter.key)
    }

    /// The slot of its first counter; all counters share it unless the call is cross-slot.
    pub(super) fn slot(&self) -> u16 {
        self.keys().next().map_or(0, keys::slot)
    }

    /// Parses this call's states from the front of a script's reply.
    fn parse(&self, now_us: u64, text: &mut &[u8]) -> Option<ScriptReply> {
        let counters = self.counters.iter();
        let states = counters.map(|counter| Some((lua::read_state(&counter.quota, text)?, now_us)));
        let states = states.collect::<Option<_>>()?;
        Some(ScriptReply { states })
    }
}

/// Identifies a counter in a decision, without revealing its key.
pub(super) fn counter_id(key: &[u8]) -> u64 {
    static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    HASHER.hash_one(key)
}

/// Parses the reply to calls that one script decided.
pub(super) fn parse_replies(calls: &[Arc<ScriptCall>], text: &[u8]) -> Option<Vec<ScriptReply>> {
    let mut parts = text.splitn(3, |&byte| byte == b' ');
    let mut number = || str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
    let (seconds, micros) = (number()?, number()?);
    let now_us = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
    let mut rest = parts.next()?;
    let replies = calls.iter().map(|call| call.parse(now_us, &mut rest));
    let replies = replies.collect::<Option<Vec<_>>>()?;
    rest.is_empty().then_some(replies)
}

/// The scripts: one for each combination of algorithms, built when first used.
#[derive(Default)]
pub(super) struct Scripts {
    built: [OnceLock<BuiltScript>; Kinds::COUNT],
}

struct BuiltScript {
    text: String,
    hash: String,
}

/// Whether a script is called by its hash (`EVALSHA`) or sent whole (`EVAL`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptRef {
    Hash,
    Text,
}

impl Scripts {
    fn get(&self, kinds: Kinds) -> &BuiltScript {
        self.built[kinds.index()].get_or_init(|| {
            let text = lua::script(kinds);
            let hash = Script::new(&text).get_hash().to_owned();
            BuiltScript { text, hash }
        })
    }

    /// Builds the command that decides these calls, all at the time of the first.
    pub(super) fn command(&self, script: ScriptRef, calls: &[Arc<ScriptCall>]) -> Cmd {
        let kinds = calls.iter().map(|call| call.kinds);
        let built = self.get(kinds.fold(Kinds::default(), Kinds::union));
        let keys: usize = calls.iter().map(|call| call.len()).sum();
        let mut command = Cmd::with_capacity(keys + 6, 128 * keys + 128);
        match script {
            ScriptRef::Hash => command.arg("EVALSHA").arg(&built.hash),
            ScriptRef::Text => command.arg("EVAL").arg(&built.text),
        };
        command.arg(keys);
        let counters = || calls.iter().flat_map(|call| &call.counters);
        for counter in counters() {
            command.arg(&counter.key);
        }
        let arguments = counters().map(|counter| &*counter.argument);
        command.arg(lua::join_arguments(arguments));
        if let Some(at) = calls.first().and_then(|call| call.at_us) {
            command.arg(at / 1_000_000).arg(at % 1_000_000);
        }
        command
    }
}
