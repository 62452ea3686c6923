//! The refusal cache of a store: identifies counters, reads the clock, and drops what changes.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Instant;

use foldhash::quality::RandomState;
use smallvec::SmallVec;
use tallygate_core::lua::Operation;
use tallygate_core::{Verb, evaluate_found};

use super::command::{ScriptCall, ScriptReply};
use crate::decision::{Decision, TakenAt};
use crate::request::{Request, RequestEntry};
use crate::store::refusal_cache::{
    CachedCounter, RefusalCache, RefusalCacheSettings, RefusalCacheStats, Timing,
};

pub(super) struct CounterCache {
    refusals: RefusalCache,
    hasher: RandomState,
    started: Instant,
}

impl CounterCache {
    pub(super) fn new(settings: RefusalCacheSettings) -> Self {
        CounterCache {
            refusals: RefusalCache::new(settings),
            hasher: RandomState::default(),
            started: Instant::now(),
        }
    }

    pub(super) fn stats(&self) -> RefusalCacheStats {
        self.refusals.stats()
    }

    /// Identifies a counter: a hash with a random seed.
    pub(super) fn id(&self, entry: &RequestEntry<'_>) -> u64 {
        let counter = (&entry.key, entry.limit.fingerprint());
        self.hasher.hash_one(counter)
    }

    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Refuses a request without asking the store, if the store would refuse it.
    pub(super) fn try_refuse(&self, request: &Request<'_>) -> Option<Decision> {
        let verb = request.requested_verb();
        if !RefusalCache::applies_to(verb) {
            return None;
        }
        let counters = request.entries().iter().map(|entry| CachedCounter {
            id: self.id(entry),
            quota: entry.limit.quota(),
            cost: entry.cost(),
        });
        let mut found = self.refusals.refusal(counters, verb, self.now_us())?;
        self.refusals.count_hit();
        // A refusal took nothing.
        let taken_at = TakenAt::All(0);
        Some(Decision::new(evaluate_found(&mut found, verb), taken_at))
    }

    /// The same for a queued call.
    pub(super) fn try_reply(&self, call: &ScriptCall) -> Option<ScriptReply> {
        let verb = call.cached_verb?;
        let found = self.refusals.refusal(counters(call), verb, self.now_us())?;
        self.refusals.count_hit();
        let states = found.into_iter().map(|found| (found.state, found.now_us));
        Some(ScriptReply::new(states.collect()))
    }

    /// Remembers the counters of a call that the store refused.
    pub(super) fn on_reply(&self, call: &ScriptCall, reply: &ScriptReply, sent_us: u64) {
        let Some(verb) = call.cached_verb else {
            return;
        };
        self.refusals.count_miss();
        let mut found: SmallVec<[_; 1]> = call.found(reply.clone()).collect();
        if evaluate_found(&mut found, verb).verdict().allowed() {
            return;
        }
        let received_us = self.now_us();
        for (counter, (state, found_us)) in counters(call).zip(reply.states()) {
            let timing = Timing {
                sent_us,
                received_us,
                found_us: *found_us,
            };
            self.refusals.insert(counter, state.clone(), verb, timing);
        }
    }

    /// Forgets the counters of a call that returns units or resets: now and, because replies that
    /// are on their way may be outdated, when the guard is dropped.
    pub(super) fn invalidate(self: &Arc<Self>, call: &ScriptCall) -> Option<Invalidation> {
        let returns_units = match call.operation {
            Operation::Verb(verb) => match verb {
                Verb::Refund | Verb::Reset => true,
                Verb::Check | Verb::Peek | Verb::Take | Verb::Charge => false,
            },
            Operation::Undo { .. } => true,
        };
        returns_units.then(|| Invalidation::new(self, call))
    }

    /// Keeps the counters of a cross-slot call out of the cache until the guard is dropped: they
    /// hold units that may be returned.
    pub(super) fn begin_provisional(self: &Arc<Self>, call: &ScriptCall) -> Provisional {
        let ids: Vec<u64> = call.counters.iter().map(|counter| counter.id).collect();
        self.refusals.begin_provisional(&ids, self.now_us());
        let cache = Arc::clone(self);
        Provisional { cache, ids }
    }
}

fn counters(call: &ScriptCall) -> impl Iterator<Item = CachedCounter<'_>> {
    call.counters.iter().map(|counter| CachedCounter {
        id: counter.id,
        quota: &counter.quota,
        cost: counter.cost,
    })
}

/// Counters that are forgotten once more when this is dropped.
pub(super) struct Invalidation {
    cache: Arc<CounterCache>,
    ids: SmallVec<[u64; 4]>,
}

impl Invalidation {
    fn new(cache: &Arc<CounterCache>, call: &ScriptCall) -> Self {
        let invalidation = Invalidation {
            cache: Arc::clone(cache),
            ids: call.counters.iter().map(|counter| counter.id).collect(),
        };
        invalidation.apply();
        invalidation
    }

    fn apply(&self) {
        let now_us = self.cache.now_us();
        let ids = self.ids.iter();
        ids.for_each(|id| self.cache.refusals.invalidate(*id, now_us));
    }
}

impl Drop for Invalidation {
    fn drop(&mut self) {
        self.apply();
    }
}

/// Counters that are kept out of the cache until this is dropped.
pub(super) struct Provisional {
    cache: Arc<CounterCache>,
    ids: Vec<u64>,
}

impl Drop for Provisional {
    fn drop(&mut self) {
        let now_us = self.cache.now_us();
        self.cache.refusals.end_provisional(&self.ids, now_us);
    }
}
