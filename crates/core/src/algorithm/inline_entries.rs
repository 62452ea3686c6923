//! Up to three entries in one number, told by how long before the newest they came. Knows nothing of
//! limits.

use super::ring::{Coming, Entry};

/// The most there may be.
pub(super) const MOST: usize = 3;

/// From the lowest bit on: how many, the units of each, oldest first, and how long before the newest
/// one each of the others came.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Few(u64);

const COUNT_BITS: usize = 2;
/// Bits for the units of one, and for how long before the newest one came, by how many there are.
const UNIT_BITS: [usize; MOST + 1] = [0, 62, 11, 3];
const AGE_BITS: [usize; MOST + 1] = [0, 0, 40, 26];

/// Where the units of one are, and how long before the newest it came.
#[inline(always)]
fn places(count: usize, i: usize) -> (usize, usize) {
    let units = COUNT_BITS + i * UNIT_BITS[count];
    let ages = COUNT_BITS + count * UNIT_BITS[count];
    (units, ages + i * AGE_BITS[count])
}

/// A number of so many bits, put somewhere; none if it has more.
#[inline(always)]
fn put(number: u64, bits: usize, at: usize) -> Option<u64> {
    (number >> bits == 0).then_some(number << at)
}

/// A list without its oldest `n` entries and their units.
pub(super) fn without(list: &mut [Entry], n: usize) -> &[Entry] {
    let gone = n.checked_sub(1).map_or(0, |last| list[last].sum);
    let kept = &mut list[n..];
    kept.iter_mut().for_each(|entry| entry.sum -= gone);
    kept
}

impl Few {
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        (self.0 % (1 << COUNT_BITS)) as usize
    }

    #[inline(always)]
    fn cut(self, bits: usize, at: usize) -> u64 {
        self.0 >> at & ((1 << bits) - 1)
    }

    /// What one of so many took, and how long before the newest.
    #[inline(always)]
    fn one(self, count: usize, i: usize) -> (u64, u64) {
        let (units, age) = places(count, i);
        let units = self.cut(UNIT_BITS[count], units);
        if i + 1 == count {
            (units, 0)
        } else {
            (units, self.cut(AGE_BITS[count], age))
        }
    }

    /// The one at a position counted from the oldest, which must exist, given how many there are and
    /// when the newest one came.
    #[inline(always)]
    fn entry(self, count: usize, i: usize, newest: u64) -> Entry {
        Entry {
            time: newest.saturating_sub(self.one(count, i).1),
            sum: (0..=i).map(|i| self.one(count, i).0).sum(),
        }
    }

    #[inline]
    pub(super) fn get(self, i: usize, newest: u64) -> Entry {
        self.entry(self.len(), i, newest)
    }

    /// All of them and room for one more.
    pub(super) fn list(self, newest: u64) -> [Entry; MOST + 1] {
        core::array::from_fn(|i| {
            if i < self.len() {
                self.get(i, newest)
            } else {
                Entry::default()
            }
        })
    }

    /// Forgets entries that no longer count and appends units if that is simple: some are left, none
    /// as late as now, and there is room for one more. Gives what there is then, and the units.
    #[inline(always)]
    pub(super) fn append(self, newest: u64, coming: Coming) -> Option<(Self, u64)> {
        let few = if self.get(0, newest).time > coming.after {
            self
        } else {
            self.later_than(newest, coming.after)?
        };
        match few.len() {
            1 => few.grown::<1, 2>(newest, coming),
            2 => few.grown::<2, 3>(newest, coming),
            _ => None,
        }
    }

    /// Those that are later; none if there are none.
    #[inline(never)]
    fn later_than(self, newest: u64, after: u64) -> Option<Self> {
        let mut list = self.list(newest);
        let list = &mut list[..self.len()];
        let first = list.iter().position(|entry| entry.time > after)?;
        Few::of(without(list, first))
    }

    // Compiled for each number of them.
    #[inline(always)]
    fn grown<const COUNT: usize, const MORE: usize>(
        self,
        newest: u64,
        coming: Coming,
    ) -> Option<(Self, u64)> {
        let mut entries = [Entry::default(); MORE];
        for (i, entry) in entries.iter_mut().enumerate().take(COUNT) {
            *entry = self.entry(COUNT, i, newest);
        }
        let sum = entries[COUNT - 1].sum + u64::from(coming.units);
        if newest >= coming.now || sum > u64::from(coming.most) {
            return None;
        }
        entries[COUNT] = Entry {
            time: coming.now,
            sum,
        };
        Some((Few::of(&entries)?, sum))
    }

    /// Keeps entries, oldest first, if they are few and small enough.
    #[inline(always)]
    pub(super) fn of(entries: &[Entry]) -> Option<Self> {
        let count = entries.len();
        let newest = entries.last().map_or(0, |newest| newest.time);
        if count > MOST {
            return None;
        }
        let (mut bits, mut before) = (count as u64, 0);
        for (i, entry) in entries.iter().enumerate() {
            let (units, age) = places(count, i);
            bits |= put(entry.sum - before, UNIT_BITS[count], units)?;
            if i + 1 < count {
                bits |= put(newest - entry.time, AGE_BITS[count], age)?;
            }
            before = entry.sum;
        }
        Some(Few(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST: u64 = crate::MAX_TIME_US;

    /// Entries of so many units each, that long before the newest.
    fn entries<const COUNT: usize>(told: [(u64, u64); COUNT]) -> [Entry; COUNT] {
        let mut sum = 0;
        told.map(|(age, units)| {
            sum += units;
            let time = NEWEST - age;
            Entry { time, sum }
        })
    }

    fn kept<const COUNT: usize>(told: [(u64, u64); COUNT]) -> bool {
        let entries = entries(told);
        let few = Few::of(&entries);
        if let Some(few) = few {
            assert_eq!(few.len(), COUNT);
            assert_eq!(few.list(NEWEST)[..COUNT], entries);
        }
        few.is_some()
    }

    #[test]
    fn few_and_small_entries_are_kept_as_they_are() {
        assert!(kept([]));
        assert!(kept([(0, 1)]));
        assert!(kept([(0, crate::MAX_UNITS)]));
        assert!(kept([((1 << 40) - 1, 2_047), (0, 2_047)]));
        assert!(kept([(1, 1), (0, 1)]));
        assert!(kept([((1 << 26) - 1, 7), ((1 << 26) - 2, 7), (0, 7)]));
        assert!(kept([(2, 1), (1, 2), (0, 3)]));
    }

    #[test]
    fn larger_or_more_ones_are_not() {
        assert!(!kept([(1 << 40, 1), (0, 1)]));
        assert!(!kept([(1, 2_048), (0, 1)]));
        assert!(!kept([(1, 1), (0, 2_048)]));
        assert!(!kept([(1 << 26, 1), (1, 1), (0, 1)]));
        assert!(!kept([(2, 8), (1, 1), (0, 1)]));
        assert!(!kept([(2, 1), (1, 1), (0, 8)]));
        assert!(!kept([(3, 1), (2, 1), (1, 1), (0, 1)]));
    }
}
