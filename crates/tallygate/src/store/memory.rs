//! Counters in this process. Knows quotas and a clock; knows nothing of HTTP or Redis.

mod batch;
mod bucket;
mod inspect;
mod logs;
mod multi;
mod overflow;
mod prefetch;
mod slots;
mod table;
mod undo;

use std::future::{Future, ready};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, OnceLock};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use smallvec::SmallVec;
use tallygate_core::{MAX_TIME_US, Quota, Verb, Verdict};

use self::bucket::Bucket;
use self::logs::LogBucket;
use self::multi::Wanted;
use self::overflow::Shared;
use self::slots::FlatBucket;
use self::table::{Id, Table};
use super::{Store, StoreError};
use crate::clock::{Clock, SystemClock};
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::Limit;
use crate::request::Request;

/// How many live keys a store holds unless told otherwise.
const DEFAULT_CAPACITY: usize = 100_000;

/// Counters in this process: bounded, exact, and never pausing.
///
/// The memory for `capacity` live keys, about 39 bytes each, is taken when a limiter is made over
/// the store and never grows; a sliding window log takes about 47 bytes, and with more than
/// two or three instants, or large ones, about 30 more and 8 to 16 for each. A key lives until it is as if never seen,
/// and its place is then simply used again. Keys are kept as hashes under a random key of this
/// process.
///
/// With more live keys than the capacity nobody is admitted above their limit: those without a
/// place share one budget with others of the same quota, and the decision [says
/// so](Decision::shared).
///
/// A store decides a request with several limits in one atomic step. Share one between limiters
/// with an [`Arc`].
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    seed: Seed,
    capacity: usize,
    /// Counters of fixed size, and logs: each table is made when it is first asked for.
    flat: OnceLock<Table<FlatBucket>>,
    logs: OnceLock<Table<LogBucket>>,
    shared: Shared,
}

/// Settings for a [`MemoryStore`].
pub struct MemoryStoreBuilder<C = SystemClock> {
    capacity: usize,
    /// Not made before it is wanted: finding out how fast the processor counts takes a while.
    clock: Box<dyn FnOnce() -> C + Send>,
}

impl MemoryStore {
    /// Makes a store for 100,000 live keys on the system's clock.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Begins with the defaults.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            capacity: DEFAULT_CAPACITY,
            clock: Box::new(SystemClock::new),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> MemoryStoreBuilder<C> {
    /// Sets how many live keys have counters of their own; at least 1. A key with two limits
    /// counts twice.
    #[must_use]
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys.max(1);
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock<D: Clock>(self, clock: D) -> MemoryStoreBuilder<D> {
        MemoryStoreBuilder {
            capacity: self.capacity,
            clock: Box::new(|| clock),
        }
    }

    /// Makes the store.
    pub fn build(self) -> MemoryStore<C> {
        MemoryStore {
            clock: (self.clock)(),
            seed: Seed::random(),
            capacity: self.capacity,
            flat: OnceLock::new(),
            logs: OnceLock::new(),
            shared: Shared::new(self.capacity),
        }
    }
}

/// The key under which keys are hashed.
struct Seed {
    shared: SharedSeed,
    own: u64,
}

impl Seed {
    /// From the system's randomness, by way of the standard library's hash tables.
    fn random() -> Self {
        let random = || RandomState::new().hash_one(0);
        Seed {
            shared: SharedSeed::from_u64(random()),
            own: random(),
        }
    }

    #[inline]
    fn hasher(&self) -> FoldHasher<'_> {
        FoldHasher::with_seed(self.own, &self.shared)
    }
}

/// A limit, and which counter is asked.
#[derive(Clone, Copy)]
struct Counter<'a> {
    id: Id,
    limit: &'a Limit,
}

impl Counter<'_> {
    #[inline]
    fn logs(&self) -> bool {
        self.limit.quota().algorithm().is_log()
    }
}

/// What is asked of one of them.
#[derive(Clone, Copy)]
struct Ask {
    verb: Verb,
    cost: u32,
    now: u64,
}

