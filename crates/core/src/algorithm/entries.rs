//! A log's entries: up to three inline, more in a heap-allocated ring.
//!
//! Inline entries do not store the time of the newest: the caller passes it in.

use super::inline_entries::{InlineEntries, without_front};
use super::ring::{Append, Entry, Ring};

/// The entries, oldest first.
#[derive(Clone)]
pub(super) enum Entries {
    Inline(InlineEntries),
    Ring(Ring),
}

impl Default for Entries {
    fn default() -> Self {
        Entries::Inline(InlineEntries::default())
    }
}

impl Entries {
    /// The maximum heap memory of at most `len` entries of a few units each within a period.
    pub(super) fn max_heap_bytes(len: usize, period_us: u64) -> usize {
        if InlineEntries::fit(len, period_us) {
            0
        } else {
            Ring::max_heap_bytes(len, period_us)
        }
    }

    #[inline(always)]
    pub(super) fn heap(&self) -> &[u32] {
        match self {
            Entries::Inline(_) => &[],
            Entries::Ring(ring) => ring.words(),
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        match self {
            Entries::Inline(inline) => inline.len(),
            Entries::Ring(ring) => ring.len(),
        }
    }

    #[inline(always)]
    pub(super) fn last(&self, newest: u64) -> Option<Entry> {
        match self {
            Entries::Inline(inline) => inline.len().checked_sub(1).map(|i| inline.get(i, newest)),
            Entries::Ring(ring) => ring.last(),
        }
    }

    /// The entry at a position counted from the oldest, which must exist.
    #[inline(always)]
    pub(super) fn get(&self, i: usize, newest: u64) -> Entry {
        match self {
            Entries::Inline(inline) => inline.get(i, newest),
            Entries::Ring(ring) => ring.get(i),
        }
    }

    /// The units of all entries before this one.
    #[inline(always)]
    pub(super) fn sum_before(&self, i: usize, newest: u64) -> u64 {
        i.checked_sub(1).map_or(0, |i| self.get(i, newest).sum)
    }

    /// The first position from `from` on whose entry passes a test that all later ones pass too.
    #[inline]
    pub(super) fn first(&self, from: usize, newest: u64, passes: impl Fn(Entry) -> bool) -> usize {
        let (mut low, mut high) = (from, self.len());
        // The oldest entry is the most max result.
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

    /// Appends units if that needs neither a new allocation nor a merge. Returns the sum of all
    /// entries, or `None` with nothing changed.
    #[inline(always)]
    pub(super) fn try_append(&mut self, newest: u64, append: Append) -> Option<u64> {
        match self {
            Entries::Inline(inline) => {
                let (next, used) = inline.try_append(newest, append)?;
                *inline = next;
                Some(used)
            }
            Entries::Ring(ring) => ring.try_append(append),
        }
    }

    /// Appends an entry later than the last. `max` is the usual maximum length.
    pub(super) fn push(&mut self, entry: Entry, newest: u64, max: usize) {
        match self {
            Entries::Inline(inline) => {
                let (mut list, len) = (inline.list(newest), inline.len());
                list[len] = entry;
                *self = Entries::from_list(&list[..=len], max);
            }
            Entries::Ring(ring) => ring.push(entry, max),
        }
    }

    /// Raises or lowers the sum of the last entry, which must exist.
    pub(super) fn amend(&mut self, entry: Entry) {
        match self {
            Entries::Inline(inline) => {
                let (mut list, len) = (inline.list(entry.time), inline.len());
                list[len - 1] = entry;
                *self = Entries::from_list(&list[..len], len);
            }
            Entries::Ring(ring) => ring.amend(entry),
        }
    }

    /// Drops all but the oldest `n` entries, which must exist.
    pub(super) fn truncate(&mut self, n: usize, newest: u64) {
        match self {
            Entries::Inline(inline) => *self = Entries::from_list(&inline.list(newest)[..n], n),
            Entries::Ring(ring) => ring.truncate(n),
        }
    }

    /// Removes units from an entry, which must exist, and the entry itself if none are left. Returns
    /// the last entry.
    pub(super) fn lower(&mut self, at: usize, units: u64, newest: u64) -> Option<Entry> {
        match self {
            Entries::Inline(inline) => {
                let (mut list, mut len) = (inline.list(newest), inline.len());
                let had = list[at].sum - at.checked_sub(1).map_or(0, |i| list[i].sum);
                let removed = units.min(had);
                for entry in &mut list[at..len] {
                    entry.sum -= removed;
                }
                if removed == had {
                    list.copy_within(at + 1.., at);
                    len -= 1;
                }
                *self = Entries::from_list(&list[..len], len);
                list[..len].last().copied()
            }
            Entries::Ring(ring) => {
                ring.lower(at, units);
                ring.last()
            }
        }
    }

    /// Drops the oldest `n` entries and their units.
    pub(super) fn drop_front(&mut self, n: usize, newest: u64) {
        match self {
            Entries::Inline(inline) => {
                let mut list = inline.list(newest);
                let rest = without_front(&mut list[..inline.len()], n);
                *self = Entries::from_list(rest, rest.len());
            }
            Entries::Ring(ring) => ring.drop_front(n),
        }
    }

    /// Merges the oldest entry into the next one, which must exist.
    pub(super) fn merge_front(&mut self, newest: u64) {
        match self {
            Entries::Inline(inline) => {
                *self = Entries::from_list(&inline.list(newest)[1..inline.len()], inline.len());
            }
            Entries::Ring(ring) => ring.merge_front(),
        }
    }

    fn from_list(list: &[Entry], max: usize) -> Self {
        if let Some(inline) = InlineEntries::pack(list) {
            return Entries::Inline(inline);
        }
        Entries::Ring(Ring::from_entries(list, max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_take_16_bytes() {
        assert_eq!(size_of::<Entries>(), 16);
    }

    #[test]
    fn entries_that_no_longer_fit_inline_move_to_a_ring() {
        let entry = |time, sum| Entry { time, sum };
        let mut entries = Entries::default();
        for i in 1..=4 {
            entries.push(entry(i, i), i - 1, 10);
            assert_eq!(matches!(entries, Entries::Inline(_)), i < 4, "{i} entries");
            assert_eq!(entries.last(i), Some(entry(i, i)));
        }
        assert_eq!((entries.len(), entries.get(0, 4)), (4, entry(1, 1)));

        let mut entries = Entries::default();
        entries.push(entry(7, 3), 0, 10);
        entries.push(entry(8, 5), 7, 10);
        entries.amend(entry(8, 5_000));
        assert!(matches!(entries, Entries::Ring(_)));
        assert_eq!(
            (entries.get(0, 8), entries.last(8)),
            (entry(7, 3), Some(entry(8, 5_000)))
        );
    }
}
