//! A hash table of counters that never grows, never sweeps and never pauses. Knows where counters
//! belong and how long they live; knows nothing of keys or verbs.
//!
//! A counter lives in one of two buckets, its home or its other one; a bucket has its own lock,
//! and a decision about a counter at home touches that bucket alone. A slot whose counter may be
//! forgotten is overwritten in place. When both buckets are full of live counters, one of them
//! moves over to its own other bucket.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use smallvec::SmallVec;
use tallygate_core::{Quota, State};

use super::bucket::{Bucket, Slots};
use super::overflow::Shared;
use super::prefetch::large_pages;
use super::{Answer, Ask, Counter};

/// Of 100 slots, how many hold the capacity: the rest are what makes two buckets enough.
const FULL_PERCENT: usize = 82;
/// Small tables have some more: luck varies more there, and a request with many limits holds so
/// many of their buckets that nothing could move.
const SPARE_SLOTS: usize = 256;
/// How many counters may move to make room for one.
const MOST_MOVES: usize = 3;
/// After a thorough search for room found none, only a short one is made for this long, or until
/// one of those in the way may be forgotten.
const CROWDED_US: u64 = 1_000;

/// Which counter: a hash that says where it belongs and how it is told apart there.
// One number, so that it stays in a register from call to call.
#[derive(Clone, Copy)]
pub(super) struct Id(u64);

impl Id {
    /// No counter has a tag of 0, which is what a vacant slot has.
    #[inline]
    pub(super) fn new(hash: u64) -> Self {
        Id(hash | 1)
    }

    #[inline]
    pub(super) fn tag(self) -> u64 {
        self.0
    }
}

pub(super) struct Table<B> {
    buckets: Box<[B]>,
    crowded_until: AtomicU64,
    /// Whether any counter has ever been put elsewhere than at home.
    strayed: AtomicBool,
}

impl<B: Bucket> Table<B> {
    /// Makes a table that holds `capacity` live counters.
    pub(super) fn new(capacity: usize) -> Self {
        let slots = (capacity / FULL_PERCENT)
            .saturating_mul(100)
            .saturating_add(capacity % FULL_PERCENT * 100 / FULL_PERCENT)
            .saturating_add(SPARE_SLOTS);
        let count = slots.div_ceil(B::Slots::LEN);
        let mut buckets = Vec::with_capacity(count);
        large_pages(buckets.spare_capacity_mut());
        buckets.resize_with(count, B::default);
        Table {
            buckets: buckets.into(),
            crowded_until: AtomicU64::new(0),
            strayed: AtomicBool::new(false),
        }
    }

