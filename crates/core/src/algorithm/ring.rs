//! A queue of (time, running sum) entries in as few bytes as they need. Knows nothing of limits.
//!
//! One allocation holds a short header and the entries; an entry is 8 bytes while times and sums
//! stay within 2^32 of the first, 12 within 2^48, 16 beyond. Both grow along the queue, so that a
//! moment or an amount is found by halving.

use alloc::boxed::Box;
use alloc::vec;

/// One instant and the units of the queue up to and including it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) time: u64,
    pub(super) sum: u64,
}

/// The queue. Empty, it holds no memory.
#[derive(Clone, Default)]
pub(super) struct Ring {
    words: Box<[u32]>,
}

// The header: the width and the head in one word, the length, the time that entries count from,
// the sum of what was dropped.
const HEAD: usize = 0;
const LEN: usize = 1;
const TIME: usize = 2;
const DROPPED: usize = 4;
const HEADER: usize = 6;
const HEAD_BITS: u32 = 24;

/// Words an entry; each half of it has 16 bits a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    Narrow = 2,
    Wide = 3,
    Whole = 4,
}

impl Width {
    fn half(self) -> u32 {
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

impl Ring {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.words.get(LEN).map_or(0, |&len| len as usize)
    }

    #[inline]
    pub(super) fn last(&self) -> Option<Entry> {
        self.len().checked_sub(1).map(|i| self.get(i))
    }

    /// The entry at a position counted from the oldest, which must exist.
    #[inline]
    pub(super) fn get(&self, i: usize) -> Entry {
        let raw = self.raw(i);
        Entry {
            time: self.pair(TIME) + raw.time,
            sum: raw.sum - self.pair(DROPPED),
        }
    }

    /// Appends an entry no older than the last. `likely` is the length it may well grow to.
    pub(super) fn push(&mut self, entry: Entry, likely: usize) {
        let len = self.len();
        let capacity = self.capacity();
        if len == capacity || (capacity > 16 && len < capacity / 4) {
            // Small steps: there may be a million of these, each of a few entries. But new memory
            // costs as much as a decision, so that the second step is to ten.
            let grown = match len {
                0 => 4,
                1..=4 => len + 6,
                5.. => len + (len / 4).max(2),
            };
            let capacity = if len < likely {
                grown.min(likely)
            } else {
                grown
            };
            self.rebuild(entry, capacity);
        } else if !self.fits(entry) {
            self.rebuild(entry, capacity);
        }
        self.words[LEN] += 1;
        self.put(len, entry);
    }

    /// Raises or lowers the sum of the last entry, which must exist.
    pub(super) fn amend(&mut self, entry: Entry) {
        let last = self.len() - 1;
        if !self.fits(entry) {
            self.rebuild(entry, self.capacity());
        }
        self.put(last, entry);
    }

    /// Forgets the newest entry.
    pub(super) fn pop(&mut self) {
        self.words[LEN] -= 1;
    }

    /// Takes units out of an entry, which must exist, as far as it has them; without any left it
    /// is gone. The sums after it fall by as much.
    pub(super) fn lower(&mut self, at: usize, units: u64) {
        let before = at.checked_sub(1).map_or(0, |i| self.get(i).sum);
        let had = self.get(at).sum - before;
        let back = units.min(had);
        let gone = usize::from(back == had);
        for i in at..self.len() - gone {
            let Entry { time, sum } = self.get(i + gone);
            self.put(
                i,
                Entry {
                    time,
                    sum: sum - back,
                },
            );
        }
        self.words[LEN] -= u32::from(gone > 0);
    }

    /// Forgets the oldest `n` entries and their units.
    pub(super) fn drop_front(&mut self, n: usize) {
        if n > 0 {
            let dropped = self.raw(n - 1).sum;
            self.set_pair(DROPPED, dropped);
            self.advance_head(n);
        }
    }

    /// Forgets when the oldest entry came and counts its units with the next one.
    pub(super) fn merge_front(&mut self) {
        self.advance_head(1);
    }

    fn advance_head(&mut self, n: usize) {
        let head = (self.head() + n) % self.capacity();
        self.set_head(head, self.width());
        self.words[LEN] -= u32::try_from(n).expect("a log has fewer than 2^24 entries");
    }

    #[inline]
    fn fits(&self, entry: Entry) -> bool {
        let half = self.width().half();
        let below = |value: Option<u64>| value.is_some_and(|v| half == 64 || v >> half == 0);
        below(entry.time.checked_sub(self.pair(TIME)))
            && below(entry.sum.checked_add(self.pair(DROPPED)))
    }

    /// Copies everything to new memory, with room for an entry to come.
    fn rebuild(&mut self, coming: Entry, capacity: usize) {
        let first = if self.len() == 0 { coming } else { self.get(0) };
        let width = Width::least((coming.time - first.time).max(coming.sum));
        let mut next = Ring {
            words: vec![0; HEADER + capacity * width as usize].into_boxed_slice(),
        };
        next.set_head(0, width);
        next.set_pair(TIME, first.time);
        for i in 0..self.len() {
            next.words[LEN] += 1;
            next.put(i, self.get(i));
        }
        *self = next;
    }

    #[inline]
    fn width(&self) -> Width {
        match self.words[HEAD] >> HEAD_BITS {
            2 => Width::Narrow,
            3 => Width::Wide,
            _ => Width::Whole,
        }
    }

    #[inline]
    fn head(&self) -> usize {
        (self.words[HEAD] & ((1 << HEAD_BITS) - 1)) as usize
    }

    fn set_head(&mut self, head: usize, width: Width) {
        let head = u32::try_from(head).expect("a log has fewer than 2^24 entries");
        self.words[HEAD] = head | (width as u32) << HEAD_BITS;
    }

    #[inline]
    fn capacity(&self) -> usize {
        match self.words.len().checked_sub(HEADER) {
            // Divisions by a number that is known are cheap.
            Some(words) => match self.width() {
                Width::Narrow => words / 2,
                Width::Wide => words / 3,
                Width::Whole => words / 4,
            },
            None => 0,
        }
    }

    #[inline]
    fn place(&self, i: usize, width: Width) -> usize {
        let at = HEADER + (self.head() + i) * width as usize;
        // Room for whole entries only: the queue goes round at the end of its memory.
        let end = self.words.len();
        if at < end { at } else { at - (end - HEADER) }
    }

    #[inline]
    fn raw(&self, i: usize) -> Entry {
        let width = self.width();
        let at = self.place(i, width);
        let w = |k: usize| u64::from(self.words[at + k]);
        match width {
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

    #[expect(
        clippy::cast_possible_truncation,
        reason = "words are cut out of wider numbers"
    )]
    fn put(&mut self, i: usize, entry: Entry) {
        let time = entry.time - self.pair(TIME);
        let sum = entry.sum + self.pair(DROPPED);
        let width = self.width();
        let at = self.place(i, width);
        let words = &mut self.words[at..at + width as usize];
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

    #[inline]
    fn pair(&self, at: usize) -> u64 {
        u64::from(self.words[at]) | u64::from(self.words[at + 1]) << 32
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "words are cut out of wider numbers"
    )]
    fn set_pair(&mut self, at: usize, value: u64) {
        self.words[at] = value as u32;
        self.words[at + 1] = (value >> 32) as u32;
    }
}
