//! A hash table of counters that never grows, never sweeps and never pauses. Knows slots and
//! their times; knows nothing of keys or verbs.
//!
//! A counter lives in one of two buckets, its home or its other one; a bucket has its own lock,
//! and a decision about a counter at home touches that bucket alone. A slot whose counter may be
//! forgotten is overwritten in place. When both buckets are full of live counters, one of them
//! moves over to its own other bucket.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tollgate_core::{Quota, State, Verdict};

use super::Ask;
use super::slots::Slots;

/// Of 100 slots, how many hold the capacity: the rest are what makes two buckets enough.
const FULL_PERCENT: usize = 85;
/// Small tables have some more, as luck varies more.
const SPARE_SLOTS: usize = 64;
/// How many counters may move to make room for one.
const MOST_MOVES: usize = 3;
/// After a thorough search for room found none, only a short one is made for this long.
const CROWDED_US: u64 = 1_000;

/// Which counter: where it belongs and how it is told apart there.
#[derive(Clone, Copy)]
pub(super) struct Id {
    pub(super) home: u64,
    pub(super) tag: u64,
}

pub(super) struct Table<S> {
    buckets: Box<[Bucket<S>]>,
    crowded_until: AtomicU64,
}

#[repr(align(64))]
struct Bucket<S>(Mutex<Row<S>>);

struct Row<S> {
    /// Until then, a counter whose home this is may live in its other bucket.
    strays_until: u64,
    slots: S,
}

impl<S: Slots> Row<S> {
    /// Moves a counter over to a vacancy in its other bucket.
    fn move_over(&mut self, at: usize, there: &mut Self, to: usize) {
        self.strays_until = self.strays_until.max(self.slots.forget_at(at));
        self.slots.move_to(at, &mut there.slots, to);
    }
}

impl<S: Slots> Table<S> {
    /// Makes a table that holds `capacity` live counters.
    pub(super) fn new(capacity: usize) -> Self {
        let slots = (capacity / FULL_PERCENT).saturating_mul(100)
            + capacity % FULL_PERCENT * 100 / FULL_PERCENT
            + SPARE_SLOTS;
        let bucket = || {
            Bucket(Mutex::new(Row {
                strays_until: 0,
                slots: S::default(),
            }))
        };
        Table {
            buckets: (0..slots.div_ceil(S::LEN)).map(|_| bucket()).collect(),
            crowded_until: AtomicU64::new(0),
        }
    }

    #[inline]
    fn scale(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    #[inline]
    fn home(&self, id: Id) -> usize {
        self.scale(id.home)
    }

    /// The other bucket of a counter that is in `bucket`; the other of the other is the one.
    #[inline]
    fn other(&self, bucket: usize, tag: u64) -> usize {
        let sum = self.scale(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if sum >= bucket {
            sum - bucket
        } else {
            sum + self.buckets.len() - bucket
        }
    }

    /// Starts to bring a counter's memory near. The answer means nothing.
    #[inline]
    pub(super) fn touch(&self, id: Id) -> bool {
        self.buckets[self.home(id)].0.is_locked()
    }

    /// Decides on a counter that is at home, or new with room for it there; none otherwise.
    /// `fresh` gives the state of a new one.
    #[inline]
    pub(super) fn at_home(
        &self,
        id: Id,
        quota: &Quota,
        ask: Ask,
        fresh: impl FnOnce() -> State,
    ) -> Option<Verdict> {
        let mut row = self.buckets[self.home(id)].0.lock();
        if let Some(at) = row.slots.find(id.tag) {
            return Some(row.slots.decide(at, id.tag, quota, ask));
        }
        if row.strays_until > ask.now {
            return None;
        }
        let at = row.slots.vacancy(ask.now)?;
        row.slots.store(at, id.tag, quota, fresh());
        Some(row.slots.decide(at, id.tag, quota, ask))
    }

    /// Locks both buckets of each counter, in the order that all callers follow.
    pub(super) fn hold(&self, ids: impl Iterator<Item = Id>) -> Held<'_, S> {
        let mut wanted: SmallVec<[usize; 8]> = SmallVec::new();
        for id in ids {
            let home = self.home(id);
            wanted.extend([home, self.other(home, id.tag)]);
        }
        wanted.sort_unstable();
        wanted.dedup();
        let lock = |at: usize| (at, self.buckets[at].0.lock());
        Held {
            table: self,
            rows: wanted.into_iter().map(lock).collect(),
        }
    }

    /// Clears a slot of a full bucket in at most that many moves, each counter to its other bucket.
    fn clear_slot(&self, bucket: usize, row: &mut Row<S>, now: u64, moves: usize) -> Option<usize> {
        for at in 0..S::LEN {
            if row.slots.is_claimed(at) {
                continue;
            }
            let to = self.other(bucket, row.slots.tag(at));
            // Not waited for: whoever holds it may be waiting for one of ours, or be ourselves.
            let Some(mut there) = self.buckets[to].0.try_lock() else {
                continue;
            };
            let vacancy = match moves {
                0 | 1 => there.slots.vacancy(now),
                2.. => self.clear_slot(to, &mut there, now, moves - 1),
            };
            if let Some(vacancy) = vacancy {
                row.move_over(at, &mut there, vacancy);
                return Some(at);
            }
        }
        None
    }

    /// Counts the live counters; looks at every bucket.
    pub(super) fn live(&self, now: u64) -> usize {
        let of = |bucket: &Bucket<S>| {
            let row = bucket.0.lock();
            let live = |&at: &usize| row.slots.forget_at(at) > now;
            (0..S::LEN).filter(live).count()
        };
        self.buckets.iter().map(of).sum()
    }
}

/// Buckets under lock, and what may be done with them.
pub(super) struct Held<'t, S> {
    table: &'t Table<S>,
    rows: SmallVec<[(usize, MutexGuard<'t, Row<S>>); 4]>,
}

/// A slot that is claimed until its state is stored.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    bucket: usize,
    at: usize,
    id: Id,
}

impl<'t, S: Slots> Held<'t, S> {
    fn row(&mut self, bucket: usize) -> &mut Row<S> {
        let held = self.rows.iter_mut().find(|(at, _)| *at == bucket);
        &mut held.expect("both buckets of every counter are held").1
    }

