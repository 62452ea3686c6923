//! The shaping queue: requests that were admitted with a delay and wait until it is over.
//!
//! Slots are sorted by their start, which the store has scheduled: the time of the decision by the
//! store's clock, plus the delay. Decisions overlap and may arrive in any order. Each request
//! sleeps until its own start, so that one that is not polled stops nobody.
//!
//! If a request is cancelled, the next one takes over its slot, the one after that takes over the
//! next slot, and so on. The slot that remains at the end is a *free slot*: later requests of this
//! process move up into it. Its units are refunded if the stored schedule still ends where this
//! process was told; then nobody else is scheduled behind it. A store outside this process cannot
//! compare and refund in one step. It is refunded nothing: its free slots pass on or expire.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tallygate_core::Verb;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::decision::Decision;
use crate::request::{Request, RequestEntry};
use crate::store::Store;

/// Nanoseconds of the store's clock, or of this process since [`Schedule::epoch`].
type Nanos = i128;

/// The resolution of the store's clock.
const MICROSECOND: Nanos = 1_000;
/// The resolution of timers: a slot is passed on until so long after its start.
const MILLISECOND: Nanos = 1_000_000;

/// The shaping queue of one [`Queue`](super::queue::Queue).
#[derive(Default)]
pub(super) struct ShapingQueue {
    schedule: Mutex<Schedule>,
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
    told: Told,
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

/// Where the stored schedules ended after the last decision, in microseconds of the store's clock.
#[derive(Default)]
struct Told {
    taken_us: u64,
    /// One for each limit that shapes.
    ends_us: SmallVec<[u64; 2]>,
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
            load.duration = load.duration.max(drain_time(entry, entry.cost()));
            load.unit_duration = load.unit_duration.min(drain_time(entry, 1));
        }
        load
    }
}

/// How long the schedule of a limit takes for some units.
fn drain_time(entry: &RequestEntry<'_>, units: u32) -> Nanos {
    let quota = entry.limit.quota();
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
    schedule: &'a Mutex<Schedule>,
    id: u64,
    moved: Arc<Notify>,
    store: &'a S,
    request: &'a Request<'r>,
}

impl ShapingQueue {
    /// Adds a slot that starts after the delay of a decision, which was requested at `sent` and has
    /// just arrived.
    pub(super) fn push<'a, 'r, S: Store>(
        &'a self,
        store: &'a S,
        request: &'a Request<'r>,
        decision: &Decision,
        sent: Instant,
    ) -> SlotGuard<'a, 'r, S> {
        let moved = Arc::new(Notify::new());
        let mut schedule = self.schedule.lock();
        let start = schedule.scheduled_start(decision, sent);
        if let Some(told) = Told::new(request, decision) {
            schedule.told.update(told);
        }
        let load = Load::new(request, decision.single_time_us().is_some());
        let id = schedule.push(load, start, Arc::clone(&moved));
        schedule.refund_tail(store, request);
        SlotGuard {
            schedule: &self.schedule,
            id,
            moved,
            store,
            request,
        }
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

impl Told {
    /// `None` if the decision has no time of the store.
    fn new(request: &Request<'_>, decision: &Decision) -> Option<Self> {
        let taken_us = decision.single_time_us()?;
        let verdicts = request.entries().iter().zip(decision.verdicts());
        let shaping = verdicts.filter(|(entry, _)| shapes(entry));
        let ends = shaping.map(|(_, verdict)| taken_us.saturating_add(verdict.reset_after_us));
        Some(Told {
            taken_us,
            ends_us: ends.collect(),
        })
    }

    /// Keeps the later decision of the two.
    fn update(&mut self, other: Told) {
        let at = |told: &Told| (told.taken_us, told.ends_us.iter().max().copied());
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
            told: Told::default(),
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
        // A request that moved up into the past would start too close to the next one.
        if start + MILLISECOND >= self.store_time(Instant::now()) {
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

    /// Refunds the free slots at the end of the stored schedule.
    fn refund_tail<S: Store>(&mut self, store: &S, request: &Request<'_>) {
        while let Some(free) = self.free.back() {
            let last = self.slots.back();
            let tolerance = free.load.unit_duration.max(2 * MICROSECOND);
            if last.is_some_and(|slot| slot.start > free.start)
                || (self.tail - free.end()).abs() >= tolerance
            {
                return;
            }
            let Some(told) = refund(store, request, &free.load.units, &self.told) else {
                return;
            };
            self.tail = free.start;
            self.told = told;
            self.free.pop_back();
        }
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

/// Refunds units if the stored schedules still end where they did after the last decision. Returns
/// where they end then; `None` if nothing was refunded.
///
/// Only limits that shape: windows and other buckets may have forgotten the request, and a refund
/// would admit more than their limit.
fn refund<S: Store>(store: &S, request: &Request<'_>, units: &[u32], told: &Told) -> Option<Told> {
    let entries: SmallVec<[_; 2]> = shaping_entries(request).zip(units).collect();
    if entries.is_empty() || entries.len() != told.ends_us.len() {
        return None;
    }
    // Nothing is refused with a cost of 0, so that a cache of refusals does not answer.
    let (first, rest) = entries.split_first()?;
    let all = |cost: fn(u32) -> u32| {
        let start = Request::new(&first.0.key, first.0.limit).cost(cost(*first.1));
        let all = rest.iter().try_fold(start, |request, (entry, units)| {
            request.and_cost(&entry.key, entry.limit, cost(**units))
        });
        all.ok()
    };
    let now = |request: Request<'_>| Told::new(&request, &store.try_decide(&request)?);
    if now(all(|_| 0)?.verb(Verb::Peek))?.ends_us != told.ends_us {
        return None;
    }
    let refunded = now(all(|units| units)?.verb(Verb::Refund))?;
    // Another thread may have been scheduled in between.
    let exact = entries.iter().enumerate().all(|(i, (entry, units))| {
        let end = |told: &Told| Nanos::from(told.ends_us[i]) * MICROSECOND;
        let moved = end(told) - end(&refunded);
        let empty = refunded.ends_us[i] == refunded.taken_us;
        empty || (moved - drain_time(entry, **units)).abs() <= 2 * MICROSECOND
    });
    if !exact {
        store.submit(&all(|units| units)?.verb(Verb::Charge));
        return None;
    }
    Some(refunded)
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

    fn with<T>(&self, read: impl FnOnce(&Schedule, &Slot) -> T) -> Option<T> {
        let schedule = self.schedule.lock();
        let slot = schedule.slots.get(schedule.position(self.id)?)?;
        Some(read(&schedule, slot))
    }
}

impl<S: Store> Drop for SlotGuard<'_, '_, S> {
    fn drop(&mut self) {
        let mut schedule = self.schedule.lock();
        // Does nothing once the slot has started.
        schedule.cancel(self.id);
        schedule.refund_tail(self.store, self.request);
    }
}