    #[inline]
    fn scale(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    /// Where a counter should be.
    #[inline]
    pub(super) fn home(&self, id: Id) -> &B {
        &self.buckets[self.home_number(id)]
    }

    /// Starts to bring the buckets near where a counter may be; gives the one where it should be.
    #[inline]
    pub(super) fn touch(&self, id: Id) -> &B {
        let home = self.home(id);
        home.touch();
        // With room for all, nobody is ever elsewhere.
        if self.strayed.load(Relaxed) {
            self.other(id).touch();
        }
        home
    }

    /// Where else it may be.
    #[inline]
    fn other(&self, id: Id) -> &B {
        &self.buckets[self.other_number(self.home_number(id), id.tag())]
    }

    /// Notes at a counter's home that it is elsewhere until then.
    fn stray(&self, home: &mut B::Slots<'_>, until: u64) {
        // Written once: whoever reads it would wait for its memory otherwise.
        if !self.strayed.load(Relaxed) {
            self.strayed.store(true, Relaxed);
        }
        home.stray(until);
    }

    /// Guesses where at home a counter is, which should be near by now. Starts to bring its other
    /// bucket near if it is not.
    #[inline]
    pub(super) fn guess(&self, home: &B, id: Id) -> usize {
        home.guess(id.tag()).unwrap_or_else(|| {
            self.other(id).touch();
            0
        })
    }

    #[inline]
    fn home_number(&self, id: Id) -> usize {
        self.scale(id.0)
    }

    /// The other bucket of a counter that is in `bucket`; the other of the other is the one.
    #[inline]
    fn other_number(&self, bucket: usize, tag: u64) -> usize {
        let sum = self.scale(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if sum >= bucket {
            sum - bucket
        } else {
            sum + self.buckets.len() - bucket
        }
    }

    /// Decides on a lone counter whose home is locked; none when others stand in its way. A new one
    /// starts from what it may have taken of a shared budget.
    #[inline]
    pub(super) fn decide<'t>(
        &'t self,
        mut slots: B::Slots<'t>,
        counter: Counter<'_>,
        ask: Ask,
        shared: &Shared,
    ) -> Option<Answer> {
        let Counter { id, limit } = counter;
        match slots.find(id.tag()) {
            Some(at) => Some(slots.decide(at, id.tag(), limit.quota(), ask)),
            None => self.decide_elsewhere(slots, counter, ask, shared),
        }
    }

    /// Decides on a lone counter that is not at home.
    fn decide_elsewhere<'t>(
        &'t self,
        mut slots: B::Slots<'t>,
        counter: Counter<'_>,
        ask: Ask,
        shared: &Shared,
    ) -> Option<Answer> {
        let Counter { id, limit } = counter;
        let home = self.home_number(id);
        let quota = limit.quota();
        let start = || shared.inherited(id, limit, ask.now);
        let may_be_away = slots.strays_until() > ask.now;
        if !may_be_away && let Some(at) = slots.vacancy(ask.now) {
            return Some(slots.decide_new(at, id.tag(), quota, ask, start()));
        }
        let other = self.other_number(home, id.tag());
        // Waited for only in the order that all callers follow.
        let mut there = if other > home {
            self.buckets[other].lock()
        } else {
            self.buckets[other].try_lock()?
        };
        let (at, answer) = if let Some(at) = there.find(id.tag()) {
            (at, there.decide(at, id.tag(), quota, ask))
        } else if let Some(at) = slots.vacancy(ask.now) {
            return Some(slots.decide_new(at, id.tag(), quota, ask, start()));
        } else {
            let at = there.vacancy(ask.now)?;
            (at, there.decide_new(at, id.tag(), quota, ask, start()))
        };
        self.stray(&mut slots, there.forget_at(at));
        Some(answer)
    }

    /// Locks both buckets of each counter, in the order that all callers follow.
    pub(super) fn hold(&self, ids: impl Iterator<Item = Id>) -> Held<'_, B> {
        let mut wanted: SmallVec<[usize; 8]> = SmallVec::new();
        for id in ids {
            let home = self.home_number(id);
            wanted.extend([home, self.other_number(home, id.tag())]);
        }
        wanted.sort_unstable();
        wanted.dedup();
        let lock = |at: usize| (at, self.buckets[at].lock());
        Held {
            table: self,
            held: wanted.into_iter().map(lock).collect(),
        }
    }

    /// Clears a slot of a full bucket in at most that many moves, each counter to its other bucket.
    fn clear_slot<'t>(
        &'t self,
        bucket: usize,
        slots: &mut B::Slots<'t>,
        search: &mut Search,
        moves: usize,
    ) -> Option<usize> {
        // What may be forgotten is overwritten, never moved.
        if let Some(at) = slots.vacancy(search.now) {
            return Some(at);
        }
        for at in 0..B::Slots::LEN {
            if slots.is_claimed(at) {
                continue;
            }
            search.soonest = search.soonest.min(slots.forget_at(at));
            let to = self.other_number(bucket, slots.tag(at));
            // Not waited for: whoever holds it may be waiting for one of ours, or be ourselves.
            let Some(mut there) = self.buckets[to].try_lock() else {
                continue;
            };
            // A copy of it that was forgotten there would be found before it.
            let stale = there.find(slots.tag(at));
            let vacancy = match moves {
                0 | 1 => stale.or_else(|| there.vacancy(search.now)),
                2.. => stale.or_else(|| self.clear_slot(to, &mut there, search, moves - 1)),
            };
            if let Some(vacancy) = vacancy {
                let until = slots.forget_at(at);
                self.stray(slots, until);
                slots.move_to(at, &mut there, vacancy);
                return Some(at);
            }
        }
        None
    }

    /// Counts the live counters; looks at every bucket.
    pub(super) fn live(&self, now: u64) -> usize {
        let of = |bucket: &B| {
            let slots = bucket.lock();
            let live = |&at: &usize| slots.forget_at(at) > now;
            (0..B::Slots::LEN).filter(live).count()
        };
        self.buckets.iter().map(of).sum()
    }
}

