//! The refusal cache of a store: identifies counters, reads the clock, and drops what changes.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Instant;

use foldhash::quality::SeedableRandomState;
use smallvec::SmallVec;
use tallygate_core::lua::Operation;
use tallygate_core::{Verb, evaluate_found};

use super::command::{ScriptCall, ScriptReply};
use crate::decision::{Decision, TakenAt};
use crate::request::{Request, RequestEntry};
use crate::store::refusal_cache::{
    CachedCounter, RefusalCache, RefusalCacheSettings, RefusalCacheStats,
};
use crate::store::store_time::Timing;

/// When a batch was sent and its reply received, by the clock of the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheClock {
    pub(super) sent_us: u64,
    pub(super) received_us: u64,
}

pub(super) struct CounterCache {
    refusals: RefusalCache,
    hasher: SeedableRandomState,
    started: Instant,
}

impl CounterCache {
    pub(super) fn new(settings: RefusalCacheSettings, hasher: SeedableRandomState) -> Self {
        CounterCache {
            refusals: RefusalCache::new(settings),
            hasher,
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
    pub(super) fn try_refuse(&self, request: &Request<'_>, now_us: u64) -> Option<Decision> {
        let verb = request.requested_verb();
        let tells_callers_apart = |entry: &RequestEntry<'_>| {
            let algorithm = entry.limit.quota().algorithm();
            algorithm.is_shared() || algorithm.is_concurrent()
        };
        if !RefusalCache::applies_to(verb) || request.entries().iter().any(tells_callers_apart) {
            return None;
        }
        let counters = request.entries().iter().map(|entry| CachedCounter {
            id: self.id(entry),
            quota: entry.limit.quota(),
            cost: entry.cost(),
        });
        let mut found = self.refusals.refusal(counters, verb, now_us)?;
        self.refusals.count_hit();
        // A refusal took nothing.
        let taken_at = TakenAt::all(0);
        Some(Decision::new(evaluate_found(&mut found, verb), taken_at))
    }

    /// The same for a queued call.
    pub(super) fn try_reply(&self, call: &ScriptCall, now_us: u64) -> Option<ScriptReply> {
        let verb = call.cached_verb?;
        let found = self.refusals.refusal(counters(call), verb, now_us)?;
        self.refusals.count_hit();
        let states = found.into_iter().map(|found| (found.state, found.now_us));
        Some(ScriptReply::new(states.collect()))
    }

    /// Remembers the counters of a call that the store refused, and counts its callers.
    pub(super) fn on_reply(
        &self,
        call: &ScriptCall,
        callers: u16,
        reply: &ScriptReply,
        clock: CacheClock,
    ) {
        let Some(verb) = call.cached_verb else {
            return;
        };
        self.refusals.count_misses(callers.into());
        let mut found: SmallVec<[_; 1]> = call.found(reply.clone()).collect();
        if evaluate_found(&mut found, verb).verdict().allowed() {
            return;
        }
        for (counter, (state, found_us)) in counters(call).zip(reply.states()) {
            let timing = Timing {
                sent_us: clock.sent_us,
                received_us: clock.received_us,
                found_us: *found_us,
            };
            self.refusals.insert(counter, state.clone(), verb, timing);
        }
    }

    /// Forgets the counters of a call that returns units or resets: now and, because replies that
    /// are on their way may be outdated, when the guard is dropped.
    pub(super) fn invalidate(self: &Arc<Self>, call: &ScriptCall) -> Option<Invalidation> {
        Self::is_changed_by(call).then(|| Invalidation::new(self, call))
    }

    /// Whether a call returns units or resets.
    pub(super) fn is_changed_by(call: &ScriptCall) -> bool {
        match call.operation {
            Operation::Verb(verb) => match verb {
                Verb::Refund | Verb::Reset | Verb::Settle => true,
                Verb::Check
                | Verb::Peek
                | Verb::Take
                | Verb::Charge
                | Verb::Reserve
                | Verb::Renew
                | Verb::Release => false,
            },
            Operation::Undo { .. } | Operation::Restore { .. } | Operation::RefundTail { .. } => {
                true
            }
            Operation::RepeatedCheck { .. } | Operation::Lease { .. } => false,
        }
    }

    /// Keeps the counters of a cross-slot call out of the cache until the guard is dropped: they
    /// hold units that may be returned.
    pub(super) fn begin_provisional(self: &Arc<Self>, call: &ScriptCall) -> Provisional {
        let ids = counter_ids(call);
        self.begin_provisional_at(&ids, self.now_us());
        let cache = Arc::clone(self);
        Provisional { cache, ids }
    }

    pub(super) fn begin_provisional_at(&self, ids: &[u64], now_us: u64) {
        self.refusals.begin_provisional(ids, now_us);
    }

    pub(super) fn end_provisional_at(&self, ids: &[u64], now_us: u64) {
        self.refusals.end_provisional(ids, now_us);
    }

    /// Forgets counters that a call is about to change, or has changed.
    pub(super) fn invalidate_at(&self, ids: &[u64], now_us: u64) {
        let ids = ids.iter();
        ids.for_each(|id| self.refusals.invalidate(*id, now_us));
    }
}

/// What identifies the counters of a call in the cache.
pub(super) fn counter_ids(call: &ScriptCall) -> CounterIds {
    call.counters.iter().map(|counter| counter.id).collect()
}

pub(super) type CounterIds = SmallVec<[u64; 4]>;

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
    ids: CounterIds,
}

impl Invalidation {
    fn new(cache: &Arc<CounterCache>, call: &ScriptCall) -> Self {
        let invalidation = Invalidation {
            cache: Arc::clone(cache),
            ids: counter_ids(call),
        };
        invalidation.apply();
        invalidation
    }

    fn apply(&self) {
        self.cache.invalidate_at(&self.ids, self.cache.now_us());
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
    ids: CounterIds,
}

impl Drop for Provisional {
    fn drop(&mut self) {
        self.cache
            .end_provisional_at(&self.ids, self.cache.now_us());
    }
}
