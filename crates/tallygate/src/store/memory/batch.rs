//! Batches: prefetches the memory of many counters before deciding the first.

use smallvec::SmallVec;
use tallygate_core::{MAX_TIME_US, Verb};

use super::bucket::Bucket;
use super::multi::CounterCost;
use super::table::{Id, Table};
use super::{Counter, MemoryStore, Operation};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::Limit;
use crate::request::Request;

/// Decisions whose memory is prefetched at a time.
const BATCH_LEN: usize = 32;

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
            for counter in counters.iter().filter(|counter| !counter.is_log()) {
                let packed = self.part(counter.limit).packed();
                packed.guess(packed.home(counter.id), counter.id);
            }
            let mut rest = &counters[..];
            for request in batch {
                let (counters, after) = rest.split_at(request.entries().len());
                rest = after;
                decisions.push(self.decide_prefetched(request, counters, now));
            }
        }
        decisions
    }

    fn decide_prefetched(
        &self,
        request: &Request<'_>,
        counters: &[Counter<'_>],
        now: u64,
    ) -> Decision {
        let verb = request.requested_verb();
        if let ([entry], [counter]) = (request.entries(), counters) {
            return self.decide_counter(*counter, Operation::new(verb, entry.cost(), now));
        }
        let limits: SmallVec<[CounterCost<'_>; 4]> = request
            .entries()
            .iter()
            .zip(counters)
            .map(|(entry, &counter)| CounterCost {
                counter,
                cost: entry.cost(),
            })
            .collect();
        self.decide_locked(&limits, verb, now.min(MAX_TIME_US))
    }

    /// Checks many keys against one limit, at one time.
    pub(crate) fn check_many<'k>(
        &self,
        keys: impl Iterator<Item = Key<'k>>,
        limit: &Limit,
    ) -> Vec<Decision> {
        if limit.quota().algorithm().is_log() {
            self.check_many_in(self.part(limit).logs(), keys, limit)
        } else {
            self.check_many_in(self.part(limit).packed(), keys, limit)
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
            for &mut (home, id, guess) in batch {
                let counter = Counter { id, limit };
                self.check_guessed(table, (home, guess), counter, now, &mut decisions);
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
        let operation = Operation::new(Verb::Check, 1, now);
        decisions.push(self.decide_at_home(table, home, Some(guess), counter, operation));
    }
}
