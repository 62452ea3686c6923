//! The shaping queue: requests that were admitted with a delay and wait until it is over.
//!
//! Only the first request sleeps; when its delay is over it wakes the next one. If a request is
//! cancelled, the next one takes over its slot, the one after that takes over the next slot, and so
//! on. The units of the slot that remains at the end are refunded to the store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tallygate_core::Verb;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::decision::Decision;
use crate::request::{Request, RequestEntry};
use crate::store::Store;

/// The shaping queue of one [`Queue`](super::queue::Queue).
#[derive(Default)]
pub(super) struct ShapingQueue {
    schedule: Mutex<Schedule>,
}

/// Slots store the time to the slot before, so that all later slots move when one is removed.
#[derive(Default)]
struct Schedule {
    slots: VecDeque<Slot>,
    next_id: u64,
    /// When the first slot starts.
    first_start: Option<Instant>,
    /// When the last slot ends.
    end: Option<Instant>,
}

struct Slot {
    id: u64,
    /// The time since the end of the slot before: requests of other processes run in it.
    gap: Duration,
    load: Load,
    /// Notified when the slot is the first.
    first: Arc<Notify>,
}

/// How much of the schedule a request uses.
#[derive(Clone)]
struct Load {
    duration: Duration,
    /// The cost for each limit that shapes.
    units: SmallVec<[u32; 2]>,
    /// The duration of one unit. A shorter gap contains no other request.
    unit_duration: Duration,
}

impl Load {
    fn new(request: &Request<'_>) -> Self {
        let mut load = Load {
            duration: Duration::ZERO,
            units: shaping_entries(request).map(RequestEntry::cost).collect(),
            unit_duration: Duration::MAX,
        };
        for entry in delaying_entries(request) {
            let quota = entry.limit.quota();
            let duration = |units: u32| {
                let limit = u128::from(quota.limit());
                let nanos = quota.period().as_nanos() * u128::from(units) / limit;
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            };
            load.duration = load.duration.max(duration(entry.cost()));
            load.unit_duration = load.unit_duration.min(duration(1));
        }
        load
    }

    /// Whether it is the same for every limit, so that slots can be exchanged.
    fn is_uniform(&self) -> bool {
        self.units.windows(2).all(|pair| pair[0] == pair[1])
    }
}

/// The entries of a request that may delay it.
pub(super) fn delaying_entries<'r, 'a>(
    request: &'r Request<'a>,
) -> impl Iterator<Item = &'r RequestEntry<'a>> {
    shaping_entries(request).filter(|entry| entry.cost() > 0)
}

fn shaping_entries<'r, 'a>(request: &'r Request<'a>) -> impl Iterator<Item = &'r RequestEntry<'a>> {
    let shapes = |entry: &&RequestEntry<'_>| entry.limit.quota().algorithm().is_shaping();
    request.entries().iter().filter(shapes)
}

/// A slot of the queue, which is given up if the guard is dropped before its start.
pub(super) struct SlotGuard<'a, 'r, S: Store> {
    schedule: &'a Mutex<Schedule>,
    id: u64,
    /// The latest start.
    start: Instant,
    first: Arc<Notify>,
    store: &'a S,
    request: &'a Request<'r>,
    /// Whether the store counted the request; a degraded decision took nothing from it.
    stored: bool,
}

impl ShapingQueue {
    /// Appends a slot that starts after the delay of a decision.
    pub(super) fn push<'a, 'r, S: Store>(
        &'a self,
        store: &'a S,
        request: &'a Request<'r>,
        decision: &Decision,
    ) -> SlotGuard<'a, 'r, S> {
        let first = Arc::new(Notify::new());
        let mut schedule = self.schedule.lock();
        let load = Load::new(request);
        let (id, start) = schedule.push(load, decision.delay(), Arc::clone(&first));
        SlotGuard {
            schedule: &self.schedule,
            id,
            start,
            first,
            store,
            request,
            stored: !decision.degraded(),
        }
    }
}

