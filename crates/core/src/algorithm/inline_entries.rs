//! Packs up to three entries into a `u64`, with times as offsets from the newest.

use super::ring::{Append, Entry};

const MAX_ENTRIES: usize = 3;

/// From the lowest bit: the count, the units of each entry, oldest first, and the age of each but the
/// newest.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct InlineEntries(u64);

const COUNT_BITS: usize = 2;
/// Bits for the units and the age of an entry, by the number of entries.
const UNIT_BITS: [usize; MAX_ENTRIES + 1] = [0, 62, 11, 3];
const AGE_BITS: [usize; MAX_ENTRIES + 1] = [0, 0, 40, 26];

/// The bit positions of an entry's units and age.
#[inline(always)]
fn positions(count: usize, i: usize) -> (usize, usize) {
    let units = COUNT_BITS + i * UNIT_BITS[count];
    let ages = COUNT_BITS + count * UNIT_BITS[count];
    (units, ages + i * AGE_BITS[count])
}

/// Shifts a number to a bit position; `None` if it has too many bits.
#[inline(always)]
fn shift(number: u64, bits: usize, at: usize) -> Option<u64> {
    (number >> bits == 0).then_some(number << at)
}

/// A list without its oldest `n` entries and their units.
pub(super) fn without_front(list: &mut [Entry], n: usize) -> &[Entry] {
    let dropped = n.checked_sub(1).map_or(0, |last| list[last].sum);
    let rest = &mut list[n..];
    rest.iter_mut().for_each(|entry| entry.sum -= dropped);
    rest
}

impl InlineEntries {
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        (self.0 % (1 << COUNT_BITS)) as usize
    }

    #[inline(always)]
    fn bits(self, bits: usize, at: usize) -> u64 {
        self.0 >> at & ((1 << bits) - 1)
    }

    /// The units and the age of an entry.
    #[inline(always)]
    fn units_and_age(self, count: usize, i: usize) -> (u64, u64) {
        let (units, age) = positions(count, i);
        let units = self.bits(UNIT_BITS[count], units);
        if i + 1 == count {
            (units, 0)
        } else {
            (units, self.bits(AGE_BITS[count], age))
        }
    }

    /// The entry at a position counted from the oldest, which must exist.
    #[inline(always)]
    fn entry(self, count: usize, i: usize, newest: u64) -> Entry {
        Entry {
            time: newest.saturating_sub(self.units_and_age(count, i).1),
            sum: (0..=i).map(|i| self.units_and_age(count, i).0).sum(),
        }
    }

    #[inline]
    pub(super) fn get(self, i: usize, newest: u64) -> Entry {
        self.entry(self.len(), i, newest)
    }

    /// All entries, and room for one more.
    pub(super) fn list(self, newest: u64) -> [Entry; MAX_ENTRIES + 1] {
        core::array::from_fn(|i| {
            if i < self.len() {
                self.get(i, newest)
            } else {
                Entry::default()
            }
        })
    }

    /// Whether so many entries of a few units each, all within a period, fit.
    pub(super) fn fit(count: usize, period_us: u64) -> bool {
        count <= 1 || count <= MAX_ENTRIES && period_us <= 1 << AGE_BITS[count]
    }

    /// Drops expired entries and appends one, if some are left, none is as late as `now`, and there is
    /// room. Returns the new entries and their sum.
    #[inline(always)]
    pub(super) fn try_append(self, newest: u64, append: Append) -> Option<(Self, u64)> {
        let live = if self.get(0, newest).time > append.after {
            self
        } else {
            self.without_expired(newest, append.after)?
        };
        match live.len() {
            1 => live.append::<1, 2>(newest, append),
            2 => live.append::<2, 3>(newest, append),
            _ => None,
        }
    }

    /// The live entries; `None` if there are none.
    #[inline(never)]
    fn without_expired(self, newest: u64, after: u64) -> Option<Self> {
        let mut list = self.list(newest);
        let list = &mut list[..self.len()];
        let first = list.iter().position(|entry| entry.time > after)?;
        InlineEntries::pack(without_front(list, first))
    }

    // Compiled for each number of entries.
    #[inline(always)]
    fn append<const COUNT: usize, const NEXT: usize>(
        self,
        newest: u64,
        append: Append,
    ) -> Option<(Self, u64)> {
        let mut entries = [Entry::default(); NEXT];
        for (i, entry) in entries.iter_mut().enumerate().take(COUNT) {
            *entry = self.entry(COUNT, i, newest);
        }
        let sum = entries[COUNT - 1].sum + u64::from(append.units);
        if newest >= append.now || sum > u64::from(append.max) {
            return None;
        }
        entries[COUNT] = Entry {
            time: append.now,
            sum,
        };
        Some((InlineEntries::pack(&entries)?, sum))
    }

    /// Packs entries, oldest first; `None` if they are too many or too large.
    #[inline(always)]
    pub(super) fn pack(entries: &[Entry]) -> Option<Self> {
        let count = entries.len();
        let newest = entries.last().map_or(0, |newest| newest.time);
        if count > MAX_ENTRIES {
            return None;
        }
        let (mut bits, mut before) = (count as u64, 0);
        for (i, entry) in entries.iter().enumerate() {
            let (units, age) = positions(count, i);
            bits |= shift(entry.sum - before, UNIT_BITS[count], units)?;
            if i + 1 < count {
                bits |= shift(newest - entry.time, AGE_BITS[count], age)?;
            }
            before = entry.sum;
        }
        Some(InlineEntries(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST: u64 = crate::MAX_TIME_US;

    /// Entries of ages and units.
    fn entries<const COUNT: usize>(list: [(u64, u64); COUNT]) -> [Entry; COUNT] {
        let mut sum = 0;
        list.map(|(age, units)| {
            sum += units;
            let time = NEWEST - age;
            Entry { time, sum }
        })
    }

    fn fits<const COUNT: usize>(list: [(u64, u64); COUNT]) -> bool {
        let entries = entries(list);
        let packed = InlineEntries::pack(&entries);
        if let Some(packed) = packed {
            assert_eq!(packed.len(), COUNT);
            assert_eq!(packed.list(NEWEST)[..COUNT], entries);
        }
        packed.is_some()
    }

    #[test]
    fn few_and_small_entries_unpack_to_themselves() {
        assert!(fits([]));
        assert!(fits([(0, 1)]));
        assert!(fits([(0, crate::MAX_UNITS)]));
        assert!(fits([((1 << 40) - 1, 2_047), (0, 2_047)]));
        assert!(fits([(1, 1), (0, 1)]));
        assert!(fits([((1 << 26) - 1, 7), ((1 << 26) - 2, 7), (0, 7)]));
        assert!(fits([(2, 1), (1, 2), (0, 3)]));
    }

    #[test]
    fn too_large_or_too_many_entries_do_not_fit() {
        assert!(!fits([(1 << 40, 1), (0, 1)]));
        assert!(!fits([(1, 2_048), (0, 1)]));
        assert!(!fits([(1, 1), (0, 2_048)]));
        assert!(!fits([(1 << 26, 1), (1, 1), (0, 1)]));
        assert!(!fits([(2, 8), (1, 1), (0, 1)]));
        assert!(!fits([(2, 1), (1, 1), (0, 8)]));
        assert!(!fits([(3, 1), (2, 1), (1, 1), (0, 1)]));
    }
}
