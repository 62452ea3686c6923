//! The floor: what any keyed limiter pays, a hash of the key and one random read-modify-write.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::fast::RandomState;

use super::{BATCH, Contender};
use crate::keys::Key;
use crate::setting::Setting;

/// Counts hits in a table with one line of the cache for each key; limits nobody.
pub(super) struct Floor {
    hasher: RandomState,
    lines: Box<[Line]>,
}

#[repr(align(64))]
#[derive(Default)]
struct Line(AtomicU64);

impl Floor {
    #[inline]
    fn line(&self, key: &Key) -> &Line {
        let hash = self.hasher.hash_one(key.as_str());
        // The high half of a product: a fair share for each line without a division.
        let index = (u128::from(hash) * self.lines.len() as u128) >> 64;
        &self.lines[index as usize]
    }
}

impl Line {
    /// A plain load and store: a locked instruction would keep misses from overlapping, and two
    /// threads may lose a hit here.
    #[inline]
    fn hit(&self) -> bool {
        let hits = self.0.load(Relaxed) + 1;
        self.0.store(hits, Relaxed);
        black_box(hits) > 0
    }
}

impl Contender for Floor {
    const NAME: &'static str = "floor";
    const LIMITS: bool = false;

    fn new(_: &Setting, capacity: usize) -> Self {
        Floor {
            hasher: RandomState::default(),
            lines: (0..capacity).map(|_| Line::default()).collect(),
        }
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        self.line(key).hit()
    }

    #[inline]
    fn check_many(&self, keys: &[Key], admitted: &mut [bool]) {
        // Touching all lines first lets their misses overlap, as a prefetch would.
        let mut lines = [&self.lines[0]; BATCH];
        let mut touched = 0;
        for (line, key) in lines.iter_mut().zip(keys) {
            *line = self.line(key);
            touched ^= line.0.load(Relaxed);
        }
        black_box(touched);
        for (line, admitted) in lines.iter().zip(admitted) {
            *admitted = line.hit();
        }
    }
}
