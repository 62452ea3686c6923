//! Returns the units of a decision to existing counters.

use smallvec::SmallVec;
use tallygate_core::{Caller, MAX_TIME_US, StateSize, Verb, refund_tail, undo_by};

use super::bucket::Bucket;
use super::multi::{CounterCost, CounterCosts};
use super::table::{LockedBuckets, Place, Table};
use super::{Counter, MemoryStore};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::request::Request;
use crate::store::TailRefund;

/// Units to return to one counter.
struct Undo<'a> {
    counter: Counter<'a>,
    caller: Caller,
    units: u32,
    taken_us: u64,
}

impl<C: Clock> MemoryStore<C> {
    /// Returns the units that a decision took for a request, at a supplied time. See
    /// [`Limiter::undo`](crate::Limiter::undo).
    pub fn undo_at(&self, request: &Request<'_>, decision: &Decision, now_us: u64) {
        let now = now_us.min(MAX_TIME_US);
        self.undo_reserved(request, decision, now);
        let taken = request.entries().iter();
        let taken = taken.filter(|entry| !request.reserves(entry));
        let undos = taken.filter_map(|entry| {
            let counter = self.counter(&entry.key, entry.limit);
            Some(Undo {
                counter,
                caller: self.caller(request, entry, counter),
                units: decision.taken_units(entry),
                taken_us: decision.counter_taken_us(|| counter.id.tag())?,
            })
        });
        let undos: SmallVec<[Undo<'_>; 4]> = undos.filter(|undo| undo.units > 0).collect();
        // All are locked before the first change: the undo is atomic.
        // Without its table, a counter does not exist.
        let packed = |undo: &Undo<'_>| {
            let table = self.part(undo.counter.limit).existing_packed();
            undo.place(table, StateSize::Packed)
        };
        let log = |undo: &Undo<'_>| {
            let table = self.part(undo.counter.limit).existing_logs();
            undo.place(table, StateSize::Log)
        };
        let callers = |undo: &Undo<'_>| {
            let table = self.part(undo.counter.limit).existing_callers();
            undo.place(table, StateSize::Callers)
        };
        let mut packed_buckets = LockedBuckets::lock(undos.iter().filter_map(packed));
        let mut log_buckets = LockedBuckets::lock(undos.iter().filter_map(log));
        let mut callers_buckets = LockedBuckets::lock(undos.iter().filter_map(callers));
        for undo in &undos {
            if let Some(place) = packed(undo) {
                undo.execute(&mut packed_buckets, place, now);
            }
            if let Some(place) = log(undo) {
                undo.execute(&mut log_buckets, place, now);
            }
            if let Some(place) = callers(undo) {
                undo.execute(&mut callers_buckets, place, now);
            }
        }
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Settles what a reserve took at 0, so that its id is forgotten too. One of a known id took
    /// nothing.
    fn undo_reserved(&self, request: &Request<'_>, decision: &Decision, now: u64) {
        let reserved = request.entries().iter();
        let reserved = reserved.filter(|entry| request.reserves(entry));
        let reserved: CounterCosts<'_> = reserved
            .filter_map(|entry| {
                let counter = self.counter(&entry.key, entry.limit);
                let taken_us = decision.counter_taken_us(|| counter.id.tag())?;
                (taken_us > 0 && entry.cost() > 0).then(|| CounterCost {
                    cost: 0,
                    ..self.counter_cost(request, entry, counter)
                })
            })
            .collect();
        if !reserved.is_empty() {
            self.decide_locked(&reserved, Verb::Settle, now);
        }
    }

    /// See [`Store::refund_tail`](crate::Store::refund_tail).
    pub(super) fn refund_tail(&self, request: &Request<'_>, ends_us: &[u64]) -> TailRefund {
        let now = self.clock.now_us().min(MAX_TIME_US);
        let places = request.entries().iter().map(|entry| {
            let counter = self.counter(&entry.key, entry.limit);
            let table = self.part(entry.limit).existing_packed()?;
            let id = counter.id;
            entry
                .limit
                .quota()
                .algorithm()
                .is_shaping()
                .then_some(Place { table, id })
        });
        let Some(places) = places.collect::<Option<SmallVec<[_; 2]>>>() else {
            return TailRefund::NotLast;
        };
        // All are locked before the first change: the refund is atomic.
        let mut buckets = LockedBuckets::lock(places.iter().copied());
        let mut result = TailRefund::Refunded;
        let mut claimed: SmallVec<[_; 2]> = SmallVec::new();
        for ((entry, place), end_us) in request.entries().iter().zip(places).zip(ends_us) {
            let quota = entry.limit.quota();
            let Some((claim, state)) = buckets.find(place, quota) else {
                result = TailRefund::NotLast;
                break;
            };
            let mut refunded = state.clone();
            if refund_tail(quota, &mut refunded, *end_us, entry.cost(), now).is_none() {
                result = TailRefund::NotLast;
            }
            claimed.push((place, claim, quota, state, refunded));
        }
        for (place, claim, quota, before, refunded) in claimed {
            let state = match result {
                TailRefund::Refunded => refunded,
                TailRefund::NotLast | TailRefund::Unknown => before,
            };
            buckets.store(place, claim, quota, state);
        }
        result
    }
}

impl Undo<'_> {
    /// Where the counter is, if it is in a table for states of that size.
    fn place<'t, B: Bucket>(
        &self,
        table: Option<&'t Table<B>>,
        size: StateSize,
    ) -> Option<Place<'t, B>> {
        let table = table.filter(|_| self.counter.size() == size)?;
        let id = self.counter.id;
        Some(Place { table, id })
    }

    fn execute<'t, B: Bucket>(
        &self,
        buckets: &mut LockedBuckets<'t, B>,
        place: Place<'t, B>,
        now: u64,
    ) {
        let quota = self.counter.limit.quota();
        if let Some((claim, mut state)) = buckets.find(place, quota) {
            let Undo {
                caller,
                units,
                taken_us,
                ..
            } = self;
            undo_by(quota, &mut state, caller, *taken_us, *units, now);
            buckets.store(place, claim, quota, state);
        }
    }
}
