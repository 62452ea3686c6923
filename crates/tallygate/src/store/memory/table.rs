//! A fixed-size cuckoo hash table of counters, without sweeps or pauses.
//!
//! A counter is in one of two buckets: its home or its alternate. Each bucket has its own lock, and
//! a decision about a counter at home locks that bucket alone. The slot of an expired counter is
//! overwritten in place. When both buckets are full of live counters, one of those moves to its own
//! alternate bucket.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use smallvec::SmallVec;
use tallygate_core::{Quota, State};

use super::bucket::{Bucket, Buckets, Slots};
use super::overflow::Overflow;
use super::{Counter, Operation, TimedVerdict};

/// The load factor at capacity. Higher loads would need more than two buckets per counter.
const MAX_LOAD_PERCENT: usize = 82;
/// Extra slots for small tables, where the load varies more between buckets, and where a request
/// with many limits locks so many buckets that no counter could move.
const SPARE_SLOTS: usize = 256;
/// The maximum number of counters that move to free a slot.
const MAX_MOVES: usize = 3;
/// After a full search for a slot failed, searches are limited to one move for this long, or until
/// one of the counters in the way expires.
const CROWDED_INTERVAL_US: u64 = 1_000;

/// The hash of a counter: determines its buckets and is its tag there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(u64);

impl Id {
    /// Sets the lowest bit: the tag 0 means vacant.
    #[inline]
    pub(super) fn new(hash: u64) -> Self {
        Id(hash | 1)
    }

    #[inline]
    pub(super) fn tag(self) -> u64 {
        self.0
    }
}

pub(super) struct Table<B: Bucket> {
    /// The index of the partition that it belongs to.
    partition: u16,
    buckets: B::Buckets,
    crowded_until: AtomicU64,
    /// Whether any counter was ever put in its alternate bucket.
    any_displaced: AtomicBool,
}

impl<B: Bucket> Table<B> {
    /// Creates the table of a partition for `capacity` live counters.
    pub(super) fn new(partition: u16, capacity: usize) -> Self {
        let slots = (capacity / MAX_LOAD_PERCENT)
            .saturating_mul(100)
            .saturating_add(capacity % MAX_LOAD_PERCENT * 100 / MAX_LOAD_PERCENT)
            .saturating_add(SPARE_SLOTS);
        Table {
            partition,
            buckets: B::Buckets::vacant(slots.div_ceil(B::Slots::LEN)),
            crowded_until: AtomicU64::new(0),
            any_displaced: AtomicBool::new(false),
        }
    }

