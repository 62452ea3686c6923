//! A queue of (time, running sum) entries in as few bytes as they need. Knows nothing of limits.
//!
//! One allocation holds a short header and the entries; an entry is 8 bytes while times and sums
//! stay within 2^32 of the first, 12 within 2^48, 16 beyond. Both grow along the queue, so that a
//! moment or an amount is found by halving.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// One instant and the units of the queue up to and including it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) time: u64,
    pub(super) sum: u64,
}

/// Units to append at a moment, `most` with all that came later than `after`.
#[derive(Clone, Copy)]
pub(super) struct Coming {
    pub(super) now: u64,
    pub(super) units: u32,
    pub(super) after: u64,
    pub(super) most: u32,
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

/// What a ring's header says, read once, and the words of its entries.
#[derive(Clone, Copy)]
struct Open<'a> {
    width: Width,
    head: usize,
    len: usize,
    /// What the times of entries count from.
    time: u64,
    /// What their sums have too much.
    dropped: u64,
    entries: &'a [u32],
}

impl<'a> Open<'a> {
    #[inline]
    fn new(header: &[u32; HEADER], entries: &'a [u32]) -> Self {
        let pair = |at: usize| u64::from(header[at]) | u64::from(header[at + 1]) << 32;
        Open {
            width: match header[HEAD] >> HEAD_BITS {
                2 => Width::Narrow,
                3 => Width::Wide,
                _ => Width::Whole,
            },
            head: (header[HEAD] & ((1 << HEAD_BITS) - 1)) as usize,
            len: header[LEN] as usize,
            time: pair(TIME),
            dropped: pair(DROPPED),
            entries,
        }
    }

    #[inline]
    fn capacity(self) -> usize {
        let words = self.entries.len();
        // Divisions by a number that is known are cheap.
        match self.width {
            Width::Narrow => words / 2,
            Width::Wide => words / 3,
            Width::Whole => words / 4,
        }
    }

    /// Whether its memory is large enough for one more, and not far too large.
    #[inline]
    fn has_room(self) -> bool {
        let capacity = self.capacity();
        self.len < capacity && (capacity <= 16 || self.len >= capacity / 4)
    }

    #[inline]
    fn fits(self, entry: Entry) -> bool {
        let half = self.width.half();
        let below = |value: Option<u64>| value.is_some_and(|v| half == 64 || v >> half == 0);
        below(entry.time.checked_sub(self.time)) && below(entry.sum.checked_add(self.dropped))
    }

    /// Where an entry is.
    #[inline]
    fn place(self, i: usize) -> usize {
        let at = (self.head + i) * self.width as usize;
        // Room for whole entries only: the queue goes round at the end of its memory.
        let end = self.entries.len();
        if at < end { at } else { at - end }
    }

    /// A narrow entry as it is kept.
    #[inline(always)]
    fn narrow(self, i: usize) -> Option<[u32; 2]> {
        self.entries.get(self.place(i)..)?.first_chunk().copied()
    }

    /// A queue of narrow entries without those that are no later; none if there are more than a few
    /// of those, or no others.
    // Apart from the way of those that forget none.
    #[inline(never)]
    fn later_than(mut self, after: u64) -> Option<Self> {
        const FEW: usize = 4;
        for _ in 0..=FEW.min(self.len.checked_sub(1)?) {
            let [time, sum] = self.narrow(0)?;
            if self.time + u64::from(time) > after {
                return Some(self);
            }
            let next = self.head + 1;
            self.head = if next < self.capacity() { next } else { 0 };
            self.len -= 1;
            self.dropped = sum.into();
        }
        None
    }

    /// An entry as it is kept.
    #[inline]
    fn raw(self, i: usize) -> Entry {
        let at = self.place(i);
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
            time: self.time + raw.time,
            sum: raw.sum - self.dropped,
        }
    }
}

