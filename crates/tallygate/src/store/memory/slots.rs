//! Buckets of packed counters: four slots, their lock and their bookkeeping in two cache lines.
//!
//! A counter takes 29 bytes: 64 bits of tag, 54 of expiry, 53 and 60 of state, packed together. All
//! words are atomic, so that they may be read without the lock; such a read is only a guess.
//!
//! A bucket is an array of words, and a vacant one is all zero: a table is zeroed memory that the
//! system provides page by page as it is used. Structs aligned to their cache lines would be filled
//! at once, because the standard allocator zeroes lazily only up to an alignment of 16 bytes.

use std::hint::{select_unpredictable, spin_loop};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread::yield_now;

use tallygate_core::{Change, Packed, Quota, State, Verb, evaluate_packed};
use zerocopy::FromZeros;

use super::bucket::{Bucket, Buckets, CLAIMED, RepeatedCheck, Slots, find};
use super::prefetch::{prefetch, request_huge_pages};
use super::{Operation, TimedVerdict};

/// Spins before yielding to another thread. A decision under lock takes about 20 ns, unless its
/// thread is descheduled.
const MAX_SPINS: usize = 100;

const LEN: usize = 4;

const WORDS: usize = 16;
const BYTES: usize = WORDS * size_of::<AtomicU64>();

// The first cache line identifies the counters, the second holds what changes with every decision.
pub(super) type PackedBucket = [AtomicU64; WORDS];

/// The low 40 bits of each `b`. Above them, in all but the first, 18 bits each of the time until
/// which counters are displaced.
const B: usize = 0;
/// The first of these words is also the lock: whoever locks the bucket takes it out.
const LOCK: usize = B;
const TAGS: usize = 4;
/// The expiry, and bits 40 to 50 of `b`.
const EXPIRY_B: usize = 8;
/// `a`, and bits 50 to 61 of `b`.
const A_B: usize = 12;

const B_BITS: u32 = 40;
const B_MASK: u64 = (1 << B_BITS) - 1;
/// The bits of a time in each of three words.
const TIME_BITS: u32 = 18;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// The lock word of a locked bucket.
const LOCKED: u64 = u64::MAX;

/// The buckets of a table, aligned to their cache lines within a larger array.
pub(super) struct PackedBuckets {
    words: Box<[AtomicU64]>,
    start: usize,
}

impl Buckets<PackedBucket> for PackedBuckets {
    fn vacant(len: usize) -> Self {
        // Fewer than a bucket's words are left over at both ends together.
        let words = len.saturating_mul(WORDS).saturating_add(WORDS - 1);
        let mut words = <[AtomicU64]>::new_box_zeroed_with_elems(words)
            .expect("there is memory for the capacity");
        request_huge_pages(&mut words);
        PackedBuckets {
            start: words.as_ptr().align_offset(BYTES),
            words,
        }
    }

    #[inline]
    fn len(&self) -> usize {
        (self.words.len() - self.start) / WORDS
    }

    #[inline]
    fn get(&self, index: usize) -> &PackedBucket {
        let (buckets, _) = self.words[self.start..].as_chunks();
        &buckets[index]
    }
}

impl Bucket for PackedBucket {
    type Slots<'a> = LockedSlots<'a>;
    type Buckets = PackedBuckets;

    #[inline]
    fn lock(&self) -> LockedSlots<'_> {
        match self.try_lock() {
            Some(slots) => slots,
            None => wait(self),
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<LockedSlots<'_>> {
        let first_b = self[LOCK].swap(LOCKED, Acquire);
        // Not `then_some`: a guard that is built and dropped would unlock the bucket.
        (first_b != LOCKED).then(|| LockedSlots {
            bucket: self,
            first_b,
        })
    }

    #[inline]
    fn prefetch(&self) {
        prefetch(self, |bucket| {
            bucket[TAGS].load(Relaxed) ^ bucket[EXPIRY_B].load(Relaxed)
        });
    }

    // One line only: a processor tracks about a dozen outstanding lines, and fetches the adjacent
    // line by itself.
    #[inline]
    fn prefetch_tags(&self) {
        prefetch(&self[TAGS], |tag| tag.load(Relaxed));
    }

