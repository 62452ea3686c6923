//! Logs: five of them to a bucket, more than a few entries elsewhere.

use std::mem;

use parking_lot::{Mutex, MutexGuard};
use tallygate_core::{Log, Quota, State, Verb, apply_log, check_log};

use super::bucket::{Bucket, CLAIMED, Slots, find};
use super::prefetch::prefetch;
use super::{Answer, Ask, Counter};

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

    /// Whether it holds what may be forgotten.
    #[inline]
    fn is_stale(&self, now: u64) -> bool {
        (1..=now).contains(&self.log.expires_at_us())
    }

    /// Starts to bring its entries near, all of a short log at once rather than its head and then
    /// where that points to.
    #[inline]
    fn touch(&self) {
        let entries = self.log.elsewhere();
        let near = &entries[..entries.len().min(NEAR)];
        prefetch(near, |near| near.first().copied());
    }
}

impl Row {
    /// Admits a check of a log that is there if that is simple, as it nearly always is.
    #[inline(always)]
    fn check(&mut self, at: usize, quota: &Quota, cost: u32, now: u64) -> Option<Answer> {
        self.slots[at].touch();
        if self.slots.iter().any(|slot| slot.is_stale(now)) {
            return None;
        }
        let slot = &mut self.slots[at];
        let verdict = check_log(quota, &mut slot.log, cost, now)?;
        Some(Answer {
            verdict,
            effective_time_us: now,
        })
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

    #[inline(always)]
    fn decide_at_once(
        &self,
        _: Option<usize>,
        counter: Counter<'_>,
        ask: Ask,
    ) -> Result<Answer, MutexGuard<'_, Row>> {
        let mut slots = self.lock();
        let found = match ask.verb {
            Verb::Check => slots.find(counter.id.tag()),
            Verb::Peek | Verb::Take | Verb::Charge | Verb::Refund | Verb::Reset => None,
        };
        let quota = counter.limit.quota();
        let answer = found.and_then(|at| slots.check(at, quota, ask.cost, ask.now));
        answer.ok_or(slots)
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
        self.slots[at].log.expires_at_us()
    }

    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        find::<LEN>(|at| self.slots[at].tag == tag)
    }

    fn decide(&mut self, at: usize, tag: u64, quota: &Quota, ask: Ask) -> Answer {
        self.slots[at].touch();
        // Entries of forgotten neighbours are given back on the way.
        for slot in &mut self.slots {
            if slot.is_stale(ask.now) && slot.tag != tag {
                *slot = Slot::default();
            }
        }
        let slot = &mut self.slots[at];
        let verdict = apply_log(quota, &mut slot.log, ask.verb, ask.cost, ask.now);
        let forget_at = slot.log.expires_at_us();
        // No entry, no counter.
        if forget_at == 0 {
            *slot = Slot::default();
        }
        // If anything was taken, that is the newest entry.
        let effective_time_us = forget_at.saturating_sub(quota.period_us());
        Answer {
            verdict,
            effective_time_us,
        }
    }

    fn claim(&mut self, at: usize, tag: u64, _: &Quota) -> State {
        let state = self.slots[at].load(tag);
        self.slots[at] = Slot {
            tag,
            log: Log::awaited(CLAIMED),
        };
        state
    }

    #[inline]
    fn store(&mut self, at: usize, tag: u64, _: &Quota, state: State) {
        self.slots[at] = match state {
            State::Log(log) => Slot { tag, log },
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
