//! Buckets of packed counters: four slots, their lock and their bookkeeping in two cache lines.
//!
//! A counter takes 29 bytes: 64 bits of tag, 54 of expiry, 53 and 60 of state, packed together. All
//! fields are atomic, so that they may be read without the lock; such a read is only a guess.

use std::hint::spin_loop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::thread::yield_now;

use tallygate_core::{Change, Packed, Quota, State, evaluate_packed};

use super::bucket::{Bucket, CLAIMED, Slots, find};
use super::prefetch::prefetch;
use super::{Operation, TimedVerdict};

/// Spins before yielding to another thread. A decision under lock takes about 20 ns, unless its
/// thread is descheduled.
const MAX_SPINS: usize = 100;

const LEN: usize = 4;

// The first cache line identifies the counters, the second holds what changes with every decision.
#[derive(Default)]
#[repr(C, align(128))]
pub(super) struct PackedBucket {
    locked: AtomicBool,
    /// Bits 32 to 40 of `b`.
    b_middle: [AtomicU8; LEN],
    displaced_until: AtomicU64,
    tags: [AtomicU64; LEN],
    /// The low 32 bits of `b`.
    b_low: [AtomicU32; LEN],
    /// The expiry, and bits 40 to 50 of `b`.
    expiry_b: [AtomicU64; LEN],
    /// `a`, and bits 50 to 61 of `b`.
    a_b: [AtomicU64; LEN],
}

impl Bucket for PackedBucket {
    type Slots<'a> = LockedSlots<'a>;

    #[inline]
    fn lock(&self) -> LockedSlots<'_> {
        match self.try_lock() {
            Some(slots) => slots,
            None => self.wait(),
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<LockedSlots<'_>> {
        let locked = self.locked.swap(true, Acquire);
        // Not `then_some`: a guard that is built and dropped would unlock the bucket.
        (!locked).then(|| LockedSlots { bucket: self })
    }

    #[inline]
    fn prefetch(&self) {
        prefetch(self, |bucket| {
            bucket.displaced_until.load(Relaxed) ^ bucket.expiry_b[0].load(Relaxed)
        });
    }

    // One line only: a processor tracks about a dozen outstanding lines, and fetches the adjacent
    // line by itself.
    #[inline]
    fn prefetch_tags(&self) {
        prefetch(&self.tags, |tags| tags[0].load(Relaxed));
    }

    #[inline]
    fn guess(&self, tag: u64) -> Option<usize> {
        prefetch(&self.expiry_b, |expiry_b| expiry_b[0].load(Relaxed));
        self.find(tag)
    }
}

impl PackedBucket {
    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        find::<LEN>(|at| self.tags[at].load(Relaxed) == tag)
    }

    #[cold]
    fn wait(&self) -> LockedSlots<'_> {
        loop {
            for _ in 0..MAX_SPINS {
                spin_loop();
                if !self.locked.load(Relaxed)
                    && let Some(slots) = self.try_lock()
                {
                    return slots;
                }
            }
            yield_now();
        }
    }
}

/// A locked bucket. Unlocked when dropped.
// Accesses are `Relaxed`: the lock orders them.
pub(super) struct LockedSlots<'a> {
    bucket: &'a PackedBucket,
}

impl Drop for LockedSlots<'_> {
    #[inline]
    fn drop(&mut self) {
        self.bucket.locked.store(false, Release);
    }
}