    // Without the lock: writing would make the system provide memory for unused buckets.
    fn live(&self, now: u64) -> usize {
        let expiries = self[EXPIRY_B..A_B].iter();
        let live = expiries.filter(|expiry_b| expiry_b.load(Relaxed) >> 10 > now);
        live.count()
    }

    #[inline]
    fn guess(&self, tag: u64) -> Option<usize> {
        prefetch(&self[EXPIRY_B], |expiry_b| expiry_b.load(Relaxed));
        find_tag(self, tag)
    }
}

#[inline]
fn find_tag(bucket: &PackedBucket, tag: u64) -> Option<usize> {
    find::<LEN>(|at| bucket[TAGS + at].load(Relaxed) == tag)
}

#[cold]
fn wait(bucket: &PackedBucket) -> LockedSlots<'_> {
    loop {
        for _ in 0..MAX_SPINS {
            spin_loop();
            if bucket[LOCK].load(Relaxed) != LOCKED
                && let Some(slots) = bucket.try_lock()
            {
                return slots;
            }
        }
        yield_now();
    }
}

/// A locked bucket. Unlocked when dropped.
// Accesses are `Relaxed`: the lock orders them.
pub(super) struct LockedSlots<'a> {
    bucket: &'a PackedBucket,
    /// The word that was taken out.
    first_b: u64,
}

impl Drop for LockedSlots<'_> {
    #[inline]
    fn drop(&mut self) {
        self.bucket[LOCK].store(self.first_b, Release);
    }
}

impl LockedSlots<'_> {
    #[inline(always)]
    pub(super) fn packed(&self, at: usize) -> Packed {
        let at = at % LEN;
        let b_low = self.bucket[B + at].load(Relaxed) & B_MASK;
        let b_low = select_unpredictable(B + at == LOCK, self.first_b, b_low);
        let expiry_b = self.bucket[EXPIRY_B + at].load(Relaxed);
        let a_b = self.bucket[A_B + at].load(Relaxed);
        Packed {
            expires_at_us: expiry_b >> 10,
            a: a_b >> 11,
            b: b_low | (expiry_b & 0x3ff) << 40 | (a_b & 0x7ff) << 50,
        }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, at: usize, tag: u64, packed: Packed) {
        let at = at % LEN;
        self.bucket[TAGS + at].store(tag, Relaxed);
        self.set_state(at, packed);
    }

    #[inline(always)]
    fn set_state(&mut self, at: usize, packed: Packed) {
        let at = at % LEN;
        let b_low = packed.b & B_MASK;
        if B + at == LOCK {
            self.first_b = b_low;
        } else {
            let time = self.bucket[B + at].load(Relaxed) & !B_MASK;
            self.bucket[B + at].store(time | b_low, Relaxed);
        }
        self.set_state_but_low_b(at, packed);
    }

    /// Stores a state whose `b` is unchanged: writes the second cache line only.
    #[inline(always)]
    fn set_state_but_low_b(&mut self, at: usize, packed: Packed) {
        let at = at % LEN;
        let expiry_b = packed.expires_at_us << 10 | (packed.b >> 40 & 0x3ff);
        let a_b = packed.a << 11 | packed.b >> 50;
        self.bucket[EXPIRY_B + at].store(expiry_b, Relaxed);
        self.bucket[A_B + at].store(a_b, Relaxed);
    }

    #[inline(never)]
    pub(super) fn vacate(&mut self, at: usize) {
        self.set(at, 0, Packed::default());
    }
}

