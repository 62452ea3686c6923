//! A hash map from ids, which are hashes already, to small values in one array.
//!
//! Entries are dense, so that a map of n is dropped in two steps however large it is. An index with
//! open addressing has their positions; the last entry takes the place of one that is removed.

use alloc::vec::Vec;

use crate::math::narrow;

/// No entry; also the vacant mark of the index.
pub(super) const NONE: u32 = u32::MAX;

/// Up to this many entries are searched without an index.
const MAX_UNINDEXED: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct IdMap<T> {
    entries: Vec<(u64, T)>,
    /// A power of two of positions, at most half of them in use. Empty if there are few entries.
    index: Vec<u32>,
}

impl<T> Default for IdMap<T> {
    fn default() -> Self {
        IdMap {
            entries: Vec::new(),
            index: Vec::new(),
        }
    }
}

/// Whatever the order of the entries.
impl<T: PartialEq> PartialEq for IdMap<T> {
    fn eq(&self, other: &Self) -> bool {
        let is_in_other = |(id, value): &(u64, T)| {
            let found = other.find(*id);
            found.is_some_and(|at| other.at(at).1 == *value)
        };
        self.len() == other.len() && self.iter().all(is_in_other)
    }
}

impl<T: Eq> Eq for IdMap<T> {}

impl<T> IdMap<T> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(u64, T)> {
        self.entries.iter()
    }

    /// The position of an id; it is valid until an entry is removed.
    #[inline]
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        if self.index.is_empty() {
            let at = self.entries.iter().position(|(other, _)| *other == id)?;
            return Some(narrow(at as u64));
        }
        let at = self.index[self.slot(id)];
        (at != NONE).then_some(at)
    }

    /// The id and the value at a position.
    #[inline]
    pub(super) fn at(&self, position: u32) -> &(u64, T) {
        &self.entries[position as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, position: u32) -> &mut T {
        &mut self.entries[position as usize].1
    }

    /// Adds an id that is not in the map, at the end. Returns its position.
    pub(super) fn push(&mut self, id: u64, value: T) -> u32 {
        let position = narrow(self.entries.len() as u64);
        self.entries.push((id, value));
        let needed = 2 * self.entries.len();
        if self.entries.len() > MAX_UNINDEXED && self.index.len() < needed {
            self.rebuild(needed.next_power_of_two());
        } else if !self.index.is_empty() {
            let slot = self.slot(id);
            self.index[slot] = position;
        }
        position
    }

    /// Removes the entry at a position. The last entry moves there.
    pub(super) fn remove(&mut self, position: u32) -> T {
        if !self.index.is_empty() {
            let (id, _) = self.entries[position as usize];
            self.vacate(self.slot(id));
            let (last, _) = self.entries[self.entries.len() - 1];
            if last != id {
                let slot = self.slot(last);
                self.index[slot] = position;
            }
        }
        self.entries.swap_remove(position as usize).1
    }

    fn rebuild(&mut self, len: usize) {
        self.index.clear();
        self.index.resize(len, NONE);
        for at in 0..self.entries.len() {
            let slot = self.slot(self.entries[at].0);
            self.index[slot] = narrow(at as u64);
        }
    }

    /// Where the index has an id, or would have it.
    #[inline]
    fn slot(&self, id: u64) -> usize {
        let mut slot = self.home(id);
        while self.index[slot] != NONE && self.entries[self.index[slot] as usize].0 != id {
            slot = (slot + 1) & (self.index.len() - 1);
        }
        slot
    }

    #[inline]
    fn home(&self, id: u64) -> usize {
        // The high bits of a product: a caller may give small numbers.
        let hash = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        hash as usize & (self.index.len() - 1)
    }

    /// Vacates a slot and moves later ones that it displaced.
    fn vacate(&mut self, slot: usize) {
        let mask = self.index.len() - 1;
        let (mut hole, mut next) = (slot, slot);
        loop {
            next = (next + 1) & mask;
            let position = self.index[next];
            if position == NONE {
                break;
            }
            let home = self.home(self.entries[position as usize].0);
            // Whether its home is not between the hole and its slot, cyclically.
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(hole) & mask {
                self.index[hole] = position;
                hole = next;
            }
        }
        self.index[hole] = NONE;
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use tallygate_testkit::with_each_seed;

    use super::*;

    #[test]
    fn it_is_a_map() {
        with_each_seed(|rng| {
            let mut map = IdMap::default();
            let mut expected = BTreeMap::new();
            let ids = rng.u64(1..400);
            let spread = if rng.bool() { 1 } else { 0x1234_5678_9abc_def1 };
            for step in 0..2_000_u32 {
                let id = rng.u64(..ids).wrapping_mul(spread);
                match (map.find(id), expected.contains_key(&id)) {
                    (Some(at), true) if rng.bool() => {
                        assert_eq!(map.at(at).0, id);
                        assert_eq!(Some(map.remove(at)), expected.remove(&id));
                    }
                    (Some(at), true) => {
                        *map.at_mut(at) = step;
                        expected.insert(id, step);
                    }
                    (None, false) => {
                        map.push(id, step);
                        expected.insert(id, step);
                    }
                    (found, is_in) => panic!("{id}: {found:?}, {is_in}"),
                }
                assert_eq!(map.len(), expected.len());
            }
            for (id, value) in expected {
                let at = map.find(id).unwrap();
                assert_eq!(map.at(at), &(id, value));
            }
        });
    }
}