impl Schedule {
    fn push(&mut self, load: Load, delay: Duration, first: Arc<Notify>) -> (u64, Instant) {
        let id = self.next_id;
        self.next_id += 1;
        let mut start = Instant::now() + delay;
        let mut gap = Duration::ZERO;
        match self.end {
            Some(end) if !self.slots.is_empty() => {
                // The clocks of the store and of this process differ a little.
                start = start.max(end);
                gap = start - end;
            }
            Some(_) | None => {
                self.first_start = Some(start);
                first.notify_one();
            }
        }
        self.end = Some(start + load.duration);
        self.slots.push_back(Slot {
            id,
            gap,
            load,
            first,
        });
        (id, start)
    }

    /// Removes the first slot after its start.
    fn pop(&mut self) {
        if let Some(slot) = self.slots.pop_front() {
            self.first_start = self.first_start.map(|start| start + slot.load.duration);
            self.wake_first();
        }
    }

    /// Computes the start of the new first slot and wakes its request.
    fn wake_first(&mut self) {
        if let Some(slot) = self.slots.front_mut() {
            self.first_start = self.first_start.map(|start| start + slot.gap);
            slot.gap = Duration::ZERO;
            slot.first.notify_one();
        }
    }

    /// Removes a slot and moves later ones up. Returns the units to refund.
    fn remove(&mut self, id: u64) -> SmallVec<[u32; 2]> {
        let Ok(at) = self.slots.binary_search_by_key(&id, |slot| slot.id) else {
            return SmallVec::new();
        };
        let Some(Slot { gap, load, .. }) = self.slots.remove(at) else {
            return SmallVec::new();
        };
        let units = self.fill(at, gap, load);
        if at == 0 {
            self.wake_first();
        }
        units
    }

    /// Fills a hole that starts `gap` after the slot before `at`.
    fn fill(&mut self, mut at: usize, mut gap: Duration, mut hole: Load) -> SmallVec<[u32; 2]> {
        while let Some(slot) = self.slots.get_mut(at) {
            if !(hole.is_uniform() && slot.load.is_uniform()) {
                // The limits disagree on whether it may move up: it stays.
                slot.gap += gap + hole.duration;
                return SmallVec::new();
            }
            if slot.gap < slot.load.unit_duration {
                // No other request in between: it moves up by the whole hole, which is now behind it.
                slot.gap += gap;
                gap = Duration::ZERO;
                at += 1;
                continue;
            }
            if slot.load.duration > hole.duration {
                // Longer than the hole: it stays, and so do all later ones.
                slot.gap += gap + hole.duration;
                return SmallVec::new();
            }
            // It moves into the hole, and its slot is the hole for the next.
            let between = slot.gap + hole.duration - slot.load.duration;
            slot.gap = gap;
            gap = between;
            hole = slot.load.clone();
            at += 1;
        }
        let shorter = gap + hole.duration;
        self.end = self.end.and_then(|end| end.checked_sub(shorter));
        hole.units
    }
}

impl<S: Store> SlotGuard<'_, '_, S> {
    /// The longest remaining wait.
    pub(super) fn max_wait(&self) -> Duration {
        self.start.saturating_duration_since(Instant::now())
    }

    /// Waits for the start of the slot.
    pub(super) async fn wait(self) {
        self.first.notified().await;
        let start = self.schedule.lock().first_start;
        if let Some(start) = start {
            sleep_until(start).await;
        }
        self.schedule.lock().pop();
    }
}

impl<S: Store> Drop for SlotGuard<'_, '_, S> {
    fn drop(&mut self) {
        // Does nothing once the slot was popped.
        let units = self.schedule.lock().remove(self.id);
        if !self.stored {
            return;
        }
        // Only limits that shape: windows and other buckets may have forgotten the request, and a
        // refund would admit more than their limit.
        let entries = shaping_entries(self.request).zip(units);
        let mut entries = entries.filter(|(_, units)| *units > 0);
        let Some((first, units)) = entries.next() else {
            return;
        };
        let refund = Request::new(&first.key, first.limit).cost(units);
        let refund = entries.try_fold(refund, |refund, (entry, units)| {
            refund.and_cost(&entry.key, entry.limit, units)
        });
        if let Ok(refund) = refund {
            self.store.submit(&refund.verb(Verb::Refund));
        }
    }
}
