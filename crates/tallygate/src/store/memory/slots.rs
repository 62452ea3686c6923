//! Counters of fixed size: four of them, their lock and their bookkeeping in two cache lines.
//!
//! A counter takes 29 bytes: 64 bits of tag, 54 of time, 53 and 60 of state, fitted together, and one
//! bit that tells at a glance whether half of those 60 are nothing. All of it is atomic, so that
//! whoever does not hold the lock may touch it to bring it near; what they read means nothing.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::thread::yield_now;

use tallygate_core::{
    Change, Packed, Quota, State, Whole, WholeBucket, apply_whole, evaluate_packed,
};

use super::bucket::{Bucket, CLAIMED, Slots, find};
use super::prefetch::prefetch;
use super::{Answer, Ask, Counter};

/// How often to look for a lock to be free before letting another thread run: a decision under
/// lock takes some 20 ns, unless its thread was put to sleep.
const SPINS: usize = 100;

const LEN: usize = 4;

/// That `b` has more than its low 30 bits.
const MORE: u32 = 1 << 30;

// The first line tells whose the counters are, the second one holds what changes with them.
#[derive(Default)]
#[repr(C, align(128))]
pub(super) struct FlatBucket {
    locked: AtomicBool,
    /// 8 bits of `b`.
    middles: [AtomicU8; LEN],
    strays_until: AtomicU64,
    tags: [AtomicU64; LEN],
    /// The low 30 bits of `b`, whether there are [more](MORE), and the topmost one.
    lows: [AtomicU32; LEN],
    /// When to forget, and 10 bits of `b`.
    times: [AtomicU64; LEN],
    /// `a`, and 11 bits of `b`.
    firsts: [AtomicU64; LEN],
}

impl Bucket for FlatBucket {
    type Slots<'a> = Flat<'a>;

    #[inline]
    fn lock(&self) -> Flat<'_> {
        match self.try_lock() {
            Some(flat) => flat,
            None => self.wait(),
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<Flat<'_>> {
        let locked = self.locked.swap(true, Ordering::Acquire);
        // Not `then_some`: a guard made in vain would unlock what somebody else has locked.
        (!locked).then(|| Flat { bucket: self })
    }

    #[inline]
    fn touch(&self) {
        // A look at each line.
        prefetch(self, |bucket| {
            bucket.strays_until.load(ORDER) ^ bucket.times[0].load(ORDER)
        });
    }

    // A processor has room for a dozen lines on their way, and brings the next one half way by
    // itself.
    #[inline]
    fn touch_tags(&self) {
        prefetch(&self.tags, |tags| tags[0].load(ORDER));
    }

    #[inline]
    fn guess(&self, tag: u64) -> Option<usize> {
        prefetch(&self.times, |times| times[0].load(ORDER));
        self.find(tag)
    }

    #[inline(always)]
    fn decide_at_once(
        &self,
        guess: Option<usize>,
        counter: Counter<'_>,
        ask: Ask,
    ) -> Result<Answer, Flat<'_>> {
        let tag = counter.id.tag();
        let Some(quota) = counter.limit.quota().whole() else {
            return Err(self.lock());
        };
        let mut slots = self.lock();
        let found = match guess {
            Some(guess) => slots.find_at(guess, tag),
            None => slots.find(tag),
        };
        let answer = found.and_then(|at| slots.decide_whole(at, quota, ask));
        answer.ok_or(slots)
    }
}

impl FlatBucket {
    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        find::<LEN>(|at| self.holds(at, tag))
    }

    #[inline]
    fn holds(&self, at: usize, tag: u64) -> bool {
        self.tags[at].load(ORDER) == tag
    }

    #[cold]
    fn wait(&self) -> Flat<'_> {
        loop {
            for _ in 0..SPINS {
                spin_loop();
                if !self.locked.load(Ordering::Relaxed)
                    && let Some(flat) = self.try_lock()
                {
                    return flat;
                }
            }
            yield_now();
        }
    }
}

/// A bucket under lock, until dropped.
pub(super) struct Flat<'a> {
    bucket: &'a FlatBucket,
}

impl Drop for Flat<'_> {
    #[inline]
    fn drop(&mut self) {
        self.bucket.locked.store(false, Ordering::Release);
    }
}

// The lock orders what it guards, so that each access needs no order of its own.
const ORDER: Ordering = Ordering::Relaxed;

