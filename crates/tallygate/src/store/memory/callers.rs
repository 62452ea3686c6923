//! Buckets of counters that tell callers apart, shares and concurrency limits: four slots, whose
//! states are on the heap.
//!
//! Members and owners count as keys: a table keeps as many of them as it has slots, beside the
//! counters themselves. A counter that finds no room keeps no new ones until others expire.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use tallygate_core::{Caller, Quota, Room, State, evaluate_by};

use super::bucket::{Bucket, Buckets, CLAIMED, Slots, find};
use super::prefetch::prefetch;
use super::table::Table;
use super::{Operation, TimedVerdict};

const LEN: usize = 4;

/// Buckets that are searched for expired counters when there is no room. A few: a decision must not
/// wait long.
const RECLAIMED_BUCKETS: usize = 16;

/// The members and owners of all counters of a table.
struct Places {
    used: AtomicUsize,
    max: usize,
    /// The bucket from which the next search for expired counters starts.
    cursor: AtomicUsize,
}

impl Places {
    fn is_full(&self) -> bool {
        self.used.load(Relaxed) >= self.max
    }

    /// Replaces the number of those of one counter.
    fn replace(&self, before: usize, after: usize) {
        if after > before {
            self.used.fetch_add(after - before, Relaxed);
        } else if after < before {
            self.used.fetch_sub(before - after, Relaxed);
        }
    }
}

#[repr(align(64))]
pub(super) struct CallersBucket {
    slots: Mutex<CallersSlots>,
    places: Arc<Places>,
}

#[derive(Default)]
struct CallersSlots {
    displaced_until: u64,
    slots: [CallersSlot; LEN],
}

#[derive(Default)]
struct CallersSlot {
    tag: u64,
    expires_at: u64,
    /// Its members or owners, as far as they are counted in [`Places`].
    callers: usize,
    state: State,
}

impl CallersSlot {
    #[inline]
    fn is_expired(&self, now: u64) -> bool {
        (1..=now).contains(&self.expires_at)
    }
}

/// The slots of a bucket under lock.
pub(super) struct LockedCallers<'a> {
    slots: MutexGuard<'a, CallersSlots>,
    places: &'a Places,
}

impl LockedCallers<'_> {
    fn set(&mut self, at: usize, slot: CallersSlot) {
        let before = mem::replace(&mut self.slots.slots[at], slot);
        let after = self.slots.slots[at].callers;
        self.places.replace(before.callers, after);
    }

    /// Counts what became of a slot's state.
    fn update(&mut self, at: usize, quota: &Quota) {
        let slot = &mut self.slots.slots[at];
        let before = slot.callers;
        slot.callers = slot.state.callers();
        slot.expires_at = slot.state.callers_expire_at_us(quota);
        if slot.state == State::New {
            slot.tag = 0;
        }
        let after = slot.callers;
        self.places.replace(before, after);
    }

    /// Vacates expired slots, but for that of one counter.
    fn drop_expired(&mut self, now: u64, tag: u64) {
        for at in 0..LEN {
            let slot = &self.slots.slots[at];
            if slot.is_expired(now) && slot.tag != tag {
                self.set(at, CallersSlot::default());
            }
        }
    }

    /// The caller, if there is no room for more of them.
    #[inline]
    fn bounded(&self, caller: &Caller) -> Caller {
        let room = match caller.room {
            Room::Bounded if self.places.is_full() => Room::Full,
            room => room,
        };
        Caller { room, ..*caller }
    }
}

impl Buckets<CallersBucket> for Box<[CallersBucket]> {
    fn vacant(len: usize) -> Self {
        let places = Arc::new(Places {
            used: AtomicUsize::new(0),
            max: len * LEN,
            cursor: AtomicUsize::new(0),
        });
        let bucket = || CallersBucket {
            slots: Mutex::default(),
            places: Arc::clone(&places),
        };
        (0..len).map(|_| bucket()).collect()
    }

    #[inline]
    fn len(&self) -> usize {
        <[CallersBucket]>::len(self)
    }

    #[inline]
    fn get(&self, index: usize) -> &CallersBucket {
        &self[index]
    }
}

impl Bucket for CallersBucket {
    type Slots<'a> = LockedCallers<'a>;
    type Buckets = Box<[CallersBucket]>;