    #[inline]
    fn scale(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    /// A bucket by its number, modulo their count.
    pub(super) fn bucket(&self, number: usize) -> &B {
        self.buckets.get(number % self.buckets.len())
    }

    /// The first bucket to search.
    #[inline]
    pub(super) fn home(&self, id: Id) -> &B {
        self.buckets.get(self.home_index(id))
    }

    /// Prefetches the buckets that a counter may be in. Returns its home.
    #[inline]
    pub(super) fn prefetch(&self, id: Id) -> &B {
        let home = self.home(id);
        home.prefetch();
        if self.any_displaced.load(Relaxed) {
            self.alternate(id).prefetch();
        }
        home
    }

    /// Prefetches the first bucket to search.
    #[inline]
    pub(super) fn prefetch_home(&self, id: Id) {
        self.home(id).prefetch();
    }

    #[inline]
    fn alternate(&self, id: Id) -> &B {
        self.buckets
            .get(self.alternate_index(self.home_index(id), id.tag()))
    }

    /// Records at a counter's home that it is in its alternate bucket until it expires.
    fn set_displaced(&self, home: &mut B::Slots<'_>, until: u64) {
        // Written once, so that the cache line stays shared.
        if !self.any_displaced.load(Relaxed) {
            self.any_displaced.store(true, Relaxed);
        }
        home.set_displaced(until);
    }

    /// Guesses the slot of a counter at home. Prefetches its alternate bucket if it is not there.
    #[inline]
    pub(super) fn guess(&self, home: &B, id: Id) -> usize {
        home.guess(id.tag()).unwrap_or_else(|| {
            self.alternate(id).prefetch();
            0
        })
    }

    #[inline]
    fn home_index(&self, id: Id) -> usize {
        self.scale(id.0)
    }

    /// The other bucket of a counter that is in `bucket`. An involution for each tag.
    #[inline]
    fn alternate_index(&self, bucket: usize, tag: u64) -> usize {
        let sum = self.scale(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if sum >= bucket {
            sum - bucket
        } else {
            sum + self.buckets.len() - bucket
        }
    }

    /// Evaluates an operation on a single counter that is not at home. Returns `None` if the alternate
    /// bucket is contended or both are full. A new counter starts from its shared budget.
    pub(super) fn evaluate_away<'t>(
        &'t self,
        mut home_slots: B::Slots<'t>,
        counter: Counter<'_>,
        operation: Operation<'_>,
        overflow: &Overflow,
    ) -> Option<TimedVerdict> {
        let Counter { id, limit } = counter;
        let (tag, quota, now) = (id.tag(), limit.quota(), operation.now);
        let home = self.home_index(id);
        let initial = || overflow.initial_state(id, limit, now);
        let may_be_displaced = home_slots.displaced_until() > now;
        if !may_be_displaced && let Some(at) = home_slots.vacant_slot(now) {
            return Some(home_slots.evaluate_new(at, tag, quota, operation, initial()));
        }
        let alternate = self.alternate_index(home, tag);
        // Out-of-order locks use `try_lock` to avoid deadlocks.
        let mut slots = if alternate > home {
            self.buckets.get(alternate).lock()
        } else {
            self.buckets.get(alternate).try_lock()?
        };
        let (at, verdict) = if let Some(at) = slots.find(tag) {
            (at, slots.evaluate(at, tag, quota, operation))
        } else if let Some(at) = home_slots.vacant_slot(now) {
            return Some(home_slots.evaluate_new(at, tag, quota, operation, initial()));
        } else {
            let at = slots.vacant_slot(now)?;
            let verdict = slots.evaluate_new(at, tag, quota, operation, initial());
            (at, verdict)
        };
        self.set_displaced(&mut home_slots, slots.expires_at(at));
        Some(verdict)
    }

    /// Both buckets of a counter, its home first.
    pub(super) fn indices(&self, id: Id) -> [usize; 2] {
        let home = self.home_index(id);
        [home, self.alternate_index(home, id.tag())]
    }

    /// Frees a slot of a full bucket in at most `moves` moves of counters to their alternate buckets.
    fn free_slot<'t>(
        &'t self,
        bucket: usize,
        slots: &mut B::Slots<'t>,
        search: &mut Search,
        moves: usize,
    ) -> Option<usize> {
        if let Some(at) = slots.vacant_slot(search.now) {
            return Some(at);
        }
        for at in 0..B::Slots::LEN {
            if slots.is_claimed(at) {
                continue;
            }
            search.first_expiry = search.first_expiry.min(slots.expires_at(at));
            let to = self.alternate_index(bucket, slots.tag(at));
            // Not `lock`: its owner may be waiting for one of ours, or be this thread.
            let Some(mut target) = self.buckets.get(to).try_lock() else {
                continue;
            };
            // Reuses the slot of an expired copy: it would be found instead of this one.
            let expired = target.find(slots.tag(at));
            let vacant = match moves {
                0 | 1 => expired.or_else(|| target.vacant_slot(search.now)),
                2.. => expired.or_else(|| self.free_slot(to, &mut target, search, moves - 1)),
            };
            if let Some(vacant) = vacant {
                let until = slots.expires_at(at);
                self.set_displaced(slots, until);
                slots.move_to(at, &mut target, vacant);
                return Some(at);
            }
        }
        None
    }

    /// Counts the live counters. Reads every bucket.
    pub(super) fn live(&self, now: u64) -> usize {
        let buckets = (0..self.buckets.len()).map(|index| self.buckets.get(index));
        buckets.map(|bucket| bucket.live(now)).sum()
    }
}

/// A search for a slot.
struct Search {
    now: u64,
    /// When the first of the counters in the way expires.
    first_expiry: u64,
}

/// A counter of a table.
pub(super) struct Place<'t, B: Bucket> {
    pub(super) table: &'t Table<B>,
    pub(super) id: Id,
}

impl<B: Bucket> Clone for Place<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Bucket> Copy for Place<'_, B> {}

/// Locked buckets of the tables of one or more partitions.
pub(super) struct LockedBuckets<'t, B: Bucket> {
    buckets: SmallVec<[LockedBucket<'t, B>; 4]>,
}

struct LockedBucket<'t, B: Bucket> {
    partition: u16,
    index: usize,
    slots: B::Slots<'t>,
}

/// A slot that is reserved until its state is stored.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    pub(super) bucket: usize,
    pub(super) at: usize,
}