impl Flat<'_> {
    /// Finds a counter that was guessed to be there.
    #[inline]
    pub(super) fn find_at(&self, guess: usize, tag: u64) -> Option<usize> {
        let at = guess % LEN;
        if self.bucket.holds(at, tag) {
            Some(at)
        } else {
            self.find(tag)
        }
    }

    #[inline(always)]
    fn packed(&self, at: usize) -> Packed {
        let at = at % LEN;
        let low = self.bucket.lows[at].load(ORDER);
        let middle = u64::from(self.bucket.middles[at].load(ORDER));
        let time = self.bucket.times[at].load(ORDER);
        let first = self.bucket.firsts[at].load(ORDER);
        let high =
            middle | (time & 0x3ff) << 8 | (first & 0x7ff) << 18 | u64::from(low >> 31) << 29;
        Packed {
            expires_at_us: time >> 10,
            a: first >> 11,
            b: u64::from(low % MORE) | high << 30,
        }
    }

    #[inline(always)]
    fn set(&mut self, at: usize, tag: u64, packed: Packed) {
        let at = at % LEN;
        self.bucket.tags[at].store(tag, ORDER);
        let high = packed.b >> 30;
        let more = if high == 0 { 0 } else { MORE };
        let low = (packed.b as u32 % MORE) | more | (high >> 29 << 31) as u32;
        self.bucket.lows[at].store(low, ORDER);
        self.bucket.middles[at].store(high as u8, ORDER);
        self.set_rest(at, packed);
    }

    /// Sets a counter that has the tag and the `b` it had before.
    #[inline(always)]
    fn set_rest(&mut self, at: usize, packed: Packed) {
        let at = at % LEN;
        let high = packed.b >> 30;
        let time = packed.expires_at_us << 10 | (high >> 8 & 0x3ff);
        let first = packed.a << 11 | (high >> 18 & 0x7ff);
        self.bucket.times[at].store(time, ORDER);
        self.bucket.firsts[at].store(first, ORDER);
    }

    /// Decides on a counter that is there if it is a whole bucket, as nearly all are.
    // While memory is waited for, a processor goes on with what comes next for some 350
    // instructions, or half as many when another thread has the rest of its core. What is asked
    // for next is on its way in time if this is short.
    #[inline(always)]
    pub(super) fn decide_whole(&mut self, at: usize, quota: Whole<'_>, ask: Ask) -> Option<Answer> {
        let at = at % LEN;
        if self.bucket.lows[at].load(ORDER) != quota.quota().limit() {
            return None;
        }
        let bucket = WholeBucket {
            changed_us: self.bucket.firsts[at].load(ORDER) >> 11,
            drained_us: self.bucket.times[at].load(ORDER) >> 10,
        };
        let (verdict, change) = apply_whole(quota, bucket, ask.verb, ask.cost, ask.now)?;
        match change {
            Change::Nothing => {}
            Change::Keep(next) => {
                self.bucket.times[at].store(next.drained_us << 10, ORDER);
                self.bucket.firsts[at].store(next.changed_us << 11, ORDER);
            }
            Change::Forget => self.vacate(at),
        }
        Some(Answer {
            verdict,
            effective_time_us: ask.now,
        })
    }

    fn vacate(&mut self, at: usize) {
        self.set(at, 0, Packed::default());
    }
}

impl Slots for Flat<'_> {
    const LEN: usize = LEN;

    #[inline]
    fn tag(&self, at: usize) -> u64 {
        self.bucket.tags[at].load(ORDER)
    }

    #[inline]
    fn forget_at(&self, at: usize) -> u64 {
        self.bucket.times[at].load(ORDER) >> 10
    }

    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        self.bucket.find(tag)
    }

    #[inline(always)]
    fn decide(&mut self, at: usize, tag: u64, quota: &Quota, ask: Ask) -> Answer {
        let packed = self.packed(at);
        let decided = evaluate_packed(quota, packed, ask.verb, ask.cost, ask.now);
        let decided = decided.expect("logs have buckets of their own");
        match decided.change {
            Change::Nothing => {}
            Change::Keep(next) if next.b == packed.b => self.set_rest(at, next),
            Change::Keep(next) => self.set(at, tag, next),
            Change::Forget => self.vacate(at),
        }
        Answer {
            verdict: decided.verdict,
            effective_time_us: decided.effective_time_us,
        }
    }

    fn claim(&mut self, at: usize, tag: u64, quota: &Quota) -> State {
        let state = if self.tag(at) == tag {
            State::unpack(quota, self.packed(at))
        } else {
            State::New
        };
        let claimed = Packed {
            expires_at_us: CLAIMED,
            ..Packed::default()
        };
        self.set(at, tag, claimed);
        state
    }

    fn store(&mut self, at: usize, tag: u64, quota: &Quota, state: State) {
        match state.pack(quota) {
            Some(packed) => self.set(at, tag, packed),
            None => self.vacate(at),
        }
    }

    fn move_to(&mut self, at: usize, there: &mut Self, to: usize) {
        there.set(to, self.tag(at), self.packed(at));
        self.vacate(at);
    }

    #[inline]
    fn strays_until(&self) -> u64 {
        self.bucket.strays_until.load(ORDER)
    }

    fn stray(&mut self, until: u64) {
        let until = until.max(self.strays_until());
        self.bucket.strays_until.store(until, ORDER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_two_cache_lines() {
        assert_eq!(size_of::<FlatBucket>(), 128);
    }

    #[test]
    fn every_bit_of_a_packed_state_comes_back() {
        let bucket = FlatBucket::default();
        let mut slots = bucket.lock();
        for bit in 0..54 {
            let packed = Packed {
                expires_at_us: 1 << bit,
                a: 1 << (bit % 53),
                b: 1 << (bit + 6),
            };
            slots.set(3, 1 << (bit + 3), packed);
            assert_eq!(slots.packed(3), packed);
            assert_eq!(slots.tag(3), 1 << (bit + 3));
            assert_eq!(slots.forget_at(3), 1 << bit);
        }
    }

    #[test]
    fn a_lock_is_held_by_one_at_a_time() {
        let bucket = FlatBucket::default();
        let held = bucket.lock();
        assert!(bucket.try_lock().is_none());
        assert!(
            bucket.try_lock().is_none(),
            "failing to lock must not unlock"
        );
        drop(held);
        assert!(bucket.try_lock().is_some());
    }
}