    fn buckets(&self, id: Id) -> [usize; 2] {
        let home = self.table.home(id);
        [home, self.table.other(home, id.tag)]
    }

    /// Claims the slot of a counter that is there.
    pub(super) fn find(&mut self, id: Id, quota: &Quota) -> Option<(Claim, State)> {
        for bucket in self.buckets(id) {
            let slots = &mut self.row(bucket).slots;
            if let Some(at) = slots.find(id.tag) {
                let state = slots.claim(at, id.tag, quota);
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
            let at = self.row(bucket).slots.vacancy(now)?;
            Some((bucket, at))
        });
        let (bucket, at) = vacant.or_else(|| self.make_room(buckets, now))?;
        self.row(bucket).slots.claim(at, id.tag, quota);
        Some(Claim { bucket, at, id })
    }

    /// Puts a claimed slot's state back.
    pub(super) fn store(&mut self, claim: Claim, quota: &Quota, state: State) {
        let Claim { bucket, at, id } = claim;
        let slots = &mut self.row(bucket).slots;
        slots.store(at, id.tag, quota, state);
        let forget_at = slots.forget_at(at);
        let home = self.table.home(id);
        if bucket != home {
            let home = self.row(home);
            home.strays_until = home.strays_until.max(forget_at);
        }
    }

    /// Moves some counter of these buckets over to its other bucket and gives its slot.
    fn make_room(&mut self, buckets: [usize; 2], now: u64) -> Option<(usize, usize)> {
        let table = self.table;
        let crowded = now < table.crowded_until.load(Relaxed);
        let most_moves = if crowded { 1 } else { MOST_MOVES };
        for moves in 1..=most_moves {
            for bucket in buckets {
                if let Some(at) = table.clear_slot(bucket, self.row(bucket), now, moves) {
                    return Some((bucket, at));
                }
            }
        }
        if !crowded {
            // Hundreds of buckets, and not a slot to be had: there are more live counters than
            // the capacity, and looking as hard for each one more would be slow.
            table.crowded_until.store(now + CROWDED_US, Relaxed);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::{Flat, Logs};
    use super::*;

    #[test]
    fn a_bucket_fills_its_cache_lines() {
        assert_eq!(size_of::<Bucket<Flat>>(), 128);
        assert_eq!(size_of::<Bucket<Logs>>(), 192);
    }

    #[test]
    fn the_other_of_the_other_bucket_is_the_first() {
        let table: Table<Flat> = Table::new(1_000);
        for tag in 1..1_000 {
            for bucket in [0, 7, table.buckets.len() - 1] {
                let other = table.other(bucket, tag);
                assert!(other < table.buckets.len());
                assert_eq!(table.other(other, tag), bucket);
            }
        }
    }
}
