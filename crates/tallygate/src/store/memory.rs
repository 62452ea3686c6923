//! A store of counters in this process.

mod batch;
mod bucket;
mod callers;
mod inspect;
mod logs;
mod multi;
mod overflow;
mod part;
mod prefetch;
mod reservations;
mod slots;
mod table;
mod undo;

use std::future::{Future, ready};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::iter;

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use tallygate_core::{Caller, MAX_TIME_US, Room, StateSize, Verb, Verdict};

use self::bucket::{Bucket, Slots};
use self::multi::{CounterCost, CounterCosts};
use self::part::Part;
use self::table::{Id, Table};
use super::{Store, StoreError, TailRefund};
use crate::clock::{Clock, SystemClock};
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::{Limit, Partition};
use crate::request::{Request, RequestEntry};

const DEFAULT_CAPACITY: usize = 100_000;

/// Tells the hashes of reservations from those of members and owners.
const RESERVATIONS: u64 = 0x5e77_1e00_0000_0000;

/// A store of counters in this process: bounded, exact, and without pauses.
///
/// The memory for `capacity` live keys, about 39 bytes each, is allocated with the first limiter
/// over the store and never grows; the system provides it as keys arrive. A sliding window log
/// takes about 47 bytes, provided with the first limiter that has one; with more than two or three
/// entries, or large ones, about 40 more and 8 to 16 per entry, plus up to a quarter while it
/// grows. A key lives until it is as if never seen; its slot is then reused. Keys are stored as
/// hashes with a random seed.
///
/// With more live keys than the capacity, limits still hold: keys without a slot share one budget
/// with others of the same quota, and the decision [reports it](Decision::shared). Limits in
/// different [partitions](MemoryStoreBuilder::partitions) take no slots from each other and share
/// no budget: however many keys clients invent for one limit, new keys of another get their own
/// slots.
///
/// Members of shared limits, owners of concurrency limits and ids of reservations count as keys: a
/// partition has room for as many members and owners as for keys, and ids take slots of keys. Without
/// room, new members only borrow, new owners of a counter are refused, and an estimate is charged but
/// not remembered; the last two decisions [report it](Decision::shared) too.
///
/// A request with several limits is decided in one atomic step. Share a store between limiters with
/// an [`Arc`](std::sync::Arc).
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    seed: Seed,
    /// Not in the slice: most stores have no other, and need not load its address.
    common: Part,
    /// The partitions 1 and following.
    others: Box<[Part]>,
}

/// Settings for a [`MemoryStore`].
pub struct MemoryStoreBuilder<C = SystemClock> {
    capacity: usize,
    partitions: Vec<usize>,
    /// Lazy: TSC calibration is slow.
    clock: Box<dyn FnOnce() -> C + Send>,
}

impl MemoryStore {
    /// Creates a store for 100,000 live keys on the system clock.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            capacity: DEFAULT_CAPACITY,
            partitions: Vec::new(),
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
    /// Sets how many live keys have their own counters; at least 1. A key with two limits counts
    /// twice.
    #[must_use]
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys.max(1);
        self
    }

    /// Divides the capacity: sets how many live keys each of the partitions 1, 2, … holds, at
    /// least 1. The [common partition](Partition) has the rest of the capacity, and at least 1. If
    /// the partitions exceed the capacity, the store is larger accordingly.
    ///
    /// Limits choose their partition with [`Limit::partition`]. Only the first 65,535 sizes count.
    ///
    /// ```
    /// use tallygate::{MemoryStore, Partition};
    ///
    /// let builder = MemoryStore::builder().capacity(1_000);
    /// let store = builder.partitions([300, 200]).build();
    /// assert_eq!(store.partition_capacity(Partition::new(2)), 200);
    /// assert_eq!(store.partition_capacity(Partition::default()), 500);
    /// ```
    #[must_use]
    pub fn partitions(mut self, keys: impl IntoIterator<Item = usize>) -> Self {
        let keys = keys.into_iter().take(u16::MAX.into());
        self.partitions = keys.map(|keys| keys.max(1)).collect();
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock<D: Clock>(self, clock: D) -> MemoryStoreBuilder<D> {
        MemoryStoreBuilder {
            capacity: self.capacity,
            partitions: self.partitions,
            clock: Box::new(|| clock),
        }
    }

    /// Builds the store.
    pub fn build(self) -> MemoryStore<C> {
        let rest =
            (self.partitions.iter()).fold(self.capacity, |rest, keys| rest.saturating_sub(*keys));
        let others = (1..=u16::MAX).zip(self.partitions);
        MemoryStore {
            clock: (self.clock)(),
            seed: Seed::random(),
            common: Part::new(0, rest.max(1)),
            others: others.map(|(index, keys)| Part::new(index, keys)).collect(),
        }
    }
}

