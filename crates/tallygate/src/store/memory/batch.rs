//! Batches: prefetches the memory of many counters before deciding the first.

use smallvec::SmallVec;
use tallygate_core::{Caller, MAX_TIME_US, StateSize, Verb};

use super::bucket::{Bucket, RepeatedCheck, Slots};
use super::multi::CounterCosts;
use super::table::{Id, Table};
use super::{Counter, MemoryStore, Operation};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::Limit;
use crate::request::Request;

/// Decisions whose memory is prefetched at a time.
const BATCH_LEN: usize = 32;
/// So many equal checks in a row are decided in one step: a quarter faster. Fewer are not.
const MIN_RUN: usize = 4;

impl<C: Clock> MemoryStore<C> {
    /// Decides many requests in order, at one time. Much faster than one by one once the keys
    /// outgrow the processor's caches: their memory is fetched in parallel.
    pub fn decide_many(&self, requests: &[Request<'_>]) -> Vec<Decision> {
        let now = self.clock.now_us();
        let mut decisions = Vec::with_capacity(requests.len());
        for batch in requests.chunks(BATCH_LEN) {
            let counters: SmallVec<[Counter<'_>; BATCH_LEN]> = batch
                .iter()
                .flat_map(Request::entries)
                .map(|entry| self.counter(&entry.key, entry.limit))
                .collect();
            for &counter in &counters {
                self.part(counter.limit).prefetch_home(counter);
            }
            let is_packed = |counter: &&Counter<'_>| counter.size() == StateSize::Packed;
            for counter in counters.iter().filter(is_packed) {
                let packed = self.part(counter.limit).packed();
                packed.guess(packed.home(counter.id), counter.id);
            }
            let mut rest = &counters[..];
            let mut requests = batch;
            while let [request, ..] = requests {
                let equal = equal_checks(requests, rest);
                if equal >= MIN_RUN {
                    let repeated = RepeatedCheck {
                        cost: request.entries()[0].cost(),
                        now: now.min(MAX_TIME_US),
                        times: equal,
                    };
                    self.check_repeatedly(rest[0], repeated, &mut decisions);
                    (requests, rest) = (&requests[equal..], &rest[equal..]);
                    continue;
                }
                let (counters, after) = rest.split_at(request.entries().len());
                (requests, rest) = (&requests[1..], after);
                decisions.push(self.decide_prefetched(request, counters, now));
            }
        }
        decisions
    }

    /// Decides equal checks under one lock, in one step.
    #[inline(never)]
    fn check_repeatedly(
        &self,
        counter: Counter<'_>,
        repeated: RepeatedCheck,
        decisions: &mut Vec<Decision>,
    ) {
        let part = self.part(counter.limit);
        match counter.size() {
            StateSize::Packed => {
                self.check_repeatedly_in(part.packed(), counter, repeated, decisions);
            }
            StateSize::Log => self.check_repeatedly_in(part.logs(), counter, repeated, decisions),
            // What others hold counts too: one by one.
            StateSize::Callers => {
                let RepeatedCheck { cost, now, times } = repeated;
                for _ in 0..times {
                    let operation = Operation::new(Verb::Check, cost, now, &Caller::NONE);
                    decisions.push(self.decide_counter(counter, operation));
                }
            }
        }
    }

    fn check_repeatedly_in<B: Bucket>(
        &self,
        table: &Table<B>,
        counter: Counter<'_>,
        repeated: RepeatedCheck,
        decisions: &mut Vec<Decision>,
    ) {
        let (home, tag) = (table.home(counter.id), counter.id.tag());
        let mut slots = home.lock();
        if let Some(at) = slots.find(tag) {
            let quota = counter.limit.quota();
            return slots.check_repeatedly(at, tag, quota, repeated, |verdict| {
                decisions.push(verdict.into_decision());
            });
        }
        drop(slots);
        let RepeatedCheck { cost, now, times } = repeated;
        for _ in 0..times {
            let operation = Operation::new(Verb::Check, cost, now, &Caller::NONE);
            decisions.push(self.decide_at_home(table, home, None, counter, operation));
        }
    }

    fn decide_prefetched<'a>(
        &self,
        request: &Request<'a>,
        counters: &[Counter<'a>],
        now: u64,
    ) -> Decision {
        let each = request.entries().iter().zip(counters);
        let limits = each.map(|(entry, &counter)| self.counter_cost(request, entry, counter));
        self.decide_limits(
            &limits.collect::<CounterCosts<'_>>(),
            request.requested_verb(),
            now,
        )
    }

    /// Checks many keys against one limit, at one time.
    pub(crate) fn check_many<'k>(
        &self,
        keys: impl Iterator<Item = Key<'k>>,
        limit: &Limit,
    ) -> Vec<Decision> {
        let part = self.part(limit);
        match limit.quota().algorithm().state_size() {
            StateSize::Packed => self.check_many_in(part.packed(), keys, limit),
            StateSize::Log => self.check_many_in(part.logs(), keys, limit),
            StateSize::Callers => self.check_many_in(part.callers(), keys, limit),
        }
    }

    #[inline]
    fn check_many_in<'k, B: Bucket>(
        &self,
        table: &Table<B>,
        mut keys: impl Iterator<Item = Key<'k>>,
        limit: &Limit,
    ) -> Vec<Decision> {
        let now = self.clock.now_us();
        let mut decisions = Vec::with_capacity(keys.size_hint().0);
        let mut batch = [(table.home(Id::new(0)), Id::new(0), 0); BATCH_LEN];
        loop {
            let mut len = 0;
            while len < BATCH_LEN
                && let Some(key) = keys.next()
            {
                let Counter { id, .. } = self.counter(&key, limit);
                let home = table.home(id);
                home.prefetch_tags();
                batch[len] = (home, id, 0);
                len += 1;
            }
            if len == 0 {
                return decisions;
            }
            decisions.reserve(len);
            let batch = &mut batch[..len];
            for (home, id, guess) in &mut *batch {
                *guess = table.guess(home, *id);
            }
            let mut rest = &*batch;
            while let [(home, id, guess), after @ ..] = rest {
                let counter = Counter { id: *id, limit };
                // Compared first: nearly all keys differ.
                if rest.get(MIN_RUN - 1).is_some_and(|(_, last, _)| last == id) {
                    let equal = rest.iter().take_while(|(_, other, _)| other == id);
                    let times = equal.count();
                    if times >= MIN_RUN {
                        rest = &rest[times..];
                        let repeated = RepeatedCheck {
                            cost: 1,
                            now,
                            times,
                        };
                        self.check_repeatedly(counter, repeated, &mut decisions);
                        continue;
                    }
                }
                self.check_guessed(table, (home, *guess), counter, now, &mut decisions);
                rest = after;
            }
        }
    }

