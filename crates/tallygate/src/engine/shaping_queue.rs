//! The shaping queue: requests that were admitted with a delay and wait until it is over.
//!
//! Slots are sorted by their start, which the store has scheduled: the time of the decision by the
//! store's clock, plus the delay. Decisions overlap and may arrive in any order. Each request
//! sleeps until its own start, so that one that is not polled stops nobody.
//!
//! If a request is cancelled, the next one takes over its slot, the one after that takes over the
//! next slot, and so on. The slot that remains at the end is a *free slot*: later requests of this
//! process move up into it. If the stored schedule still ends with it, nobody else is scheduled
//! behind it, and its units are returned to the store, which compares and refunds in one step.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tallygate_core::Verdict;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::Limit;
use crate::request::{Request, RequestEntry};
use crate::store::{Store, TailRefund};

/// Nanoseconds of the store's clock, or of this process since [`Schedule::epoch`].
type Nanos = i128;

/// The resolution of the store's clock.
const MICROSECOND: Nanos = 1_000;
/// The resolution of timers: a slot is passed on until so long after its start.
const MILLISECOND: Nanos = 1_000_000;
/// The shortest unit whose slot is refunded: others that were scheduled behind it must move the end
/// by more than its rounding.
const MIN_REFUNDED_UNIT: Nanos = 3 * MICROSECOND;

/// The shaping queue of one [`Queue`](super::queue::Queue).
#[derive(Default)]
pub(super) struct ShapingQueue {
    schedule: Arc<Mutex<Schedule>>,
}

struct Schedule {
    epoch: Instant,
    /// `None` before the first decision.
    offset: Option<Offset>,
    /// Sorted by start.
    slots: VecDeque<Slot>,
    /// Slots without a request, sorted by start.
    free: VecDeque<FreeSlot>,
    next_id: u64,
    /// The end of the last slot, in time of the store.
    tail: Nanos,
    stored_ends: StoredEnds,
    /// Whether a refund is in flight: the next one needs its result.
    refunding: bool,
}

/// The bounds of the difference of this process's clock to the store's.
#[derive(Clone, Copy)]
struct Offset {
    min: Nanos,
    max: Nanos,
}

struct Slot {
    id: u64,
    /// In time of the store.
    start: Nanos,
    load: Load,
    /// Notified when the slot has moved up and is the next one.
    moved: Arc<Notify>,
}

struct FreeSlot {
    start: Nanos,
    load: Load,
}

/// Where the stored schedules end, as far as this process knows.
#[derive(Default)]
struct StoredEnds {
    /// The time of the last decision.
    taken_us: u64,
    /// One for each limit that shapes; empty if they are not known.
    ends: SmallVec<[Nanos; 2]>,
}

/// Free slots at the end of the stored schedules that are being refunded.
struct Tail {
    /// The last one first.
    slots: Vec<FreeSlot>,
    /// For each limit that shapes: the units of all slots, and the expected end.
    units: SmallVec<[u32; 2]>,
    ends_us: SmallVec<[u64; 2]>,
    /// The last decision before the refund.
    taken_us: u64,
}

/// How much of the schedule a request uses.
#[derive(Clone)]
struct Load {
    duration: Nanos,
    /// The cost for each limit that shapes. Empty if the store did not count the request.
    units: SmallVec<[u32; 2]>,
    /// Whether it is the same for every limit, so that slots can be exchanged.
    uniform: bool,
    /// The duration of one unit. A shorter gap contains no other request.
    unit_duration: Nanos,
}

impl Load {
    fn new(request: &Request<'_>, stored: bool) -> Self {
        let units: SmallVec<[u32; 2]> = shaping_entries(request).map(RequestEntry::cost).collect();
        let mut load = Load {
            duration: 0,
            uniform: units.windows(2).all(|pair| pair[0] == pair[1]),
            units: if stored { units } else { SmallVec::new() },
            unit_duration: Nanos::MAX,
        };
        for entry in delaying_entries(request) {
            load.duration = load.duration.max(drain_time(entry.limit, entry.cost()));
            load.unit_duration = load.unit_duration.min(drain_time(entry.limit, 1));
        }
        load
    }
}

