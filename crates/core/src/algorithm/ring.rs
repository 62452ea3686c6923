//! A compact ring buffer of (time, running sum) entries.
//!
//! One allocation holds a 24-byte header and the entries. An entry takes 8 bytes while times and sums
//! are within 2^32 of the first, 12 within 2^48, 16 beyond. Both increase along the ring, which allows
//! binary search.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// A time and the units of all entries up to and including this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) time: u64,
    pub(super) sum: u64,
}

/// Units to append.
#[derive(Clone, Copy)]
pub(super) struct Append {
    pub(super) now: u64,
    pub(super) units: u32,
    /// Entries at this time or earlier have expired.
    pub(super) after: u64,
    /// The maximum sum of all live entries.
    pub(super) max: u32,
}

/// The ring buffer. A default one has no allocation.
#[derive(Clone, Default)]
pub(super) struct Ring {
    words: Box<[u32]>,
}

// The header: width and head in one word, the length, the base of the entries' times, the sum of
// the dropped entries.
const HEAD: usize = 0;
const LEN: usize = 1;
const BASE: usize = 2;
const DROPPED: usize = 4;
const HEADER: usize = 6;
const HEAD_BITS: u32 = 24;

/// Words per entry. Time and sum have 16 bits per word each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    Narrow = 2,
    Wide = 3,
    Whole = 4,
}

impl Width {
    fn bits(self) -> u32 {
        16 * self as u32
    }

    fn least(value: u64) -> Self {
        match value {
            0..0x1_0000_0000 => Width::Narrow,
            0x1_0000_0000..0x1_0000_0000_0000 => Width::Wide,
            0x1_0000_0000_0000.. => Width::Whole,
        }
    }
}

/// A ring's decoded header and its entries.
#[derive(Clone, Copy)]
struct RingRef<'a> {
    width: Width,
    head: usize,
    len: usize,
    base: u64,
    /// Included in the stored sums.
    dropped: u64,
    entries: &'a [u32],
}

impl<'a> RingRef<'a> {
    #[inline]
    fn new(header: &[u32; HEADER], entries: &'a [u32]) -> Self {
        let pair = |at: usize| u64::from(header[at]) | u64::from(header[at + 1]) << 32;
        RingRef {
            width: match header[HEAD] >> HEAD_BITS {
                2 => Width::Narrow,
                3 => Width::Wide,
                _ => Width::Whole,
            },
            head: (header[HEAD] & ((1 << HEAD_BITS) - 1)) as usize,
            len: header[LEN] as usize,
            base: pair(BASE),
            dropped: pair(DROPPED),
            entries,
        }
    }

    #[inline]
    fn capacity(self) -> usize {
        let words = self.entries.len();
        // Constant divisors: no division instruction.
        match self.width {
            Width::Narrow => words / 2,
            Width::Wide => words / 3,
            Width::Whole => words / 4,
        }
    }

    /// Whether there is room for one more entry and the ring is not far too large.
    #[inline]
    fn has_room(self) -> bool {
        let capacity = self.capacity();
        self.len < capacity && (capacity <= 16 || self.len >= capacity / 4)
    }

    #[inline]
    fn fits(self, entry: Entry) -> bool {
        let bits = self.width.bits();
        let below = |value: Option<u64>| value.is_some_and(|v| bits == 64 || v >> bits == 0);
        below(entry.time.checked_sub(self.base)) && below(entry.sum.checked_add(self.dropped))
    }

    /// The index of an entry's first word.
    #[inline]
    fn offset(self, i: usize) -> usize {
        let at = (self.head + i) * self.width as usize;
        // The length is a multiple of the width: an entry never wraps.
        let end = self.entries.len();
        if at < end { at } else { at - end }
    }

    /// A stored entry of a narrow ring.
    #[inline(always)]
    fn narrow(self, i: usize) -> Option<[u32; 2]> {
        self.entries.get(self.offset(i)..)?.first_chunk().copied()
    }

    /// A narrow ring without its expired entries. `None` if more than `MAX_EXPIRED` have expired, or
    /// all of them.
    // Not inlined: keeps the path without expired entries short.
    #[inline(never)]
    fn without_expired(mut self, after: u64) -> Option<Self> {
        const MAX_EXPIRED: usize = 4;
        for _ in 0..=MAX_EXPIRED.min(self.len.checked_sub(1)?) {
            let [time, sum] = self.narrow(0)?;
            if self.base + u64::from(time) > after {
                return Some(self);
            }
            let next = self.head + 1;
            self.head = if next < self.capacity() { next } else { 0 };
            self.len -= 1;
            self.dropped = sum.into();
        }
        None
    }

    /// An entry as stored.
    #[inline]
    fn raw(self, i: usize) -> Entry {
        let at = self.offset(i);
        let words = &self.entries[at..at + self.width as usize];
        let w = |k: usize| u64::from(words[k]);
        match self.width {
            Width::Narrow => Entry {
                time: w(0),
                sum: w(1),
            },
            Width::Wide => Entry {
                time: w(0) | (w(1) & 0xffff) << 32,
                sum: w(1) >> 16 | w(2) << 16,
            },
            Width::Whole => Entry {
                time: w(0) | w(1) << 32,
                sum: w(2) | w(3) << 32,
            },
        }
    }