/// A search for room.
struct Search {
    now: u64,
    /// When the first of those in the way may be forgotten.
    soonest: u64,
}

/// Buckets under lock, and what may be done with them.
pub(super) struct Held<'t, B: Bucket> {
    table: &'t Table<B>,
    held: SmallVec<[(usize, B::Slots<'t>); 4]>,
}

/// A slot that is claimed until its state is stored.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    bucket: usize,
    at: usize,
    id: Id,
}

impl<'t, B: Bucket> Held<'t, B> {
    fn slots(&mut self, bucket: usize) -> &mut B::Slots<'t> {
        let held = self.held.iter_mut().find(|(at, _)| *at == bucket);
        &mut held.expect("both buckets of every counter are held").1
    }

    fn buckets(&self, id: Id) -> [usize; 2] {
        let home = self.table.home_number(id);
        [home, self.table.other_number(home, id.tag())]
    }

    /// Claims the slot of a counter that is there.
    pub(super) fn find(&mut self, id: Id, quota: &Quota) -> Option<(Claim, State)> {
        for bucket in self.buckets(id) {
            let slots = self.slots(bucket);
            if let Some(at) = slots.find(id.tag()) {
                let state = slots.claim(at, id.tag(), quota);
                return Some((Claim { bucket, at, id }, state));
            }
        }
        None
    }

    /// Claims a slot for a counter that is not there, moving another over if need be; none when
    /// there is no room.
    pub(super) fn place(&mut self, id: Id, quota: &Quota, now: u64) -> Option<Claim> {
        let buckets = self.buckets(id);
        let vacant = buckets.into_iter().find_map(|bucket| {
            let at = self.slots(bucket).vacancy(now)?;
            Some((bucket, at))
        });
        let (bucket, at) = vacant.or_else(|| self.make_room(buckets, now))?;
        self.slots(bucket).claim(at, id.tag(), quota);
        Some(Claim { bucket, at, id })
    }

    /// Puts a claimed slot's state back.
    pub(super) fn store(&mut self, claim: Claim, quota: &Quota, state: State) {
        let Claim { bucket, at, id } = claim;
        let slots = self.slots(bucket);
        slots.store(at, id.tag(), quota, state);
        let forget_at = slots.forget_at(at);
        let home = self.table.home_number(id);
        if bucket != home {
            let table = self.table;
            table.stray(self.slots(home), forget_at);
        }
    }

    /// Moves some counter of these buckets over to its other bucket and gives its slot.
    fn make_room(&mut self, buckets: [usize; 2], now: u64) -> Option<(usize, usize)> {
        let table = self.table;
        let crowded = now < table.crowded_until.load(Relaxed);
        let most_moves = if crowded { 1 } else { MOST_MOVES };
        let mut search = Search {
            now,
            soonest: u64::MAX,
        };
        for moves in 1..=most_moves {
            for bucket in buckets {
                let slots = self.slots(bucket);
                if let Some(at) = table.clear_slot(bucket, slots, &mut search, moves) {
                    return Some((bucket, at));
                }
            }
        }
        if !crowded {
            // Hundreds of buckets, and not a slot to be had: there are more live counters than
            // the capacity, and looking as hard for each one more would be slow.
            let until = search.soonest.min(now + CROWDED_US);
            table.crowded_until.store(until, Relaxed);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::FlatBucket;
    use super::*;

    #[test]
    fn the_other_of_the_other_bucket_is_the_first() {
        let table: Table<FlatBucket> = Table::new(1_000);
        for tag in 1..1_000 {
            for bucket in [0, 7, table.buckets.len() - 1] {
                let other = table.other_number(bucket, tag);
                assert!(other < table.buckets.len());
                assert_eq!(table.other_number(other, tag), bucket);
            }
        }
    }
}