/// How long the schedule of a limit takes for some units.
fn drain_time(limit: &Limit, units: u32) -> Nanos {
    let quota = limit.quota();
    let nanos = quota.period().as_nanos() * u128::from(units) / u128::from(quota.limit());
    Nanos::try_from(nanos).unwrap_or(Nanos::MAX)
}

/// The entries of a request that may delay it.
pub(super) fn delaying_entries<'r, 'a>(
    request: &'r Request<'a>,
) -> impl Iterator<Item = &'r RequestEntry<'a>> {
    shaping_entries(request).filter(|entry| entry.cost() > 0)
}

fn shaping_entries<'r, 'a>(request: &'r Request<'a>) -> impl Iterator<Item = &'r RequestEntry<'a>> {
    request.entries().iter().filter(|entry| shapes(entry))
}

pub(super) fn shapes(entry: &RequestEntry<'_>) -> bool {
    entry.limit.quota().algorithm().is_shaping()
}

/// A slot of the queue, which is given up if the guard is dropped before its start.
pub(super) struct SlotGuard<'a, 'r, S: Store> {
    schedule: &'a Arc<Mutex<Schedule>>,
    id: u64,
    moved: Arc<Notify>,
    shared: &'a Arc<Shared<S>>,
    request: &'a Request<'r>,
}

impl ShapingQueue {
    /// Adds a slot that starts after the delay of a decision, which was requested at `sent` and has
    /// just arrived.
    pub(super) fn push<'a, 'r, S: Store>(
        &'a self,
        shared: &'a Arc<Shared<S>>,
        request: &'a Request<'r>,
        decision: &Decision,
        sent: Instant,
    ) -> SlotGuard<'a, 'r, S> {
        let moved = Arc::new(Notify::new());
        let mut schedule = self.schedule.lock();
        let start = schedule.scheduled_start(decision, sent);
        if let Some(stored_ends) = StoredEnds::new(request, decision) {
            schedule.stored_ends.update(stored_ends);
        }
        let load = Load::new(request, decision.single_time_us().is_some());
        let id = schedule.push(load, start, Arc::clone(&moved));
        drop(schedule);
        let slot = SlotGuard {
            schedule: &self.schedule,
            id,
            moved,
            shared,
            request,
        };
        slot.refund_tail();
        slot
    }

    /// Whether a new request is likely to start after a deadline: the last one ends after it, and
    /// no free slot starts before it.
    pub(super) fn is_full_until(&self, deadline: Instant) -> bool {
        let schedule = self.schedule.lock();
        let now = schedule.store_time(Instant::now());
        let usable = |free: &FreeSlot| {
            free.start + MILLISECOND >= now && schedule.local_time(free.start) <= deadline
        };
        schedule.offset.is_some()
            && schedule.local_time(schedule.tail) > deadline
            && !schedule.free.iter().any(usable)
    }
}

impl StoredEnds {
    /// `None` if the decision has no time of the store.
    fn new(request: &Request<'_>, decision: &Decision) -> Option<Self> {
        let taken_us = decision.single_time_us()?;
        let verdicts = request.entries().iter().zip(decision.verdicts());
        let shaping = verdicts.filter(|(entry, _)| shapes(entry));
        let end_us = |verdict: &Verdict| taken_us.saturating_add(verdict.reset_after_us);
        let ends = shaping.map(|(_, verdict)| Nanos::from(end_us(verdict)) * MICROSECOND);
        Some(StoredEnds {
            taken_us,
            ends: ends.collect(),
        })
    }

    /// Keeps the later decision of the two.
    fn update(&mut self, other: StoredEnds) {
        let at = |stored_ends: &StoredEnds| {
            (stored_ends.taken_us, stored_ends.ends.iter().max().copied())
        };
        if at(&other) >= at(self) {
            *self = other;
        }
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Schedule {
            epoch: Instant::now(),
            offset: None,
            slots: VecDeque::new(),
            free: VecDeque::new(),
            next_id: 0,
            tail: 0,
            stored_ends: StoredEnds::default(),
            refunding: false,
        }
    }
}

