//! A log's entries: a few in place, anything else in a ring of their own memory. Knows nothing of
//! limits.
//!
//! What is in place has no room for when the newest one came: whoever keeps it knows, and says so.

use super::inline_entries::{Few, without};
use super::ring::{Coming, Entry, Ring};

/// The entries, oldest first.
#[derive(Clone)]
pub(super) enum Entries {
    Few(Few),
    Many(Ring),
}

impl Default for Entries {
    fn default() -> Self {
        Entries::Few(Few::default())
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
            Entries::Few(few) => few.len(),
            Entries::Many(ring) => ring.len(),
        }
    }

    #[inline(always)]
    pub(super) fn last(&self, newest: u64) -> Option<Entry> {
        match self {
            Entries::Few(few) => few.len().checked_sub(1).map(|i| few.get(i, newest)),
            Entries::Many(ring) => ring.last(),
        }
    }

    /// The entry at a position counted from the oldest, which must exist.
    #[inline(always)]
    pub(super) fn get(&self, i: usize, newest: u64) -> Entry {
        match self {
            Entries::Few(few) => few.get(i, newest),
            Entries::Many(ring) => ring.get(i),
        }
    }

    /// The units before an entry.
    #[inline(always)]
    pub(super) fn sum_before(&self, i: usize, newest: u64) -> u64 {
        i.checked_sub(1).map_or(0, |i| self.get(i, newest).sum)
    }

    /// The first position from `from` on whose entry passes a test that the rest pass too.
    #[inline]
    pub(super) fn first(&self, from: usize, newest: u64, passes: impl Fn(Entry) -> bool) -> usize {
        let (mut low, mut high) = (from, self.len());
        // The oldest entry is the likeliest answer.
        if low < high && passes(self.get(low, newest)) {
            return low;
        }
        while low < high {
            let middle = low.midpoint(high);
            if passes(self.get(middle, newest)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// Appends units if that is simple, as it nearly always is, and gives them all; none if not, with
    /// nothing changed.
    #[inline(always)]
    pub(super) fn append(&mut self, newest: u64, coming: Coming) -> Option<u64> {
        match self {
            Entries::Few(few) => {
                let (more, used) = few.append(newest, coming)?;
                *few = more;
                Some(used)
            }
            Entries::Many(ring) => ring.append(coming),
        }
    }

    /// Appends an entry later than the last. `likely` is the length it may well grow to.
    pub(super) fn push(&mut self, entry: Entry, newest: u64, likely: usize) {
        match self {
            Entries::Few(few) => {
                let (mut list, len) = (few.list(newest), few.len());
                list[len] = entry;
                *self = Entries::of(&list[..=len], likely);
            }
            Entries::Many(ring) => ring.push(entry, likely),
        }
    }

    /// Raises or lowers the sum of the last entry, which must exist.
    pub(super) fn amend(&mut self, entry: Entry) {
        match self {
            Entries::Few(few) => {
                let (mut list, len) = (few.list(entry.time), few.len());
                list[len - 1] = entry;
                *self = Entries::of(&list[..len], len);
            }
            Entries::Many(ring) => ring.amend(entry),
        }
    }

    /// Forgets all but the oldest `n` entries, which must exist.
    pub(super) fn truncate(&mut self, n: usize, newest: u64) {
        match self {
            Entries::Few(few) => *self = Entries::of(&few.list(newest)[..n], n),
            Entries::Many(ring) => ring.truncate(n),
        }
    }

    /// Takes units out of an entry, which must exist, as far as it has them; without any left it
    /// is gone. Gives the last entry then.
    pub(super) fn lower(&mut self, at: usize, units: u64, newest: u64) -> Option<Entry> {
        match self {
            Entries::Few(few) => {
                let (mut list, mut len) = (few.list(newest), few.len());
                let had = list[at].sum - at.checked_sub(1).map_or(0, |i| list[i].sum);
                let back = units.min(had);
                for entry in &mut list[at..len] {
                    entry.sum -= back;
                }
                if back == had {
                    list.copy_within(at + 1.., at);
                    len -= 1;
                }
                *self = Entries::of(&list[..len], len);
                list[..len].last().copied()
            }
            Entries::Many(ring) => {
                ring.lower(at, units);
                ring.last()
            }
        }
    }

    /// Forgets the oldest `n` entries and their units.
    pub(super) fn drop_front(&mut self, n: usize, newest: u64) {
        match self {
            Entries::Few(few) => {
                let mut list = few.list(newest);
                let kept = without(&mut list[..few.len()], n);
                *self = Entries::of(kept, kept.len());
            }
            Entries::Many(ring) => ring.drop_front(n),
        }
    }

    /// Forgets when the oldest entry came and counts its units with the next one, which must exist.
    pub(super) fn merge_front(&mut self, newest: u64) {
        match self {
            Entries::Few(few) => {
                *self = Entries::of(&few.list(newest)[1..few.len()], few.len());
            }
            Entries::Many(ring) => ring.merge_front(),
        }
    }

    /// Keeps a list of entries.
    fn of(list: &[Entry], likely: usize) -> Self {
        if let Some(few) = Few::of(list) {
            return Entries::Few(few);
        }
        let mut ring = Ring::default();
        list.iter().for_each(|&entry| ring.push(entry, likely));
        Entries::Many(ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_take_two_words() {
        assert_eq!(size_of::<Entries>(), 16);
    }

    #[test]
    fn what_no_longer_fits_in_place_moves_to_a_ring() {
        let entry = |time, sum| Entry { time, sum };
        let mut entries = Entries::default();
        for i in 1..=4 {
            entries.push(entry(i, i), i - 1, 10);
            assert_eq!(matches!(entries, Entries::Few(_)), i < 4, "{i} entries");
            assert_eq!(entries.last(i), Some(entry(i, i)));
        }
        assert_eq!((entries.len(), entries.get(0, 4)), (4, entry(1, 1)));

        let mut entries = Entries::default();
        entries.push(entry(7, 3), 0, 10);
        entries.push(entry(8, 5), 7, 10);
        entries.amend(entry(8, 5_000));
        assert!(matches!(entries, Entries::Many(_)));
        assert_eq!(
            (entries.get(0, 8), entries.last(8)),
            (entry(7, 3), Some(entry(8, 5_000)))
        );
    }
}
