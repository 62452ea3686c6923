//! Logs: five of them to a bucket, their entries elsewhere.

use std::mem;

use parking_lot::{Mutex, MutexGuard};
use tollgate_core::{Log, Quota, State, apply_log};

use super::bucket::{Bucket, CLAIMED, Slots};
use super::hint::prefetch;
use super::{Answer, Ask};

const LEN: usize = 5;

/// How many words of a log's entries are brought near: three cache lines.
const NEAR: usize = 48;

#[derive(Default)]
#[repr(align(64))]
pub(super) struct LogBucket {
    row: Mutex<Row>,
}

#[derive(Default)]
pub(super) struct Row {
    strays_until: u64,
    slots: [Slot; LEN],
}

#[derive(Default)]
struct Slot {
    tag: u64,
    forget_at: u64,
    log: Log,
}

impl Slot {
    fn load(&mut self, tag: u64) -> State {
        let log = mem::take(&mut self.log);
        if self.tag == tag {
            State::Log(log)
        } else {
            State::New
        }
    }
}

impl Bucket for LogBucket {
    type Slots<'a> = MutexGuard<'a, Row>;

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Row> {
        self.row.lock()
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Row>> {
        self.row.try_lock()
    }

    #[inline]
    fn touch(&self) {
        prefetch(self, |bucket| bucket.row.is_locked());
    }

    #[inline]
    fn guess(&self, _: u64) -> Option<usize> {
        Some(0)
    }
}

impl Slots for MutexGuard<'_, Row> {
    const LEN: usize = LEN;

    #[inline]
    fn tag(&self, at: usize) -> u64 {
        self.slots[at].tag
    }

    #[inline]
    fn forget_at(&self, at: usize) -> u64 {
        self.slots[at].forget_at
    }

    #[inline]
    fn decide(&mut self, at: usize, tag: u64, quota: &Quota, ask: Ask) -> Answer {
        // All of a short log at once, rather than its head and then where that points to.
        let entries = self.slots[at].log.elsewhere();
        let near = &entries[..entries.len().min(NEAR)];
        prefetch(near, |near| near.first().copied());
        // Entries of forgotten neighbours are given back on the way.
        for slot in &mut self.slots {
            if slot.forget_at <= ask.now && slot.tag != tag {
                *slot = Slot::default();
            }
        }
        let slot = &mut self.slots[at];
        let verdict = apply_log(quota, &mut slot.log, ask.verb, ask.cost, ask.now);
        let forget_at = slot.log.forget_at_us(quota);
        match forget_at {
            // No entry, no counter.
            0 => *slot = Slot::default(),
            time => slot.forget_at = time,
        }
        // If anything was taken, that is the newest entry.
        let moment_us = forget_at.saturating_sub(quota.period_us());
        Answer { verdict, moment_us }
    }

    fn claim(&mut self, at: usize, tag: u64, _: &Quota) -> State {
        let state = self.slots[at].load(tag);
        self.slots[at] = Slot {
            tag,
            forget_at: CLAIMED,
            log: Log::default(),
        };
        state
    }

    #[inline]
    fn store(&mut self, at: usize, tag: u64, quota: &Quota, state: State) {
        self.slots[at] = match state {
            State::Log(log) => Slot {
                tag,
                forget_at: log.forget_at_us(quota),
                log,
            },
            _ => Slot::default(),
        };
    }

    fn move_to(&mut self, at: usize, there: &mut Self, to: usize) {
        there.slots[to] = mem::take(&mut self.slots[at]);
    }

    fn strays_until(&self) -> u64 {
        self.strays_until
    }

    fn stray(&mut self, until: u64) {
        self.strays_until = self.strays_until.max(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_three_cache_lines() {
        assert_eq!(size_of::<LogBucket>(), 192);
    }
}