impl Schedule {
    /// The start that the store has scheduled for a request, in its own time.
    fn scheduled_start(&mut self, decision: &Decision, sent: Instant) -> Nanos {
        let (sent, received) = (self.nanos(sent), self.nanos(Instant::now()));
        let taken = match decision.single_time_us() {
            Some(taken_us) => {
                let taken = Nanos::from(taken_us) * MICROSECOND;
                self.observe(sent, received, taken);
                taken
            }
            // Without a time of the store, the delay counts from the answer: never too early.
            None => received - self.offset.get_or_insert(Offset { min: 0, max: 0 }).max,
        };
        taken + nanos(decision.delay())
    }

    /// Narrows the difference of the clocks: the store decided between `sent` and `received`.
    fn observe(&mut self, sent: Nanos, received: Nanos, taken: Nanos) {
        let seen = Offset {
            // The store's time is rounded down to a microsecond.
            min: sent - taken - MICROSECOND,
            max: received - taken,
        };
        let known = *self.offset.get_or_insert(seen);
        let both = Offset {
            min: known.min.max(seen.min),
            max: known.max.min(seen.max),
        };
        if both.min <= both.max {
            self.offset = Some(both);
            return;
        }
        // A clock was set, or they have drifted apart: slots keep their starts in this process.
        let shift = known.max - seen.max;
        self.slots.iter_mut().for_each(|slot| slot.start += shift);
        self.free.iter_mut().for_each(|free| free.start += shift);
        self.tail += shift;
        self.offset = Some(seen);
    }

    /// Adds a slot, and moves it up into a free one before it.
    fn push(&mut self, load: Load, mut start: Nanos, moved: Arc<Notify>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let mut at = self.slots.partition_point(|slot| slot.start <= start);
        // Slots overlap after a reset, or if some were scheduled without the store.
        if let Some(before) = at.checked_sub(1).and_then(|before| self.slots.get(before))
            && before.end() > start + MICROSECOND
        {
            start = before.end();
        }
        while let Some(next) = self.slots.get(at)
            && start + load.duration > next.start + MICROSECOND
        {
            start = start.max(next.end());
            at += 1;
        }
        self.tail = self.tail.max(start + load.duration);
        let slot = Slot {
            id,
            start,
            load,
            moved,
        };
        let earliest = self.store_time(Instant::now()) - MILLISECOND;
        while self.free.front().is_some_and(|free| free.start < earliest) {
            self.free.pop_front();
        }
        let mut free = self.free.iter();
        let usable = free.position(|free| free.start < start && slot.fits(free));
        self.slots.insert(at, slot);
        if let Some(free) = usable.and_then(|usable| self.free.remove(usable)) {
            self.fill(at, free);
        }
        id
    }

    /// Removes the slot of a request that starts.
    fn pop(&mut self, at: usize) {
        self.slots.remove(at);
        self.wake_next();
    }

    /// Removes the slot of a request that was cancelled, and moves later ones up.
    fn cancel(&mut self, id: u64) {
        let Some(at) = self.position(id) else {
            return;
        };
        let Some(Slot { start, load, .. }) = self.slots.remove(at) else {
            return;
        };
        // A request that moved up into the past would start too close to the next one. The last slot
        // may still be refunded.
        let is_last = at == self.slots.len();
        if is_last || start + MILLISECOND >= self.store_time(Instant::now()) {
            self.fill(at, FreeSlot { start, load });
        }
        self.wake_next();
    }