/// The seed of the hashes of keys.
struct Seed {
    shared: SharedSeed,
    own: u64,
}

impl Seed {
    /// Uses the random seed of the standard library's hash tables.
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

/// A limit and the identity of its counter.
#[derive(Clone, Copy)]
struct Counter<'a> {
    id: Id,
    limit: &'a Limit,
}

impl Counter<'_> {
    #[inline]
    fn size(&self) -> StateSize {
        self.limit.quota().algorithm().state_size()
    }
}

/// An operation on one counter.
#[derive(Clone, Copy)]
struct Operation<'a> {
    verb: Verb,
    cost: u32,
    now: u64,
    caller: &'a Caller,
}

impl<'a> Operation<'a> {
    #[inline]
    fn new(verb: Verb, cost: u32, now_us: u64, caller: &'a Caller) -> Self {
        Operation {
            verb,
            cost,
            // Expiry must use the same bound as the arithmetic.
            now: now_us.min(MAX_TIME_US),
            caller,
        }
    }
}

/// The verdict of one counter and its effective time.
#[derive(Clone, Copy)]
struct TimedVerdict {
    verdict: Verdict,
    effective_time_us: u64,
}

impl TimedVerdict {
    #[inline(always)]
    fn into_decision(self) -> Decision {
        Decision::from_verdict(self.verdict, self.effective_time_us)
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Decides one request.
    pub fn decide(&self, request: &Request<'_>) -> Decision {
        match request.entries() {
            [entry] if request.is_nameless() => self.decide_key(
                &entry.key,
                entry.limit,
                request.requested_verb(),
                entry.cost(),
            ),
            _ => self.decide_at(request, self.clock.now_us()),
        }
    }

    /// Decides one request at a supplied time, in microseconds since the Unix epoch.
    pub fn decide_at(&self, request: &Request<'_>, now_us: u64) -> Decision {
        let limits = request.entries().iter().map(|entry| {
            let counter = self.counter(&entry.key, entry.limit);
            self.counter_cost(request, entry, counter)
        });
        self.decide_limits(
            &limits.collect::<CounterCosts<'_>>(),
            request.requested_verb(),
            now_us,
        )
    }

    /// Decides over the counters of one request.
    fn decide_limits(&self, limits: &[CounterCost<'_>], verb: Verb, now_us: u64) -> Decision {
        if let [limit] = limits
            && limit.reservation.is_none()
        {
            let operation = Operation::new(verb, limit.cost, now_us, &limit.caller);
            return self.decide_counter(limit.counter, operation);
        }
        self.decide_locked(limits, verb, now_us.min(MAX_TIME_US))
    }

    // Inlined with all it calls, so that each verb of the limiter is compiled by itself: the shorter
    // a decision, the more of the next one overlaps with its cache misses.
    #[inline(always)]
    pub(crate) fn decide_key(
        &self,
        key: &Key<'_>,
        limit: &Limit,
        verb: Verb,
        cost: u32,
    ) -> Decision {
        let counter = self.counter(key, limit);
        match counter.size() {
            StateSize::Packed => self.decide_in(self.part(limit).packed(), counter, verb, cost),
            StateSize::Log => self.decide_log(counter, verb, cost),
            StateSize::Callers => self.decide_nameless(counter, verb, cost),
        }
    }

    #[inline(never)]
    fn decide_nameless(&self, counter: Counter<'_>, verb: Verb, cost: u32) -> Decision {
        let now = self.clock.now_us();
        self.decide_counter(counter, Operation::new(verb, cost, now, &Caller::NONE))
    }

    #[inline(never)]
    fn decide_log(&self, counter: Counter<'_>, verb: Verb, cost: u32) -> Decision {
        self.decide_in(self.part(counter.limit).logs(), counter, verb, cost)
    }

    #[inline(always)]
    fn decide_in<B: Bucket>(
        &self,
        table: &Table<B>,
        counter: Counter<'_>,
        verb: Verb,
        cost: u32,
    ) -> Decision {
        // Prefetched while the clock is read.
        let home = table.prefetch(counter.id);
        let operation = Operation::new(verb, cost, self.clock.now_us(), &Caller::NONE);
        self.decide_at_home(table, home, None, counter, operation)
    }

    fn decide_counter(&self, counter: Counter<'_>, operation: Operation<'_>) -> Decision {
        let part = self.part(counter.limit);
        match counter.size() {
            StateSize::Packed => {
                let packed = part.packed();
                self.decide_at_home(packed, packed.home(counter.id), None, counter, operation)
            }
            StateSize::Log => {
                let logs = part.logs();
                self.decide_at_home(logs, logs.home(counter.id), None, counter, operation)
            }
            StateSize::Callers => {
                let callers = part.callers();
                callers.make_room(operation.now);
                // A new hold needs a place, or a budget.
                if callers.is_full() && counter.limit.quota().algorithm().is_concurrent() {
                    return self.decide_single_locked(counter, operation);
                }
                self.decide_at_home(callers, callers.home(counter.id), None, counter, operation)
            }
        }
    }

    /// Decides on a counter in its home bucket, where it nearly always is.
    #[inline(always)]
    fn decide_at_home<B: Bucket>(
        &self,
        table: &Table<B>,
        home: &B,
        guess: Option<usize>,
        counter: Counter<'_>,
        operation: Operation<'_>,
    ) -> Decision {
        // By value: passed by address, the operation could not be compiled for its verb.
        let Operation {
            verb,
            cost,
            now,
            caller,
        } = operation;
        if matches!(verb, Verb::Refund | Verb::Reset)
            && self.part(counter.limit).overflow.any_live(now)
        {
            return self.decide_single_locked(counter, operation);
        }
        let tag = counter.id.tag();
        let mut slots = home.lock();
        match slots.find_from(guess, tag) {
            Some(at) => {
                let verdict = slots.evaluate(at, tag, counter.limit.quota(), operation);
                drop(slots);
                verdict.into_decision()
            }
            None => self.decide_away(table, slots, counter, (verb, cost), now, caller),
        }
    }

    /// Decides on a counter that is not in its home bucket, which is locked.
    #[inline(never)]
    fn decide_away<'t, B: Bucket>(
        &self,
        table: &'t Table<B>,
        home: B::Slots<'t>,
        counter: Counter<'_>,
        (verb, cost): (Verb, u32),
        now: u64,
        caller: &Caller,
    ) -> Decision {
        let operation = Operation {
            verb,
            cost,
            now,
            caller,
        };
        let overflow = &self.part(counter.limit).overflow;
        match table.evaluate_away(home, counter, operation, overflow) {
            Some(verdict) => verdict.into_decision(),
            None => self.decide_single_locked(counter, operation),
        }
    }

    #[cold]
    fn decide_single_locked(&self, counter: Counter<'_>, operation: Operation<'_>) -> Decision {
        let limit = CounterCost {
            counter,
            cost: operation.cost,
            caller: *operation.caller,
            reservation: None,
        };
        self.decide_locked(&[limit], operation.verb, operation.now)
    }

    /// Allocates the table for a limit's counters, as its first request would.
    pub fn prepare(&self, limit: &Limit) {
        let part = self.part(limit);
        match limit.quota().algorithm().state_size() {
            StateSize::Packed => {
                part.packed();
            }
            StateSize::Log => {
                part.logs();
            }
            StateSize::Callers => {
                part.callers();
            }
        }
    }

    /// Counts the live keys. A key with two limits counts twice. Slow: reads every slot.
    pub fn live_keys(&self) -> usize {
        let now = self.clock.now_us();
        self.parts().map(|part| part.live(now)).sum()
    }

    /// Counts the live keys of one partition. Slow: reads every slot.
    pub fn partition_live_keys(&self, partition: Partition) -> usize {
        self.part_of(partition).live(self.clock.now_us())
    }

    #[inline(always)]
    fn part(&self, limit: &Limit) -> &Part {
        self.part_of(limit.own_partition())
    }

    #[inline(always)]
    fn counter<'a>(&self, key: &Key<'_>, limit: &'a Limit) -> Counter<'a> {
        let id = Id::new(self.hash(key, limit.fingerprint()));
        Counter { id, limit }
    }

    /// The counter of an entry with what a request does to it.
    fn counter_cost<'a>(
        &self,
        request: &Request<'a>,
        entry: &RequestEntry<'a>,
        counter: Counter<'a>,
    ) -> CounterCost<'a> {
        let remembers = request.requested_verb().needs_id();
        let id = request
            .requested_id()
            .filter(|_| remembers && !entry.limit.quota().algorithm().is_concurrent());
        CounterCost {
            counter,
            cost: entry.cost(),
            caller: self.caller(request, entry, counter),
            reservation: id.map(|id| Id::new(self.hash(id, counter.id.tag() ^ RESERVATIONS))),
        }
    }

    /// Who asks, as far as the counter tells callers apart.
    fn caller<'r>(
        &self,
        request: &Request<'r>,
        entry: &RequestEntry<'r>,
        counter: Counter<'_>,
    ) -> Caller {
        let algorithm = entry.limit.quota().algorithm();
        let mut caller = Caller::NONE;
        if algorithm.is_shared()
            && let Some(member) = request.member_of(entry)
        {
            caller.member = self.name(&member.name, counter);
            caller.weight = member.weight;
            if member.pinned {
                caller.room = Room::Always;
            }
        }
        if algorithm.is_concurrent()
            && let Some(owner) = request.requested_owner()
        {
            caller.owner = self.name(owner, counter);
        }
        caller
    }

    /// The number of a member or an owner: different for each counter, because counters that share a
    /// budget share its members and holds. 0 for an empty name.
    fn name(&self, name: &Key<'_>, counter: Counter<'_>) -> u64 {
        match name.identity().0.is_empty() {
            true => 0,
            false => self.hash(name, counter.id.tag()),
        }
    }

    #[inline(always)]
    fn hash(&self, key: &Key<'_>, context: u64) -> u64 {
        let (bytes, parts) = key.identity();
        let mut hasher = self.seed.hasher();
        // Different keys differ in this input, as their length is hashed too.
        if let Some([low, high]) = key.words() {
            hasher.write_u64(low);
            hasher.write_u64(high);
        } else if bytes.len() <= 32 {
            // Two short writes take a third of the instructions of a long one.
            hasher.write(&bytes[..16]);
            hasher.write(&bytes[bytes.len() - 16..]);
        } else {
            hasher.write(bytes);
        }
        // The last step mixes all bits, so the fast variant of the hasher is enough.
        hasher.write_u64(context);
        hasher.write_u64((bytes.len() as u64) << 16 ^ parts);
        hasher.finish()
    }
}