impl Slots for LockedSlots<'_> {
    const LEN: usize = LEN;

    #[inline]
    fn tag(&self, at: usize) -> u64 {
        self.bucket[TAGS + at % LEN].load(Relaxed)
    }

    #[inline]
    fn expires_at(&self, at: usize) -> u64 {
        self.bucket[EXPIRY_B + at % LEN].load(Relaxed) >> 10
    }

    #[inline]
    fn find(&self, tag: u64) -> Option<usize> {
        find_tag(self.bucket, tag)
    }

    #[inline(always)]
    fn evaluate(
        &mut self,
        at: usize,
        _: u64,
        quota: &Quota,
        operation: Operation<'_>,
    ) -> TimedVerdict {
        let Operation {
            verb, cost, now, ..
        } = operation;
        let packed = self.packed(at);
        let evaluation = evaluate_packed(quota, packed, verb, cost, now);
        let evaluation = evaluation.expect("other states have their own tables");
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

    /// Reads the state once, and writes it once.
    #[inline]
    fn check_repeatedly(
        &mut self,
        at: usize,
        _: u64,
        quota: &Quota,
        repeated: RepeatedCheck,
        mut each: impl FnMut(TimedVerdict),
    ) {
        let RepeatedCheck { cost, now, times } = repeated;
        let before = self.packed(at);
        let mut packed = before;
        for left in (0..times).rev() {
            let evaluation = evaluate_packed(quota, packed, Verb::Check, cost, now);
            let evaluation = evaluation.expect("other states have their own tables");
            let verdict = TimedVerdict {
                verdict: evaluation.verdict,
                effective_time_us: evaluation.effective_time_us,
            };
            each(verdict);
            match evaluation.change {
                Change::Write(next) => packed = next,
                Change::Delete => packed = Packed::default(),
                // Nothing was taken, and will be by the others.
                Change::None => {
                    (0..left).for_each(|_| each(verdict));
                    break;
                }
            }
        }
        if packed != before {
            self.set_state(at, packed);
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
        let part = |word: usize| self.bucket[B + word].load(Relaxed) >> B_BITS & TIME_MASK;
        part(1) | part(2) << TIME_BITS | part(3) << (2 * TIME_BITS)
    }

    fn set_displaced(&mut self, until: u64) {
        let until = until.max(self.displaced_until());
        for (word, part) in (1..).zip([until, until >> TIME_BITS, until >> (2 * TIME_BITS)]) {
            let b = self.bucket[B + word].load(Relaxed) & B_MASK;
            self.bucket[B + word].store(b | (part & TIME_MASK) << B_BITS, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_takes_two_cache_lines() {
        for len in [1, 2, 1_000] {
            let buckets = PackedBuckets::vacant(len);
            for index in 0..len {
                let address = buckets.get(index).as_ptr().addr();
                assert_eq!(address % 128, 0, "{index} of {len}");
            }
        }
        assert_eq!(size_of::<PackedBucket>(), 128);
    }

    #[test]
    fn a_slot_stores_every_bit_of_a_packed_state() {
        let buckets = PackedBuckets::vacant(1);
        let mut slots = buckets.get(0).lock();
        let all = Packed {
            expires_at_us: CLAIMED,
            a: (1 << 53) - 1,
            b: (1 << 60) - 1,
        };
        for bit in 0..54 {
            for b_bit in [bit, bit + 6] {
                let packed = Packed {
                    expires_at_us: 1 << bit,
                    a: 1 << (bit % 53),
                    b: 1 << b_bit,
                };
                for at in 0..LEN {
                    // Its neighbours keep theirs.
                    (0..LEN).for_each(|at| slots.set(at, u64::MAX, all));
                    slots.set(at, 1 << (bit + 3), packed);
                    assert_eq!(slots.packed(at), packed);
                    assert_eq!(slots.tag(at), 1 << (bit + 3));
                    assert_eq!(slots.expires_at(at), 1 << bit);
                    for other in (0..LEN).filter(|other| *other != at) {
                        assert_eq!(slots.packed(other), all);
                        assert_eq!(slots.tag(other), u64::MAX);
                    }
                }
            }
        }
    }

    #[test]
    fn a_lock_has_one_owner_at_a_time() {
        let buckets = PackedBuckets::vacant(1);
        let bucket = buckets.get(0);
        let mut slots = bucket.lock();
        let packed = Packed {
            b: (1 << 60) - 1,
            ..Packed::default()
        };
        (0..LEN).for_each(|at| slots.set(at, 1, packed));
        slots.set_displaced(CLAIMED);
        assert!(bucket.try_lock().is_none());
        assert!(
            bucket.try_lock().is_none(),
            "failing to lock must not unlock"
        );
        drop(slots);
        let slots = bucket.try_lock().expect("it was unlocked");
        assert_eq!(slots.displaced_until(), CLAIMED);
        (0..LEN).for_each(|at| assert_eq!(slots.packed(at), packed));
    }
}
