//! Returns the units of a decision to existing counters.

use smallvec::SmallVec;
use tallygate_core::{MAX_TIME_US, undo};

use super::bucket::Bucket;
use super::table::{LockedBuckets, Table};
use super::{Counter, MemoryStore};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::request::Request;

/// Units to return to one counter.
struct Undo<'a> {
    counter: Counter<'a>,
    units: u32,
    taken_us: u64,
}

impl<C: Clock> MemoryStore<C> {
    /// Returns the units that a decision took for a request, at a supplied time. See
    /// [`Limiter::undo`](crate::Limiter::undo).
    pub fn undo_at(&self, request: &Request<'_>, decision: &Decision, now_us: u64) {
        let undos = request.entries().iter().filter_map(|entry| {
            let counter = self.counter(&entry.key, entry.limit);
            Some(Undo {
                counter,
                units: decision.taken_units(entry),
                taken_us: decision.counter_taken_us(|| counter.id.tag())?,
            })
        });
        let undos: SmallVec<[Undo<'_>; 4]> = undos.filter(|undo| undo.units > 0).collect();
        let now = now_us.min(MAX_TIME_US);
        // All are locked before the first change: the undo is atomic.
        let mut packed = lock(self.packed.get(), &undos, false);
        let mut logs = lock(self.logs.get(), &undos, true);
        for undo in &undos {
            if undo.counter.is_log() {
                undo.execute(logs.as_mut(), now);
            } else {
                undo.execute(packed.as_mut(), now);
            }
        }
    }
}

/// Locks the buckets of the counters that belong to a table, if it exists.
fn lock<'t, B: Bucket>(
    table: Option<&'t Table<B>>,
    undos: &[Undo<'_>],
    logs: bool,
) -> Option<LockedBuckets<'t, B>> {
    let here = undos.iter().filter(|undo| undo.counter.is_log() == logs);
    Some(table?.lock(here.map(|undo| undo.counter.id)))
}

impl Undo<'_> {
    fn execute<B: Bucket>(&self, buckets: Option<&mut LockedBuckets<'_, B>>, now: u64) {
        let quota = self.counter.limit.quota();
        let Some(buckets) = buckets else { return };
        if let Some((claim, mut state)) = buckets.find(self.counter.id, quota) {
            undo(quota, &mut state, self.taken_us, self.units, now);
            buckets.store(claim, quota, state);
        }
    }
}