    // Not inlined: the loop that calls it would run out of registers.
    #[inline(never)]
    fn check_guessed<B: Bucket>(
        &self,
        table: &Table<B>,
        (home, guess): (&B, usize),
        counter: Counter<'_>,
        now: u64,
        decisions: &mut Vec<Decision>,
    ) {
        // Checked first so that `push` cannot reallocate and the decision is built in place.
        let has_room = decisions.len() < decisions.capacity();
        assert!(has_room, "the capacity was reserved for the whole batch");
        let operation = Operation::new(Verb::Check, 1, now, &Caller::NONE);
        decisions.push(self.decide_at_home(table, home, Some(guess), counter, operation));
    }
}

/// How many of the first requests are equal checks of one counter, at least one.
fn equal_checks(requests: &[Request<'_>], counters: &[Counter<'_>]) -> usize {
    let [first, ..] = requests else { return 0 };
    let ([entry], Verb::Check) = (first.entries(), first.requested_verb()) else {
        return 1;
    };
    if counters[0].size() == StateSize::Callers {
        return 1;
    }
    let is_equal = |(request, counter): &(&Request<'_>, &Counter<'_>)| {
        let [other] = request.entries() else {
            return false;
        };
        // The identifier has the name of the limit, and not its size.
        counter.id == counters[0].id
            && request.requested_verb() == Verb::Check
            && other.cost() == entry.cost()
            && other.limit.quota() == entry.limit.quota()
            && other.limit.own_partition() == entry.limit.own_partition()
    };
    let others = requests[1..].iter().zip(&counters[1..]);
    1 + others.take_while(is_equal).count()
}