impl LockedSlots<'_> {
    #[inline(always)]
    fn packed(&self, at: usize) -> Packed {
        let at = at % LEN;
        let b_low = u64::from(self.bucket.b_low[at].load(Relaxed));
        let b_middle = u64::from(self.bucket.b_middle[at].load(Relaxed));
        let expiry_b = self.bucket.expiry_b[at].load(Relaxed);
        let a_b = self.bucket.a_b[at].load(Relaxed);
        Packed {
            expires_at_us: expiry_b >> 10,
            a: a_b >> 11,
            b: b_low | b_middle << 32 | (expiry_b & 0x3ff) << 40 | (a_b & 0x7ff) << 50,
        }
    }

    #[inline(always)]
    fn set(&mut self, at: usize, tag: u64, packed: Packed) {
        let at = at % LEN;
        self.bucket.tags[at].store(tag, Relaxed);
        self.set_state(at, packed);
    }

    #[inline(always)]
    fn set_state(&mut self, at: usize, packed: Packed) {
        let at = at % LEN;
        self.bucket.b_low[at].store(packed.b as u32, Relaxed);
        self.bucket.b_middle[at].store((packed.b >> 32) as u8, Relaxed);
        self.set_state_but_low_b(at, packed);
    }

    /// Stores a state whose `b` is unchanged: writes the second cache line only.
    #[inline(always)]
    fn set_state_but_low_b(&mut self, at: usize, packed: Packed) {
        let at = at % LEN;
        let expiry_b = packed.expires_at_us << 10 | (packed.b >> 40 & 0x3ff);
        let a_b = packed.a << 11 | packed.b >> 50;
        self.bucket.expiry_b[at].store(expiry_b, Relaxed);
        self.bucket.a_b[at].store(a_b, Relaxed);
    }

    #[inline(never)]
    fn vacate(&mut self, at: usize) {
        self.set(at, 0, Packed::default());
    }
}

impl Slots for LockedSlots<'_> {
    const LEN: usize = LEN;

    #[inline]
    fn tag(&self, at: usize) -> u64 {
        self.bucket.tags[at % LEN].load(Relaxed)
    }

    #[inline]
    fn expires_at(&self, at: usize) -> u64 {
        self.bucket.expiry_b[at].load(Relaxed) >> 10
    }

    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        self.bucket.find(tag)
    }

    #[inline(always)]
    fn evaluate(&mut self, at: usize, _: u64, quota: &Quota, operation: Operation) -> TimedVerdict {
        let Operation { verb, cost, now } = operation;
        let packed = self.packed(at);
        let evaluation = evaluate_packed(quota, packed, verb, cost, now);
        let evaluation = evaluation.expect("logs have their own table");
        match evaluation.change {
            Change::None => {}
            Change::Write(next) if next.b == packed.b => self.set_state_but_low_b(at, next),
            Change::Write(next) => self.set_state(at, next),
            Change::Delete => self.vacate(at),
        }
        TimedVerdict {
            verdict: evaluation.verdict,
            effective_time_us: evaluation.effective_time_us,
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

    fn move_to(&mut self, at: usize, target: &mut Self, to: usize) {
        target.set(to, self.tag(at), self.packed(at));
        self.vacate(at);
    }

    #[inline]
    fn displaced_until(&self) -> u64 {
        self.bucket.displaced_until.load(Relaxed)
    }

    fn set_displaced(&mut self, until: u64) {
        let until = until.max(self.displaced_until());
        self.bucket.displaced_until.store(until, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_takes_two_cache_lines() {
        assert_eq!(size_of::<PackedBucket>(), 128);
    }

    #[test]
    fn a_slot_stores_every_bit_of_a_packed_state() {
        let bucket = PackedBucket::default();
        let mut slots = bucket.lock();
        for bit in 0..54 {
            for b_bit in [bit, bit + 6] {
                let packed = Packed {
                    expires_at_us: 1 << bit,
                    a: 1 << (bit % 53),
                    b: 1 << b_bit,
                };
                slots.set(3, 1 << (bit + 3), packed);
                assert_eq!(slots.packed(3), packed);
                assert_eq!(slots.tag(3), 1 << (bit + 3));
                assert_eq!(slots.expires_at(3), 1 << bit);
            }
        }
    }

    #[test]
    fn a_lock_has_one_owner_at_a_time() {
        let bucket = PackedBucket::default();
        let slots = bucket.lock();
        assert!(bucket.try_lock().is_none());
        assert!(
            bucket.try_lock().is_none(),
            "failing to lock must not unlock"
        );
        drop(slots);
        assert!(bucket.try_lock().is_some());
    }
}
