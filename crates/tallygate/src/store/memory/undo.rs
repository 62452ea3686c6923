//! Returns the units of a decision to existing counters.

use smallvec::SmallVec;
use tallygate_core::{MAX_TIME_US, undo};

use super::bucket::Bucket;
use super::table::{LockedBuckets, Place};
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
        // Without its table, a counter does not exist.
        let packed = |undo: &Undo<'_>| {
            let table = self.part(undo.counter.limit).existing_packed()?;
            let id = undo.counter.id;
            (!undo.counter.is_log()).then_some(Place { table, id })
        };
        let log = |undo: &Undo<'_>| {
            let table = self.part(undo.counter.limit).existing_logs()?;
            let id = undo.counter.id;
            undo.counter.is_log().then_some(Place { table, id })
        };
        let mut packed_buckets = LockedBuckets::lock(undos.iter().filter_map(packed));
        let mut log_buckets = LockedBuckets::lock(undos.iter().filter_map(log));
        for undo in &undos {
            if let Some(place) = packed(undo) {
                undo.execute(&mut packed_buckets, place, now);
            }
            if let Some(place) = log(undo) {
                undo.execute(&mut log_buckets, place, now);
            }
        }
    }
}

impl Undo<'_> {
    fn execute<'t, B: Bucket>(
        &self,
        buckets: &mut LockedBuckets<'t, B>,
        place: Place<'t, B>,
        now: u64,
    ) {
        let quota = self.counter.limit.quota();
        if let Some((claim, mut state)) = buckets.find(place, quota) {
            undo(quota, &mut state, self.taken_us, self.units, now);
            buckets.store(place, claim, quota, state);
        }
    }
}