    #[inline]
    fn get(self, i: usize) -> Entry {
        let raw = self.raw(i);
        Entry {
            time: self.base + raw.time,
            sum: raw.sum - self.dropped,
        }
    }
}

/// The capacity that a ring of `len` entries grows to: in small steps, as there may be millions of
/// rings with a few entries each.
fn grown(len: usize, max: usize) -> usize {
    let grown = len + (len / 4).max(2);
    if len < max { grown.min(max) } else { grown }
}

const WORD_BYTES: usize = size_of::<u32>();
/// The header of an allocation of glibc, which is a multiple of 16 bytes with it.
const MALLOC_HEADER_WORDS: usize = 2;
const MALLOC_STEP_BYTES: usize = 16;

/// The bytes that a ring of so many entries takes, with the overhead of the allocator.
fn heap_bytes(capacity: usize, width: Width) -> usize {
    let words = MALLOC_HEADER_WORDS + HEADER + capacity * width as usize;
    (words * WORD_BYTES).next_multiple_of(MALLOC_STEP_BYTES)
}

impl Ring {
    /// The maximum memory of a ring of at most `len` entries within a period.
    pub(super) fn max_heap_bytes(len: usize, period_us: u64) -> usize {
        heap_bytes(len, Width::least(period_us))
    }

    /// Builds a ring of entries, which must exist. `max` is the usual maximum length.
    pub(super) fn from_entries(entries: &[Entry], max: usize) -> Self {
        let (first, last) = (entries[0], entries[entries.len() - 1]);
        let width = Width::least((last.time - first.time).max(last.sum));
        let mut ring = Ring::allocate(first.time, width, grown(entries.len() - 1, max));
        for (i, &entry) in entries.iter().enumerate() {
            ring.words[LEN] += 1;
            ring.put(i, entry);
        }
        ring
    }

