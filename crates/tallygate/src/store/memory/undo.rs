//! Takes back what a decision took, from counters that are there: none is made, none shared.

use smallvec::SmallVec;
use tallygate_core::{MAX_TIME_US, Quota, State, undo};

use super::bucket::Bucket;
use super::table::{Held, Id, Table};
use super::{Counter, MemoryStore};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::request::Request;

/// Units of one counter, and when they were taken.
struct Undo<'a> {
    counter: Counter<'a>,
    units: u32,
    taken_us: u64,
}

impl<C: Clock> MemoryStore<C> {
    /// Takes back what a decision took for a request, at a supplied time: see
    /// [`Limiter::undo`](crate::Limiter::undo).
    pub fn undo_at(&self, request: &Request<'_>, decision: &Decision, now_us: u64) {
        let undos = request.asked().iter().filter_map(|asked| {
            let counter = self.counter(&asked.key, asked.limit);
            Some(Undo {
                counter,
                units: decision.took(asked),
                taken_us: decision.taken_from_us(|| counter.id.tag())?,
            })
        });
        let undos: SmallVec<[Undo<'_>; 4]> = undos.filter(|undo| undo.units > 0).collect();
        let now = now_us.min(MAX_TIME_US);
        // All under lock before the first is changed: nobody sees a part of it.
        let mut flat = hold(self.flat.get(), &undos, false);
        let mut logs = hold(self.logs.get(), &undos, true);
        for undo in &undos {
            if undo.counter.logs() {
                undo.carry_out(logs.as_mut(), now);
            } else {
                undo.carry_out(flat.as_mut(), now);
            }
        }
    }
}

/// Locks the buckets of those counters that belong to a table, if there is one.
fn hold<'t, B: Bucket>(
    table: Option<&'t Table<B>>,
    undos: &[Undo<'_>],
    logs: bool,
) -> Option<Held<'t, B>> {
    let here = undos.iter().filter(|undo| undo.counter.logs() == logs);
    Some(table?.hold(here.map(|undo| undo.counter.id)))
}

impl Undo<'_> {
    fn carry_out<B: Bucket>(&self, held: Option<&mut Held<'_, B>>, now: u64) {
        let (id, quota): (Id, &Quota) = (self.counter.id, self.counter.limit.quota());
        let Some(held) = held else { return };
        let Some((claim, mut state)): Option<(_, State)> = held.find(id, quota) else {
            return;
        };
        undo(quota, &mut state, self.taken_us, self.units, now);
        held.store(claim, quota, state);
    }
}