    #[inline]
    fn lock(&self) -> LockedCallers<'_> {
        LockedCallers {
            slots: self.slots.lock(),
            places: &self.places,
        }
    }

    fn try_lock(&self) -> Option<LockedCallers<'_>> {
        Some(LockedCallers {
            slots: self.slots.try_lock()?,
            places: &self.places,
        })
    }

    #[inline]
    fn prefetch(&self) {
        prefetch(self, |bucket| bucket.slots.is_locked());
    }

    /// Counts counters and their callers.
    fn live(&self, now: u64) -> usize {
        let slots = self.slots.lock();
        let live = slots.slots.iter().filter(|slot| slot.expires_at > now);
        live.map(|slot| 1 + slot.callers).sum()
    }

    // The tags cannot be read without the lock.
    #[inline]
    fn guess(&self, _: u64) -> Option<usize> {
        Some(0)
    }
}

impl Slots for LockedCallers<'_> {
    const LEN: usize = LEN;

    #[inline]
    fn tag(&self, at: usize) -> u64 {
        self.slots.slots[at].tag
    }

    #[inline]
    fn expires_at(&self, at: usize) -> u64 {
        self.slots.slots[at].expires_at
    }

    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        find::<LEN>(|at| self.slots.slots[at].tag == tag)
    }

    fn evaluate(
        &mut self,
        at: usize,
        tag: u64,
        quota: &Quota,
        operation: Operation<'_>,
    ) -> TimedVerdict {
        let Operation {
            verb,
            cost,
            now,
            caller,
        } = operation;
        self.drop_expired(now, tag);
        let caller = self.bounded(caller);
        let state = &mut self.slots.slots[at].state;
        let effective_time_us = state.effective_time_us(quota, now);
        let verdict = evaluate_by(quota, state, &caller, verb, cost, now);
        self.update(at, quota);
        TimedVerdict {
            verdict,
            effective_time_us,
        }
    }

    fn evaluate_new(
        &mut self,
        at: usize,
        tag: u64,
        quota: &Quota,
        operation: Operation<'_>,
        state: State,
    ) -> TimedVerdict {
        self.store(at, tag, quota, state);
        self.slots.slots[at].tag = tag;
        self.evaluate(at, tag, quota, operation)
    }

    fn claim(&mut self, at: usize, tag: u64, _: &Quota) -> State {
        let slot = &mut self.slots.slots[at];
        let (state, callers) = match slot.tag == tag {
            true => (mem::take(&mut slot.state), slot.callers),
            false => (State::New, 0),
        };
        self.set(
            at,
            CallersSlot {
                tag,
                expires_at: CLAIMED,
                callers,
                state: State::New,
            },
        );
        state
    }

    fn store(&mut self, at: usize, tag: u64, quota: &Quota, state: State) {
        let slot = &mut self.slots.slots[at];
        slot.tag = tag;
        slot.state = state;
        self.update(at, quota);
    }

    fn move_to(&mut self, at: usize, target: &mut Self, to: usize) {
        // Counted where it goes.
        let slot = mem::take(&mut self.slots.slots[at]);
        self.places.replace(slot.callers, 0);
        target.set(to, slot);
    }

    fn displaced_until(&self) -> u64 {
        self.slots.displaced_until
    }

    fn set_displaced(&mut self, until: u64) {
        self.slots.displaced_until = self.slots.displaced_until.max(until);
    }
}

impl Table<CallersBucket> {
    /// Whether there is no room for more members and owners.
    pub(super) fn is_full(&self) -> bool {
        self.bucket(0).places.is_full()
    }

    /// Makes room if there is none, by dropping some of the expired counters.
    #[inline]
    pub(super) fn make_room(&self, now: u64) {
        let places = &self.bucket(0).places;
        if places.is_full() {
            self.reclaim(places, now);
        }
    }

    #[cold]
    fn reclaim(&self, places: &Places, now: u64) {
        let start = places.cursor.fetch_add(RECLAIMED_BUCKETS, Relaxed);
        for index in start..start.saturating_add(RECLAIMED_BUCKETS) {
            // Not `lock`: the decision that holds it makes room itself.
            if let Some(mut slots) = self.bucket(index).try_lock() {
                slots.drop_expired(now, 0);
            }
        }
    }
}