    #[inline]
    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }

    /// `None` without an allocation.
    #[inline]
    fn decode(&self) -> Option<RingRef<'_>> {
        let (header, entries) = self.words.split_first_chunk()?;
        Some(RingRef::new(header, entries))
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.words.get(LEN).map_or(0, |&len| len as usize)
    }

    #[inline]
    pub(super) fn last(&self) -> Option<Entry> {
        let ring = self.decode()?;
        ring.len.checked_sub(1).map(|i| ring.get(i))
    }

    /// The entry at a position counted from the oldest, which must exist.
    #[inline]
    pub(super) fn get(&self, i: usize) -> Entry {
        self.decode().expect("it has an entry").get(i)
    }

    /// Drops expired entries and appends one, if few have expired, none is as late as `now`, and
    /// there is room. Returns the sum of all entries, or `None` with nothing changed.
    #[inline(always)]
    pub(super) fn try_append(&mut self, append: Append) -> Option<u64> {
        let before = self.decode()?;
        if before.width != Width::Narrow {
            return None;
        }
        let [oldest, _] = before.narrow(0)?;
        let live = if before.base + u64::from(oldest) > append.after {
            before
        } else {
            before.without_expired(append.after)?
        };
        if !live.has_room() {
            return None;
        }
        let time = u32::try_from(append.now.checked_sub(live.base)?).ok()?;
        let [newest, sum] = live.narrow(live.len.checked_sub(1)?)?;
        let used = u64::from(sum) - live.dropped + u64::from(append.units);
        if time <= newest || used > u64::from(append.max) {
            return None;
        }
        let entry = [time, sum.checked_add(append.units)?];
        let at = HEADER + live.offset(live.len);
        let expired = before.len - live.len;
        if expired > 0 {
            self.drop_front(expired);
        }
        let room = self.words[at..].first_chunk_mut();
        *room.expect("there is room for one entry") = entry;
        self.words[LEN] += 1;
        Some(used)
    }

    /// Appends an entry no older than the last. `max` is the usual maximum length.
    pub(super) fn push(&mut self, entry: Entry, max: usize) {
        let ring = self.decode();
        let (len, capacity) = ring.map_or((0, 0), |ring| (ring.len, ring.capacity()));
        if !ring.is_some_and(RingRef::has_room) {
            self.rebuild(entry, grown(len, max));
        } else if !ring.is_some_and(|ring| ring.fits(entry)) {
            self.rebuild(entry, capacity);
        }
        self.words[LEN] += 1;
        self.put(len, entry);
    }

    /// Raises or lowers the sum of the last entry, which must exist.
    pub(super) fn amend(&mut self, entry: Entry) {
        let ring = self.decode().expect("it has an entry");
        let (last, capacity) = (ring.len - 1, ring.capacity());
        if !ring.fits(entry) {
            self.rebuild(entry, capacity);
        }
        self.put(last, entry);
    }

    /// Drops all but the oldest `n` entries, which must exist.
    pub(super) fn truncate(&mut self, n: usize) {
        self.words[LEN] = u32::try_from(n).expect("a log has fewer than 2^24 entries");
    }

    /// Removes units from an entry, which must exist, and the entry itself if none are left. The
    /// sums after it are lowered as well.
    pub(super) fn lower(&mut self, at: usize, units: u64) {
        let before = at.checked_sub(1).map_or(0, |i| self.get(i).sum);
        let had = self.get(at).sum - before;
        let removed = units.min(had);
        let gone = usize::from(removed == had);
        for i in at..self.len() - gone {
            let Entry { time, sum } = self.get(i + gone);
            self.put(
                i,
                Entry {
                    time,
                    sum: sum - removed,
                },
            );
        }
        self.words[LEN] -= u32::from(gone > 0);
    }

    /// Drops the oldest `n` entries and their units.
    pub(super) fn drop_front(&mut self, n: usize) {
        if let Some(last) = n.checked_sub(1) {
            let dropped = self.decode().expect("it has an entry").raw(last).sum;
            self.set_pair(DROPPED, dropped);
            self.advance_head(n);
        }
    }

    /// Merges the oldest entry into the next one.
    pub(super) fn merge_front(&mut self) {
        self.advance_head(1);
    }

    fn advance_head(&mut self, n: usize) {
        let ring = self.decode().expect("it has an entry");
        let head = (ring.head + n) % ring.capacity();
        self.set_head(head, ring.width);
        self.words[LEN] -= u32::try_from(n).expect("a log has fewer than 2^24 entries");
    }

    /// Copies the entries to a new allocation, with room for one more.
    fn rebuild(&mut self, next: Entry, capacity: usize) {
        let first = if self.len() == 0 { next } else { self.get(0) };
        let width = Width::least((next.time - first.time).max(next.sum));
        let mut ring = Ring::allocate(first.time, width, capacity);
        for i in 0..self.len() {
            ring.words[LEN] += 1;
            ring.put(i, self.get(i));
        }
        *self = ring;
    }

    /// An empty ring with room for at least `capacity` entries.
    fn allocate(base: u64, width: Width, capacity: usize) -> Self {
        // Fills what the allocator takes anyway.
        let words = heap_bytes(capacity, width) / WORD_BYTES - MALLOC_HEADER_WORDS;
        let size = words - (words - HEADER) % width as usize;
        // Zeroed by hand: `calloc` of glibc bypasses the thread's cache of freed memory.
        let mut words = Vec::with_capacity(size);
        words.push((width as u32) << HEAD_BITS);
        words.resize(size, 0);
        let mut ring = Ring {
            words: words.into_boxed_slice(),
        };
        ring.set_pair(BASE, base);
        ring
    }

    fn set_head(&mut self, head: usize, width: Width) {
        let head = u32::try_from(head).expect("a log has fewer than 2^24 entries");
        self.words[HEAD] = head | (width as u32) << HEAD_BITS;
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a wider number is split into words"
    )]
    fn put(&mut self, i: usize, entry: Entry) {
        let (header, entries) = self
            .words
            .split_first_chunk_mut()
            .expect("it has an allocation");
        let ring = RingRef::new(header, entries);
        let time = entry.time - ring.base;
        let sum = entry.sum + ring.dropped;
        let (at, width) = (ring.offset(i), ring.width);
        let words = &mut entries[at..at + width as usize];
        match width {
            Width::Narrow => words.copy_from_slice(&[time as u32, sum as u32]),
            Width::Wide => words.copy_from_slice(&[
                time as u32,
                (time >> 32) as u32 | (sum as u32) << 16,
                (sum >> 16) as u32,
            ]),
            Width::Whole => words.copy_from_slice(&[
                time as u32,
                (time >> 32) as u32,
                sum as u32,
                (sum >> 32) as u32,
            ]),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a wider number is split into words"
    )]
    fn set_pair(&mut self, at: usize, value: u64) {
        self.words[at] = value as u32;
        self.words[at + 1] = (value >> 32) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that glibc takes for a ring.
    fn taken(ring: &Ring) -> usize {
        (size_of_val(ring.words()) + 8).next_multiple_of(16)
    }

    #[test]
    fn a_ring_takes_40_bytes_and_its_entries_plus_a_quarter() {
        for (pace, width) in [(1, 8), (1 << 29, 12)] {
            let mut ring = Ring::default();
            for len in 1..=1_000_usize {
                let time = len as u64 * pace;
                let sum = len as u64;
                ring.push(Entry { time, sum }, 1_000);
                let wide = time >> 32 > 0;
                let entry = if wide { width } else { 8 };
                let expected = 48 + (len + len.div_ceil(4).max(2)) * entry;
                assert!(taken(&ring) <= expected, "{len}: {}", taken(&ring));
            }
            let period_us = 1_000 * pace;
            assert!(taken(&ring) <= Ring::max_heap_bytes(1_000, period_us));
        }
    }
}