    /// Moves the slots from `at` on up into a free slot before them. What remains is free.
    fn fill(&mut self, mut at: usize, mut free: FreeSlot) {
        while let Some(slot) = self.slots.get_mut(at) {
            if !slot.fits(&free) {
                // It stays, and so do all later ones.
                return;
            }
            let gap = slot.start - free.end();
            if gap < slot.load.unit_duration {
                // No other request in between: it moves up, and the free slot is now behind it.
                slot.start = free.start + gap.max(0);
                free.start = slot.end();
            } else {
                // Its slot is the free one for the next.
                let start = slot.start;
                slot.start = free.start;
                free = FreeSlot {
                    start,
                    load: slot.load.clone(),
                };
            }
            at += 1;
        }
        let at = self.free.partition_point(|other| other.start <= free.start);
        self.free.insert(at, free);
    }

    /// Removes the free slots at the end of the stored schedules, to be refunded. Assumes that they
    /// will be.
    fn take_tail(&mut self, counters: &Counters) -> Option<Tail> {
        let limits = counters.len();
        let mut tail = Tail {
            slots: Vec::new(),
            units: SmallVec::from_elem(0, limits),
            ends_us: SmallVec::new(),
            taken_us: self.stored_ends.taken_us,
        };
        while !self.refunding
            && self.stored_ends.ends.len() == limits
            && let Some(free) = self.free.back()
            && free.load.units.len() == limits
            && free.load.unit_duration >= MIN_REFUNDED_UNIT
            && self
                .slots
                .back()
                .is_none_or(|slot| slot.start <= free.start)
            && (self.tail - free.end()).abs() < free.load.unit_duration
        {
            let sums = tail.units.iter().zip(&free.load.units);
            let sums: Option<_> = sums.map(|(sum, units)| sum.checked_add(*units)).collect();
            let (Some(sums), Some(free)) = (sums, self.free.pop_back()) else {
                break;
            };
            tail.units = sums;
            self.tail = free.start;
            tail.slots.push(free);
        }
        if tail.slots.is_empty() {
            return None;
        }
        let ends = counters.iter().zip(&mut self.stored_ends.ends);
        for (((_, limit), end), units) in ends.zip(&tail.units) {
            let end_us = (*end + MICROSECOND - 1) / MICROSECOND;
            tail.ends_us.push(u64::try_from(end_us).unwrap_or(0));
            *end -= drain_time(limit, *units);
        }
        self.refunding = true;
        Some(tail)
    }

    /// Ends a refund.
    fn settle(&mut self, tail: Tail, refund: TailRefund) {
        self.refunding = false;
        if refund == TailRefund::Refunded {
            return;
        }
        if self.stored_ends.taken_us == tail.taken_us {
            // Until the next decision.
            self.stored_ends.ends.clear();
        }
        if refund == TailRefund::Unknown {
            // Never used twice: they may have been refunded.
            return;
        }
        let earliest = self.store_time(Instant::now()) - MILLISECOND;
        for free in tail.slots.into_iter().rev() {
            if free.start >= earliest {
                self.tail = self.tail.max(free.end());
                let at = self.slots.partition_point(|slot| slot.start <= free.start);
                self.fill(at, free);
            }
        }
        self.wake_next();
    }

    /// Wakes the first request that has not reached its start: it may have moved up.
    fn wake_next(&self) {
        let now = self.store_time(Instant::now());
        let next = self.slots.partition_point(|slot| slot.start <= now);
        // If the one before was not polled at its start, this does no harm.
        if let Some(slot) = self.slots.get(next) {
            slot.moved.notify_one();
        }
    }

    /// Slots start in order, so a request finds its own near the front.
    fn position(&self, id: u64) -> Option<usize> {
        self.slots.iter().position(|slot| slot.id == id)
    }

    fn nanos(&self, at: Instant) -> Nanos {
        match at.checked_duration_since(self.epoch) {
            Some(since) => nanos(since),
            None => -nanos(self.epoch.duration_since(at)),
        }
    }

    fn max_offset(&self) -> Nanos {
        self.offset.map_or(0, |offset| offset.max)
    }

    /// The earliest time of the store at an instant of this process.
    fn store_time(&self, at: Instant) -> Nanos {
        self.nanos(at) - self.max_offset()
    }

