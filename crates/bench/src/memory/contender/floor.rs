//! The floor: the minimum cost of any keyed limiter, a hash and one random read-modify-write.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::fast::RandomState;

use super::{BATCH, Contender};
use crate::keys::Key;
use crate::quota_spec::QuotaSpec;

/// Counts hits in a table with one cache line per key. It enforces no limit.
pub(super) struct Floor {
    hasher: RandomState,
    lines: Box<[CacheLine]>,
}

#[repr(align(64))]
#[derive(Default)]
struct CacheLine(AtomicU64);

impl Floor {
    #[inline]
    fn cache_line(&self, key: &Key) -> &CacheLine {
        let hash = self.hasher.hash_one(key.as_str());
        // Multiply-shift instead of a modulo.
        let index = (u128::from(hash) * self.lines.len() as u128) >> 64;
        &self.lines[index as usize]
    }
}

impl CacheLine {
    /// A plain load and store: a locked instruction would serialize cache misses. Threads may lose
    /// a hit.
    #[inline]
    fn hit(&self) -> bool {
        let hits = self.0.load(Relaxed) + 1;
        self.0.store(hits, Relaxed);
        black_box(hits) > 0
    }
}

impl Contender for Floor {
    const NAME: &'static str = "floor";
    const ENFORCES_LIMIT: bool = false;

    fn new(_: &QuotaSpec, capacity: usize) -> Self {
        Floor {
            hasher: RandomState::default(),
            lines: (0..capacity).map(|_| CacheLine::default()).collect(),
        }
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        self.cache_line(key).hit()
    }

    #[inline]
    fn check_many(&self, keys: &[Key], admitted: &mut [bool]) {
        // Load all lines first so that their cache misses overlap.
        let mut lines = [&self.lines[0]; BATCH];
        let mut touched = 0;
        for (line, key) in lines.iter_mut().zip(keys) {
            *line = self.cache_line(key);
            touched ^= line.0.load(Relaxed);
        }
        black_box(touched);
        for (line, admitted) in lines.iter().zip(admitted) {
            *admitted = line.hit();
        }
    }
}