impl<C> MemoryStore<C> {
    /// The number of live keys that have their own slots, in all partitions.
    pub fn capacity(&self) -> usize {
        self.parts()
            .map(Part::capacity)
            .fold(0, usize::saturating_add)
    }

    /// The number of live keys of one partition that have their own slots.
    pub fn partition_capacity(&self, partition: Partition) -> usize {
        self.part_of(partition).capacity()
    }

    /// The number of decisions made on shared budgets because a partition was full. A decision with
    /// shared budgets in two partitions counts twice.
    pub fn shared_decisions(&self) -> u64 {
        self.parts().map(|part| part.overflow.decisions()).sum()
    }

    /// The number of decisions made on the shared budgets of one partition.
    pub fn partition_shared_decisions(&self, partition: Partition) -> u64 {
        self.part_of(partition).overflow.decisions()
    }

    /// The partitions that were full at least once, so that some of their keys shared budgets.
    pub fn sharing_partitions(&self) -> impl Iterator<Item = Partition> {
        let sharing = self.parts().filter(|part| part.overflow.was_used());
        sharing.map(|part| Partition::new(part.index()))
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        iter::once(&self.common).chain(&self.others)
    }

    #[inline(always)]
    fn part_of(&self, partition: Partition) -> &Part {
        let index = usize::from(partition.index()).wrapping_sub(1);
        self.others.get(index).unwrap_or(&self.common)
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
    fn try_decide(&self, request: &Request<'_>) -> Option<Decision> {
        Some(MemoryStore::decide(self, request))
    }

    fn prepare(&self, limit: &Limit) {
        MemoryStore::prepare(self, limit);
    }

    fn submit(&self, request: &Request<'_>) {
        let _ = MemoryStore::decide(self, request);
    }

    fn undo(&self, request: &Request<'_>, decision: &Decision) {
        self.undo_at(request, decision, self.clock.now_us());
    }

    fn refund_tail(
        &self,
        request: &Request<'_>,
        ends_us: &[u64],
        done: impl FnOnce(TailRefund) + Send + 'static,
    ) {
        done(MemoryStore::refund_tail(self, request, ends_us));
    }
}

impl<C> std::fmt::Debug for MemoryStoreBuilder<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStoreBuilder")
            .field("capacity", &self.capacity)
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}

impl<C> std::fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore")
            .field("capacity", &self.capacity())
            .field("partitions", &self.others.len())
            .field("shared_decisions", &self.shared_decisions())
            .finish_non_exhaustive()
    }
}