    /// The instant at which a time of the store has surely come.
    fn local_time(&self, at: Nanos) -> Instant {
        let since = u64::try_from((at + self.max_offset()).max(0)).unwrap_or(u64::MAX);
        let far = Duration::from_secs(100 * 365 * 86_400);
        self.epoch + Duration::from_nanos(since).min(far)
    }
}

impl Slot {
    fn end(&self) -> Nanos {
        self.start + self.load.duration
    }

    /// Whether it may move up into a free slot before it, or by its length.
    fn fits(&self, free: &FreeSlot) -> bool {
        let adjacent = self.start - free.end() < self.load.unit_duration;
        // If costs differ by limit, the limits disagree on how far it may move.
        self.load.uniform
            && free.load.uniform
            && (adjacent || self.load.duration <= free.load.duration)
    }
}

impl FreeSlot {
    fn end(&self) -> Nanos {
        self.start + self.load.duration
    }
}

fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// The counters of the limits that shape.
type Counters = Arc<[(Key<'static>, Limit)]>;

/// Returns the free slots at the end of the stored schedules to the store, one refund at a time.
///
/// Only limits that shape: windows and other buckets may have forgotten the request, and a refund
/// would admit more than their limit.
fn refund_tail<S: Store>(
    schedule: &Arc<Mutex<Schedule>>,
    shared: &Arc<Shared<S>>,
    counters: Counters,
) {
    let Some(tail) = schedule.lock().take_tail(&counters) else {
        return;
    };
    let refund = {
        let mut each = counters.iter().zip(&tail.units);
        let Some(((key, limit), units)) = each.next() else {
            return;
        };
        let start = Request::new(key.clone(), limit).cost(*units);
        each.try_fold(start, |request, ((key, limit), units)| {
            request.and_cost(key.clone(), limit, *units)
        })
    };
    let Ok(refund) = refund else {
        return;
    };
    let (ends_us, schedule) = (tail.ends_us.clone(), Arc::clone(schedule));
    let (shared_again, counters_again) = (Arc::clone(shared), Arc::clone(&counters));
    shared.store.refund_tail(&refund, &ends_us, move |refund| {
        schedule.lock().settle(tail, refund);
        // Others may have been cancelled meanwhile.
        refund_tail(&schedule, &shared_again, counters_again);
    });
}

impl<S: Store> SlotGuard<'_, '_, S> {
    /// The start of the slot as of now: others may still be cancelled before it.
    pub(super) fn start(&self) -> Instant {
        self.with(|schedule, slot| schedule.local_time(slot.start))
            .unwrap_or_else(Instant::now)
    }

    /// Waits for the start of the slot.
    pub(super) async fn wait(self) {
        loop {
            let start = {
                let mut schedule = self.schedule.lock();
                let Some(at) = schedule.position(self.id) else {
                    return;
                };
                let start = schedule.local_time(schedule.slots[at].start);
                if start <= Instant::now() {
                    schedule.pop(at);
                    return;
                }
                start
            };
            // Its own timer, in case the one before is not polled.
            let _ = timeout_at(start, self.moved.notified()).await;
        }
    }

    /// Returns free slots at the end of the schedule to the store.
    fn refund_tail(&self) {
        if self.schedule.lock().free.is_empty() {
            return;
        }
        let entries = shaping_entries(self.request);
        let counters = entries.map(|entry| (entry.key.clone().into_owned(), entry.limit.clone()));
        refund_tail(self.schedule, self.shared, counters.collect());
    }

    fn with<T>(&self, read: impl FnOnce(&Schedule, &Slot) -> T) -> Option<T> {
        let schedule = self.schedule.lock();
        let slot = schedule.slots.get(schedule.position(self.id)?)?;
        Some(read(&schedule, slot))
    }
}

impl<S: Store> Drop for SlotGuard<'_, '_, S> {
    fn drop(&mut self) {
        // Does nothing once the slot has started.
        self.schedule.lock().cancel(self.id);
        self.refund_tail();
    }
}