impl Ask {
    #[inline]
    fn new(verb: Verb, cost: u32, now_us: u64) -> Self {
        Ask {
            verb,
            cost,
            // Later times count as the last one, for what is forgotten too.
            now: now_us.min(MAX_TIME_US),
        }
    }
}

/// What a counter answers, and as at which moment.
struct Answer {
    verdict: Verdict,
    effective_time_us: u64,
}

impl Answer {
    #[inline(always)]
    fn decision(self) -> Decision {
        Decision::one(self.verdict, self.effective_time_us)
    }
}

/// A counter's answer, where it could be had at once; the whole decision elsewhere.
type Asked = Result<Answer, Decision>;

#[inline(always)]
fn decision(asked: Asked) -> Decision {
    asked.map_or_else(|decision| decision, Answer::decision)
}

impl<C: Clock> MemoryStore<C> {
    /// Decides one request.
    pub fn decide(&self, request: &Request<'_>) -> Decision {
        match request.asked() {
            [asked] => self.decide_one(&asked.key, asked.limit, request.asks(), asked.units()),
            _ => self.decide_at(request, self.clock.now_us()),
        }
    }

    /// Decides one request at a supplied time, in microseconds since the Unix epoch.
    pub fn decide_at(&self, request: &Request<'_>, now_us: u64) -> Decision {
        if let [asked] = request.asked() {
            let ask = Ask::new(request.asks(), asked.units(), now_us);
            return self.one(self.counter(&asked.key, asked.limit), ask);
        }
        let asked = request.asked().iter();
        let wanted: SmallVec<[Wanted<'_>; 4]> = asked
            .map(|asked| Wanted {
                counter: self.counter(&asked.key, asked.limit),
                cost: asked.units(),
            })
            .collect();
        self.together(&wanted, request.asks(), now_us.min(MAX_TIME_US))
    }

    /// Decides one key against one limit.
    #[inline(always)]
    pub(crate) fn decide_one(
        &self,
        key: &Key<'_>,
        limit: &Limit,
        verb: Verb,
        cost: u32,
    ) -> Decision {
        decision(self.ask_one(key, limit, verb, cost))
    }

    // Inlined with all it calls, so that each verb of the limiter is compiled for itself: the
    // shorter a decision, the more of the next one is begun while its memory is waited for.
    #[inline(always)]
    fn ask_one(&self, key: &Key<'_>, limit: &Limit, verb: Verb, cost: u32) -> Asked {
        let counter = self.counter(key, limit);
        if counter.logs() {
            return Err(self.log_now(counter, verb, cost));
        }
        self.now(self.flat(), counter, verb, cost)
    }

    // Apart from what is wanted more often, which it would make longer.
    #[inline(never)]
    fn log_now(&self, counter: Counter<'_>, verb: Verb, cost: u32) -> Decision {
        decision(self.now(self.logs(), counter, verb, cost))
    }

    /// Asks a counter of a table.
    #[inline(always)]
    fn now<B: Bucket>(
        &self,
        table: &Table<B>,
        counter: Counter<'_>,
        verb: Verb,
        cost: u32,
    ) -> Asked {
        // Its memory comes while the clock is read, from wherever it may be.
        let home = table.touch(counter.id);
        let now = self.clock.now_us();
        self.at(table, home, counter, Ask::new(verb, cost, now))
    }

    /// Makes the table that a quota's counters go to, which the first of them would do otherwise.
    pub fn prepare(&self, quota: &Quota) {
        if quota.algorithm().is_log() {
            self.logs();
        } else {
            self.flat();
        }
    }

    /// How many live keys there are; looks at every place, so it takes a while. A key with two
    /// limits counts twice.
    pub fn live_keys(&self) -> usize {
        let now = self.clock.now_us();
        let flat = self.flat.get().map_or(0, |flat| flat.live(now));
        flat + self.logs.get().map_or(0, |logs| logs.live(now))
    }

    /// How many live keys have places of their own.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many decisions were made on shared budgets, for want of room.
    pub fn shared_decisions(&self) -> u64 {
        self.shared.decisions()
    }

    #[inline]
    fn flat(&self) -> &Table<FlatBucket> {
        self.flat.get_or_init(|| Table::new(self.capacity))
    }

    #[inline]
    fn logs(&self) -> &Table<LogBucket> {
        self.logs.get_or_init(|| Table::new(self.capacity))
    }

    #[inline(always)]
    fn counter<'a>(&self, key: &Key<'_>, limit: &'a Limit) -> Counter<'a> {
        let (bytes, parts) = key.identity();
        let mut hasher = self.seed.hasher();
        // No two keys are alike in this, as their length is hashed too.
        if let Some([low, high]) = key.words() {
            hasher.write_u64(low);
            hasher.write_u64(high);
        } else if bytes.len() <= 32 {
            // The usual length: twice the hasher's short way takes a third of its long one.
            hasher.write(&bytes[..16]);
            hasher.write(&bytes[bytes.len() - 16..]);
        } else {
            hasher.write(bytes);
        }
        // The last step mixes every bit with every other, so that the fast variant will do.
        hasher.write_u64(limit.fingerprint());
        hasher.write_u64((bytes.len() as u64) << 16 ^ parts);
        let id = Id::new(hasher.finish());
        Counter { id, limit }
    }

    fn one(&self, counter: Counter<'_>, ask: Ask) -> Decision {
        decision(if counter.logs() {
            let logs = self.logs();
            self.at(logs, logs.home(counter.id), counter, ask)
        } else {
            let flat = self.flat();
            self.at(flat, flat.home(counter.id), counter, ask)
        })
    }

    /// Asks a counter, given where it should be.
    // What is asked is handed on in pieces: by address, it would have to be in memory for every
    // decision, and could not be compiled for its verb.
    #[inline(always)]
    fn at<B: Bucket>(&self, table: &Table<B>, home: &B, counter: Counter<'_>, ask: Ask) -> Asked {
        let Ask { verb, cost, now } = ask;
        if matches!(verb, Verb::Refund | Verb::Reset) && self.shared.any_live(now) {
            return Err(self.alone(counter, verb, cost, now));
        }
        home.decide_at_once(None, counter, ask)
            .map_err(|home| self.otherwise(table, home, counter, verb, cost, now))
    }

    /// Decides on a counter that could not be decided on at once, where its home is locked.
    #[inline(never)]
    fn otherwise<'t, B: Bucket>(
        &self,
        table: &'t Table<B>,
        home: B::Slots<'t>,
        counter: Counter<'_>,
        verb: Verb,
        cost: u32,
        now: u64,
    ) -> Decision {
        let ask = Ask { verb, cost, now };
        match table.decide(home, counter, ask, &self.shared) {
            Some(answer) => answer.decision(),
            None => self.alone(counter, verb, cost, now),
        }
    }

    /// Decides in the general way.
    #[cold]
    fn alone(&self, counter: Counter<'_>, verb: Verb, cost: u32, now: u64) -> Decision {
        self.together(&[Wanted { counter, cost }], verb, now)
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    fn decide(
        &self,
        request: &Request<'_>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        ready(Ok(MemoryStore::decide(self, request)))
    }

    #[inline]
    fn decide_at_once(&self, request: &Request<'_>) -> Option<Decision> {
        Some(MemoryStore::decide(self, request))
    }

    fn prepare(&self, limit: &Limit) {
        MemoryStore::prepare(self, limit.quota());
    }

    fn carry_out(self: &Arc<Self>, request: &Request<'_>) {
        let _ = MemoryStore::decide(self, request);
    }

    fn undo(self: &Arc<Self>, request: &Request<'_>, decision: &Decision) {
        self.undo_at(request, decision, self.clock.now_us());
    }
}

impl<C> std::fmt::Debug for MemoryStoreBuilder<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStoreBuilder")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl<C> std::fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore")
            .field("capacity", &self.capacity)
            .field("shared_decisions", &self.shared.decisions())
            .finish_non_exhaustive()
    }
}