impl<'t, B: Bucket> LockedBuckets<'t, B> {
    /// Locks both buckets of each counter, in ascending order to avoid deadlocks: by partition,
    /// then by index.
    pub(super) fn lock(places: impl Iterator<Item = Place<'t, B>>) -> Self {
        let mut order: SmallVec<[(u16, usize, &'t B); 8]> = SmallVec::new();
        for Place { table, id } in places {
            let bucket = |index: usize| (table.partition, index, table.buckets.get(index));
            order.extend(table.indices(id).map(bucket));
        }
        order.sort_unstable_by_key(|&(partition, index, _)| (partition, index));
        order.dedup_by_key(|&mut (partition, index, _)| (partition, index));
        let lock = |(partition, index, bucket): (u16, usize, &'t B)| LockedBucket {
            partition,
            index,
            slots: bucket.lock(),
        };
        LockedBuckets {
            buckets: order.into_iter().map(lock).collect(),
        }
    }

    pub(super) fn slots(&mut self, table: &Table<B>, index: usize) -> &mut B::Slots<'t> {
        let is_it = |locked: &&mut LockedBucket<'t, B>| {
            locked.index == index && locked.partition == table.partition
        };
        let locked = self.buckets.iter_mut().find(is_it);
        &mut locked
            .expect("both buckets of every counter are locked")
            .slots
    }

    /// Claims the slot of an existing counter.
    pub(super) fn find(&mut self, place: Place<'t, B>, quota: &Quota) -> Option<(Claim, State)> {
        let Place { table, id } = place;
        for bucket in table.indices(id) {
            let slots = self.slots(table, bucket);
            if let Some(at) = slots.find(id.tag()) {
                let state = slots.claim(at, id.tag(), quota);
                return Some((Claim { bucket, at }, state));
            }
        }
        None
    }

    /// Claims a slot for a new counter, moving others if needed; `None` when the table is full.
    pub(super) fn claim_vacant(
        &mut self,
        place: Place<'t, B>,
        quota: &Quota,
        now: u64,
    ) -> Option<Claim> {
        let Place { table, id } = place;
        let indices = table.indices(id);
        let vacant = indices.into_iter().find_map(|bucket| {
            let at = self.slots(table, bucket).vacant_slot(now)?;
            Some((bucket, at))
        });
        let (bucket, at) = vacant.or_else(|| self.free_slot(table, indices, now))?;
        self.slots(table, bucket).claim(at, id.tag(), quota);
        Some(Claim { bucket, at })
    }

    /// Stores the state of a claimed slot.
    pub(super) fn store(&mut self, place: Place<'t, B>, claim: Claim, quota: &Quota, state: State) {
        self.store_with(place, claim, |slots, at, tag| {
            slots.store(at, tag, quota, state);
        });
    }

    /// Stores something in a claimed slot: in these slots, at that position, under that tag.
    #[inline]
    pub(super) fn store_with(
        &mut self,
        place: Place<'t, B>,
        claim: Claim,
        store: impl FnOnce(&mut B::Slots<'t>, usize, u64),
    ) {
        let Place { table, id } = place;
        let Claim { bucket, at } = claim;
        let slots = self.slots(table, bucket);
        store(slots, at, id.tag());
        let expires_at = slots.expires_at(at);
        let home = table.home_index(id);
        if bucket != home {
            table.set_displaced(self.slots(table, home), expires_at);
        }
    }

    /// Frees a slot of one of these buckets by moving counters.
    fn free_slot(
        &mut self,
        table: &'t Table<B>,
        indices: [usize; 2],
        now: u64,
    ) -> Option<(usize, usize)> {
        let crowded = now < table.crowded_until.load(Relaxed);
        let max_moves = if crowded { 1 } else { MAX_MOVES };
        let mut search = Search {
            now,
            first_expiry: u64::MAX,
        };
        for moves in 1..=max_moves {
            for bucket in indices {
                let slots = self.slots(table, bucket);
                if let Some(at) = table.free_slot(bucket, slots, &mut search, moves) {
                    return Some((bucket, at));
                }
            }
        }
        if !crowded {
            // Hundreds of buckets without a vacant slot: there are more live counters than the
            // capacity, and a full search for each new one would be slow.
            let until = search.first_expiry.min(now + CROWDED_INTERVAL_US);
            table.crowded_until.store(until, Relaxed);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::PackedBucket;
    use super::*;

    #[test]
    fn the_alternate_of_the_alternate_bucket_is_the_first() {
        let table: Table<PackedBucket> = Table::new(0, 1_000);
        for tag in 1..1_000 {
            for bucket in [0, 7, table.buckets.len() - 1] {
                let alternate = table.alternate_index(bucket, tag);
                assert!(alternate < table.buckets.len());
                assert_eq!(table.alternate_index(alternate, tag), bucket);
            }
        }
    }
}