impl Ring {
    /// All its memory.
    #[inline]
    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }

    /// None as long as it holds no memory.
    #[inline]
    fn open(&self) -> Option<Open<'_>> {
        let (header, entries) = self.words.split_first_chunk()?;
        Some(Open::new(header, entries))
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.words.get(LEN).map_or(0, |&len| len as usize)
    }

    #[inline]
    pub(super) fn last(&self) -> Option<Entry> {
        let open = self.open()?;
        open.len.checked_sub(1).map(|i| open.get(i))
    }

    /// The entry at a position counted from the oldest, which must exist.
    #[inline]
    pub(super) fn get(&self, i: usize) -> Entry {
        self.open().expect("it has an entry").get(i)
    }

    /// Forgets entries that no longer count and appends units if that is simple: few to forget, none
    /// as late as now, and room for one more as it is kept. Gives the units then.
    // What nearly every request that is admitted comes to, in a third of the instructions.
    #[inline(always)]
    pub(super) fn append(&mut self, coming: Coming) -> Option<u64> {
        let Coming {
            now,
            units,
            after,
            most,
        } = coming;
        let was = self.open()?;
        if was.width != Width::Narrow {
            return None;
        }
        let [oldest, _] = was.narrow(0)?;
        let open = if was.time + u64::from(oldest) > after {
            was
        } else {
            was.later_than(after)?
        };
        if !open.has_room() {
            return None;
        }
        let time = u32::try_from(now.checked_sub(open.time)?).ok()?;
        let [newest, sum] = open.narrow(open.len.checked_sub(1)?)?;
        let used = u64::from(sum) - open.dropped + u64::from(units);
        if time <= newest || used > u64::from(most) {
            return None;
        }
        let entry = [time, sum.checked_add(units)?];
        let at = HEADER + open.place(open.len);
        let forgotten = was.len - open.len;
        if forgotten > 0 {
            self.drop_front(forgotten);
        }
        let room = self.words[at..].first_chunk_mut();
        *room.expect("it is for whole entries") = entry;
        self.words[LEN] += 1;
        Some(used)
    }

    /// Appends an entry no older than the last. `likely` is the length it may well grow to.
    pub(super) fn push(&mut self, entry: Entry, likely: usize) {
        let opened = self.open();
        let (len, capacity) = opened.map_or((0, 0), |open| (open.len, open.capacity()));
        if !opened.is_some_and(Open::has_room) {
            // Small steps: there may be a million of these, each of a few entries. But new memory
            // costs as much as two decisions, so that the first steps are to six and to ten.
            let grown = match len {
                0 => 6,
                1..=6 => 10,
                7.. => len + (len / 4).max(2),
            };
            let capacity = if len < likely {
                grown.min(likely)
            } else {
                grown
            };
            self.rebuild(entry, capacity);
        } else if !opened.is_some_and(|open| open.fits(entry)) {
            self.rebuild(entry, capacity);
        }
        self.words[LEN] += 1;
        self.put(len, entry);
    }

    /// Raises or lowers the sum of the last entry, which must exist.
    pub(super) fn amend(&mut self, entry: Entry) {
        let open = self.open().expect("it has an entry");
        let (last, capacity) = (open.len - 1, open.capacity());
        if !open.fits(entry) {
            self.rebuild(entry, capacity);
        }
        self.put(last, entry);
    }

    /// Forgets all but the oldest `n` entries, which must exist.
    pub(super) fn truncate(&mut self, n: usize) {
        self.words[LEN] = u32::try_from(n).expect("a log has fewer than 2^24 entries");
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
        if let Some(last) = n.checked_sub(1) {
            let dropped = self.open().expect("it has an entry").raw(last).sum;
            self.set_pair(DROPPED, dropped);
            self.advance_head(n);
        }
    }

    /// Forgets when the oldest entry came and counts its units with the next one.
    pub(super) fn merge_front(&mut self) {
        self.advance_head(1);
    }

    fn advance_head(&mut self, n: usize) {
        let open = self.open().expect("it has an entry");
        let head = (open.head + n) % open.capacity();
        self.set_head(head, open.width);
        self.words[LEN] -= u32::try_from(n).expect("a log has fewer than 2^24 entries");
    }

    /// Copies everything to new memory, with room for an entry to come.
    fn rebuild(&mut self, coming: Entry, capacity: usize) {
        let first = if self.len() == 0 { coming } else { self.get(0) };
        let width = Width::least((coming.time - first.time).max(coming.sum));
        let size = HEADER + capacity * width as usize;
        // Zeroed here: for memory that it is to zero, glibc passes by what the thread has given back.
        let mut words = Vec::with_capacity(size);
        words.push((width as u32) << HEAD_BITS);
        words.resize(size, 0);
        let mut next = Ring {
            words: words.into_boxed_slice(),
        };
        next.set_pair(TIME, first.time);
        for i in 0..self.len() {
            next.words[LEN] += 1;
            next.put(i, self.get(i));
        }
        *self = next;
    }

    fn set_head(&mut self, head: usize, width: Width) {
        let head = u32::try_from(head).expect("a log has fewer than 2^24 entries");
        self.words[HEAD] = head | (width as u32) << HEAD_BITS;
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "words are cut out of wider numbers"
    )]
    fn put(&mut self, i: usize, entry: Entry) {
        let (header, entries) = self.words.split_first_chunk_mut().expect("it has room");
        let open = Open::new(header, entries);
        let time = entry.time - open.time;
        let sum = entry.sum + open.dropped;
        let (at, width) = (open.place(i), open.width);
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
        reason = "words are cut out of wider numbers"
    )]
    fn set_pair(&mut self, at: usize, value: u64) {
        self.words[at] = value as u32;
        self.words[at + 1] = (value >> 32) as u32;
    }
}
