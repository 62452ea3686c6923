//! Buckets of sliding window logs: five slots, with longer logs on the heap.

use std::mem;

use parking_lot::{Mutex, MutexGuard};
use tallygate_core::{Log, Quota, State, evaluate};

use super::bucket::{Bucket, Buckets, CLAIMED, Slots, find};
use super::prefetch::{prefetch, request_huge_pages};
use super::{Operation, TimedVerdict};

const LEN: usize = 5;

/// Words of a log's heap memory to prefetch: three cache lines.
const MAX_PREFETCH_WORDS: usize = 48;

#[derive(Default)]
#[repr(align(64))]
pub(super) struct LogBucket {
    slots: Mutex<LogSlots>,
}

#[derive(Default)]
pub(super) struct LogSlots {
    displaced_until: u64,
    slots: [LogSlot; LEN],
}

#[derive(Default)]
struct LogSlot {
    tag: u64,
    log: Log,
}

impl LogSlot {
    fn set(&mut self, tag: u64, state: State) {
        *self = match state {
            State::Log(log) => LogSlot { tag, log },
            _ => LogSlot::default(),
        };
    }

    #[inline]
    fn is_expired(&self, now: u64) -> bool {
        (1..=now).contains(&self.log.expires_at_us())
    }

    /// Prefetches the entries: all of a short log, not only the header that leads to the rest.
    #[inline]
    fn prefetch(&self) {
        let heap = self.log.heap();
        let start = &heap[..heap.len().min(MAX_PREFETCH_WORDS)];
        prefetch(start, |start| start.first().copied());
    }
}

// Not zeroed memory, as a log is no plain number: all of it is used from the start.
impl Buckets<LogBucket> for Box<[LogBucket]> {
    fn vacant(len: usize) -> Self {
        let mut buckets = Vec::with_capacity(len);
        request_huge_pages(buckets.spare_capacity_mut());
        buckets.resize_with(len, LogBucket::default);
        buckets.into()
    }

    #[inline]
    fn len(&self) -> usize {
        <[LogBucket]>::len(self)
    }

    #[inline]
    fn get(&self, index: usize) -> &LogBucket {
        &self[index]
    }
}

impl Bucket for LogBucket {
    type Slots<'a> = MutexGuard<'a, LogSlots>;
    type Buckets = Box<[LogBucket]>;

    #[inline]
    fn lock(&self) -> MutexGuard<'_, LogSlots> {
        self.slots.lock()
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, LogSlots>> {
        self.slots.try_lock()
    }

    #[inline]
    fn prefetch(&self) {
        prefetch(self, |bucket| bucket.slots.is_locked());
    }

    // The tags cannot be read without the lock.
    #[inline]
    fn guess(&self, _: u64) -> Option<usize> {
        Some(0)
    }
}

impl Slots for MutexGuard<'_, LogSlots> {
    const LEN: usize = LEN;

    #[inline]
    fn tag(&self, at: usize) -> u64 {
        self.slots[at].tag
    }

    #[inline]
    fn expires_at(&self, at: usize) -> u64 {
        self.slots[at].log.expires_at_us()
    }

    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        find::<LEN>(|at| self.slots[at].tag == tag)
    }

    #[inline]
    fn evaluate(
        &mut self,
        at: usize,
        tag: u64,
        quota: &Quota,
        operation: Operation<'_>,
    ) -> TimedVerdict {
        let Operation {
            verb, cost, now, ..
        } = operation;
        self.slots[at].prefetch();
        // Frees the heap memory of expired neighbours.
        for slot in &mut self.slots {
            if slot.is_expired(now) && slot.tag != tag {
                *slot = LogSlot::default();
            }
        }
        let slot = &mut self.slots[at];
        let mut state = State::Log(mem::take(&mut slot.log));
        let verdict = evaluate(quota, &mut state, verb, cost, now);
        slot.set(tag, state);
        // If units were taken, that is the newest entry.
        let effective_time_us = slot.log.expires_at_us().saturating_sub(quota.period_us());
        TimedVerdict {
            verdict,
            effective_time_us,
        }
    }

    fn claim(&mut self, at: usize, tag: u64, _: &Quota) -> State {
        let placeholder = LogSlot {
            tag,
            log: Log::placeholder(CLAIMED),
        };
        let slot = mem::replace(&mut self.slots[at], placeholder);
        if slot.tag == tag {
            State::Log(slot.log)
        } else {
            State::New
        }
    }

    #[inline]
    fn store(&mut self, at: usize, tag: u64, _: &Quota, state: State) {
        self.slots[at].set(tag, state);
    }

    fn move_to(&mut self, at: usize, target: &mut Self, to: usize) {
        target.slots[to] = mem::take(&mut self.slots[at]);
    }

    fn displaced_until(&self) -> u64 {
        self.displaced_until
    }

    fn set_displaced(&mut self, until: u64) {
        self.displaced_until = self.displaced_until.max(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_takes_three_cache_lines() {
        assert_eq!(size_of::<LogBucket>(), 192);
    }
}
