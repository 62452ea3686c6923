//! Batches: the memory of many counters is asked for before the first of them is decided on. Knows
//! nothing of how one is decided.

use smallvec::SmallVec;
use tallygate_core::{MAX_TIME_US, Verb};

use super::bucket::Bucket;
use super::multi::Wanted;
use super::table::{Id, Table};
use super::{Ask, Counter, MemoryStore};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::key::Key;
use crate::limit::Limit;
use crate::request::Request;

/// How many decisions of a batch are prepared before the first is made.
const BATCH: usize = 32;

impl<C: Clock> MemoryStore<C> {
    /// Decides many requests in order, at one time. Much faster than one by one once the keys
    /// outgrow the processor's caches: their memory is fetched side by side.
    pub fn decide_many(&self, requests: &[Request<'_>]) -> Vec<Decision> {
        let now = self.clock.now_us();
        let mut decisions = Vec::with_capacity(requests.len());
        for batch in requests.chunks(BATCH) {
            let asked = batch.iter().flat_map(Request::asked);
            let counters: SmallVec<[Counter<'_>; BATCH]> = asked
                .map(|asked| self.counter(&asked.key, asked.limit))
                .collect();
            counters.iter().for_each(|&counter| self.touch(counter));
            for counter in counters.iter().filter(|counter| !counter.logs()) {
                let flat = self.flat();
                flat.guess(flat.home(counter.id), counter.id);
            }
            let mut rest = &counters[..];
            for request in batch {
                let (counters, after) = rest.split_at(request.asked().len());
                rest = after;
                decisions.push(self.prepared(request, counters, now));
            }
        }
        decisions
    }

    /// Decides a request whose counters are known.
    fn prepared(&self, request: &Request<'_>, counters: &[Counter<'_>], now: u64) -> Decision {
        let verb = request.asks();
        if let ([asked], [counter]) = (request.asked(), counters) {
            return self.one(*counter, Ask::new(verb, asked.units(), now));
        }
        let wanted: SmallVec<[Wanted<'_>; 4]> = request
            .asked()
            .iter()
            .zip(counters)
            .map(|(asked, &counter)| Wanted {
                counter,
                cost: asked.units(),
            })
            .collect();
        self.together(&wanted, verb, now.min(MAX_TIME_US))
    }

    /// Checks many keys against one limit, at one time.
    pub(crate) fn check_each<'k>(
        &self,
        keys: impl Iterator<Item = Key<'k>>,
        limit: &Limit,
    ) -> Vec<Decision> {
        if limit.quota().algorithm().is_log() {
            self.check_each_in(self.logs(), keys, limit)
        } else {
            self.check_each_in(self.flat(), keys, limit)
        }
    }

    #[inline]
    fn check_each_in<'k, B: Bucket>(
        &self,
        table: &Table<B>,
        mut keys: impl Iterator<Item = Key<'k>>,
        limit: &Limit,
    ) -> Vec<Decision> {
        let now = self.clock.now_us();
        let mut decisions = Vec::with_capacity(keys.size_hint().0);
        let mut batch = [(table.home(Id::new(0)), Id::new(0), 0); BATCH];
        loop {
            let mut len = 0;
            while len < BATCH
                && let Some(key) = keys.next()
            {
                let Counter { id, .. } = self.counter(&key, limit);
                let home = table.home(id);
                home.touch_tags();
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

    /// Checks one of many, given where it should be and seems to be there.
    // Apart from the loop that calls it, whose registers it would use up, and writing its answer
    // where it stays.
    #[inline(never)]
    fn check_guessed<B: Bucket>(
        &self,
        table: &Table<B>,
        (home, guess): (&B, usize),
        counter: Counter<'_>,
        now: u64,
        decisions: &mut Vec<Decision>,
    ) {
        // Said before there is an answer, which is then written where it stays.
        let room = decisions.len() < decisions.capacity();
        assert!(room, "it was made for the whole batch");
        let ask = Ask::new(Verb::Check, 1, now);
        match home.decide_at_once(Some(guess), counter, ask) {
            Ok(answer) => decisions.push(answer.decision()),
            Err(home) => {
                let Ask { verb, cost, now } = ask;
                decisions.push(self.otherwise(table, home, counter, verb, cost, now));
            }
        }
    }

    /// Starts to bring a counter's memory near, where it should be.
    #[inline]
    fn touch(&self, counter: Counter<'_>) {
        if counter.logs() {
            self.logs().home(counter.id).touch();
        } else {
            self.flat().home(counter.id).touch();
        }
    }
}
