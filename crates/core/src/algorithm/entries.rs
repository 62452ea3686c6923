//! A log's entries: none or a small one in place, anything else in a ring of their own memory.
//! Knows nothing of limits.

use super::ring::{Entry, Ring};

/// The entries, oldest first.
#[derive(Clone)]
pub(super) enum Entries {
    /// At most one: 53 bits of time and 11 of units; 0 for none, as no entry is without units.
    Few(u64),
    Many(Ring),
}

const UNIT_BITS: u32 = 11;
const MOST_UNITS: u64 = (1 << UNIT_BITS) - 1;

impl Default for Entries {
    fn default() -> Self {
        Entries::Few(0)
    }
}

impl Entry {
    #[inline]
    fn unpacked(packed: u64) -> Option<Self> {
        (packed != 0).then_some(Entry {
            time: packed >> UNIT_BITS,
            sum: packed & MOST_UNITS,
        })
    }

    #[inline]
    fn packed(self) -> Option<u64> {
        let fits = self.sum <= MOST_UNITS && self.time >> (u64::BITS - UNIT_BITS) == 0;
        fits.then_some(self.time << UNIT_BITS | self.sum)
    }
}

impl Entries {
    /// The memory that is not in place.
    #[inline(always)]
    pub(super) fn elsewhere(&self) -> &[u32] {
        match self {
            Entries::Few(_) => &[],
            Entries::Many(ring) => ring.words(),
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        match self {
            Entries::Few(one) => usize::from(*one != 0),
            Entries::Many(ring) => ring.len(),
        }
    }

    #[inline(always)]
    pub(super) fn last(&self) -> Option<Entry> {
        match self {
            Entries::Few(one) => Entry::unpacked(*one),
            Entries::Many(ring) => ring.last(),
        }
    }

    /// The entry at a position counted from the oldest, which must exist.
    #[inline(always)]
    pub(super) fn get(&self, i: usize) -> Entry {
        match self {
            Entries::Few(one) => Entry::unpacked(*one).expect("it exists"),
            Entries::Many(ring) => ring.get(i),
        }
    }

    /// The units before an entry.
    #[inline(always)]
    pub(super) fn sum_before(&self, i: usize) -> u64 {
        i.checked_sub(1).map_or(0, |i| self.get(i).sum)
    }

    /// The first position from `from` on whose entry passes a test that the rest pass too.
    #[inline]
    pub(super) fn first(&self, from: usize, passes: impl Fn(Entry) -> bool) -> usize {
        let (mut low, mut high) = (from, self.len());
        // The oldest entry is the likeliest answer.
        if low < high && passes(self.get(low)) {
            return low;
        }
        while low < high {
            let middle = low.midpoint(high);
            if passes(self.get(middle)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// Appends units in the shortest way; none if that is not to be had.
    #[inline(always)]
    pub(super) fn append(&mut self, now: u64, units: u32, after: u64, most: u32) -> Option<u64> {
        match self {
            Entries::Few(_) => None,
            Entries::Many(ring) => ring.append(now, units, after, most),
        }
    }

    /// Appends an entry no older than the last. `likely` is the length it may well grow to.
    pub(super) fn push(&mut self, entry: Entry, likely: usize) {
        match (&mut *self, entry.packed()) {
            (Entries::Many(ring), _) => ring.push(entry, likely),
            (Entries::Few(one @ 0), Some(packed)) => *one = packed,
            (Entries::Few(one), _) => {
                let mut ring = Ring::default();
                if let Some(one) = Entry::unpacked(*one) {
                    ring.push(one, likely);
                }
                ring.push(entry, likely);
                *self = Entries::Many(ring);
            }
        }
    }

    /// Raises or lowers the sum of the last entry, which must exist.
    pub(super) fn amend(&mut self, entry: Entry) {
        match (&mut *self, entry.packed()) {
            (Entries::Many(ring), _) => ring.amend(entry),
            (Entries::Few(one), Some(packed)) => *one = packed,
            (Entries::Few(_), None) => {
                let mut ring = Ring::default();
                ring.push(entry, 1);
                *self = Entries::Many(ring);
            }
        }
    }

    /// Forgets the newest entry.
    pub(super) fn pop(&mut self) {
        match self {
            Entries::Few(one) => *one = 0,
            Entries::Many(ring) => ring.pop(),
        }
    }

    /// Takes units out of an entry, which must exist, as far as it has them; without any left it
    /// is gone.
    pub(super) fn lower(&mut self, at: usize, units: u64) {
        match self {
            Entries::Few(one) => {
                let left = (*one & MOST_UNITS).saturating_sub(units);
                *one = if left == 0 {
                    0
                } else {
                    *one & !MOST_UNITS | left
                };
            }
            Entries::Many(ring) => ring.lower(at, units),
        }
    }

    /// Forgets the oldest `n` entries and their units.
    pub(super) fn drop_front(&mut self, n: usize) {
        match self {
            Entries::Few(one) if n > 0 => *one = 0,
            Entries::Few(_) => {}
            Entries::Many(ring) => ring.drop_front(n),
        }
    }

    /// Forgets when the oldest entry came and counts its units with the next one.
    pub(super) fn merge_front(&mut self) {
        match self {
            // There is no next one.
            Entries::Few(_) => {}
            Entries::Many(ring) => ring.merge_front(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_one_entry_has_no_memory_of_its_own() {
        let mut entries = Entries::default();
        let one = Entry {
            time: crate::MAX_TIME_US,
            sum: MOST_UNITS,
        };
        entries.push(one, 10);
        assert!(matches!(entries, Entries::Few(_)));
        assert_eq!((entries.len(), entries.last()), (1, Some(one)));
        assert_eq!(size_of::<Entries>(), 16);
    }

    #[test]
    fn what_no_longer_fits_in_place_moves_to_a_ring() {
        let one = Entry { time: 7, sum: 3 };
        let large = Entry {
            time: 7,
            sum: MOST_UNITS + 1,
        };
        let two = Entry { time: 8, sum: 5 };
        let mut entries = Entries::default();
        entries.push(one, 10);
        entries.push(two, 10);
        assert_eq!((entries.get(0), entries.get(1)), (one, two));
        assert_eq!((entries.len(), entries.sum_before(1)), (2, 3));

        let mut entries = Entries::default();
        entries.push(one, 10);
        entries.amend(large);
        assert_eq!((entries.len(), entries.last()), (1, Some(large)));

        let mut entries = Entries::default();
        entries.push(large, 10);
        assert_eq!((entries.len(), entries.last()), (1, Some(large)));
        entries.drop_front(1);
        assert_eq!((entries.len(), entries.last()), (0, None));
    }
}
