//! A bounded cache of exhausted counters in front of a shared store. It refuses what the store, if
//! asked now, would refuse, and never admits.
//!
//! An entry is the state that the store found when it refused a request, with its own time. Other
//! requests can only use the counter further, so the request is refused until the state, left
//! alone, has room for it. The store's present time is known within two bounds: it has advanced by
//! at most the time since the request was sent, and by at least the time since the reply was
//! received. A refusal must hold at the upper bound; its figures are those at the lower bound.
//!
//! Entries are dropped after `max_age`, because a reset, a refund or a raised limit may have
//! happened elsewhere. Performs no I/O and reads no clock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tallygate_core::{FoundState, Quota, Retry, State, Verb, evaluate_found};

use super::store_time::Timing;

/// Settings of the cache of exhausted counters; see
/// [`RedisStoreBuilder::refusal_cache`](crate::store::RedisStoreBuilder::refusal_cache).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusalCacheSettings {
    /// How long a reset, a refund or a raised limit in another process may go unnoticed: 1 s by
    /// default, at most [`MAX_AGE`](RefusalCacheSettings::MAX_AGE).
    pub max_age: Duration,
    /// The number of counters, 65,536 by default. About 150 bytes each, when used.
    pub keys: usize,
}

impl RefusalCacheSettings {
    /// The maximum of `max_age`.
    pub const MAX_AGE: Duration = Duration::from_secs(60);
}

impl Default for RefusalCacheSettings {
    fn default() -> Self {
        RefusalCacheSettings {
            max_age: Duration::from_secs(1),
            keys: 65_536,
        }
    }
}

/// Hits and misses of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusalCacheStats {
    /// Requests that were refused without asking the store.
    pub hits: u64,
    /// Requests that the store had to decide.
    pub misses: u64,
}

/// Entries per set; the oldest of a full set is evicted.
const WAYS: usize = 4;

pub(crate) struct RefusalCache {
    /// Each set allocates its memory with its first entry.
    sets: Box<[Mutex<Vec<Entry>>]>,
    max_age_us: u64,
    /// Counters with units that a cross-slot request may give back, and how many such requests.
    provisional: Mutex<HashMap<u64, usize>>,
    provisional_requests: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Local times are in microseconds of any monotonic clock of this process.
#[derive(Debug)]
enum Entry {
    Found(FoundEntry),
    /// The counter was reset or refunded: replies to requests sent before are outdated.
    Dropped {
        id: u64,
        at_us: u64,
    },
}

#[derive(Debug)]
struct FoundEntry {
    id: u64,
    quota: Quota,
    state: State,
    /// What the request required of a log: its state only says when that fits.
    required: u32,
    timing: Timing,
}

pub(crate) type FoundStates<'a> = SmallVec<[FoundState<'a>; 1]>;

/// One counter of a request.
#[derive(Clone, Copy)]
pub(crate) struct CachedCounter<'a> {
    pub(crate) id: u64,
    pub(crate) quota: &'a Quota,
    pub(crate) cost: u32,
}

impl Entry {
    fn id(&self) -> u64 {
        match self {
            Entry::Found(FoundEntry { id, .. }) | Entry::Dropped { id, .. } => *id,
        }
    }

    /// Whether a reply says less than this entry.
    fn outdates(&self, reply: Timing) -> bool {
        match self {
            Entry::Found(found) => found.timing.sent_us > reply.sent_us,
            Entry::Dropped { at_us, .. } => *at_us >= reply.sent_us,
        }
    }

    fn since_us(&self) -> u64 {
        match self {
            Entry::Found(found) => found.timing.received_us,
            Entry::Dropped { at_us, .. } => *at_us,
        }
    }
}

impl FoundEntry {
    /// The state at the earliest time that the store may have now.
    fn found<'a>(&self, counter: &CachedCounter<'a>, now_us: u64) -> FoundState<'a> {
        let now_us = self.timing.min_store_time(now_us);
        FoundState::new(counter.quota, self.state.clone(), counter.cost, now_us)
    }

    /// Whether the store, if asked now, would refuse.
    fn refuses(&self, counter: &CachedCounter<'_>, verb: Verb, now_us: u64) -> bool {
        let decision = evaluate_found(&mut [self.found(counter, now_us)], verb);
        match decision.verdict().retry() {
            None => false,
            Some(Retry::Never) => true,
            // It may fit earlier.
            Some(Retry::AtMost(_)) => false,
            Some(Retry::After(wait_us)) => {
                let fits_at = self.timing.min_store_time(now_us) + wait_us.get();
                self.timing.max_store_time(now_us) < fits_at
            }
        }
    }
}

/// The units without which a verb is refused.
fn required(verb: Verb, cost: u32) -> u32 {
    match verb {
        Verb::Take => cost.min(1),
        _ => cost,
    }
}

impl RefusalCache {
    pub(crate) fn new(settings: RefusalCacheSettings) -> Self {
        let sets = settings.keys.div_ceil(WAYS).max(1);
        RefusalCache {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            max_age_us: u64::try_from(settings.max_age.as_micros()).unwrap_or(u64::MAX),
            provisional: Mutex::default(),
            provisional_requests: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    pub(crate) fn stats(&self) -> RefusalCacheStats {
        RefusalCacheStats {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
        }
    }

    pub(crate) fn count_hit(&self) {
        self.hits.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_misses(&self, requests: u64) {
        self.misses.fetch_add(requests, Relaxed);
    }

    /// Whether requests with this verb may be refused from the cache.
    pub(crate) fn applies_to(verb: Verb) -> bool {
        match verb {
            Verb::Check | Verb::Take => true,
            Verb::Peek
            | Verb::Charge
            | Verb::Refund
            | Verb::Reset
            | Verb::Reserve
            | Verb::Settle
            | Verb::Renew
            | Verb::Release => false,
        }
    }

    /// The counters of a request, if one of them is known to be exhausted: evaluated, they refuse.
    /// Counters that are not known are reported as unused.
    pub(crate) fn refusal<'a>(
        &self,
        counters: impl Iterator<Item = CachedCounter<'a>>,
        verb: Verb,
        now_us: u64,
    ) -> Option<FoundStates<'a>> {
        let mut refused = false;
        let mut all = FoundStates::new();
        for counter in counters {
            let set = self.set(counter.id).lock();
            let known = self.usable(&set, &counter, verb, now_us);
            refused = refused || known.is_some_and(|entry| entry.refuses(&counter, verb, now_us));
            all.push(match known {
                Some(entry) => entry.found(&counter, now_us),
                None => FoundState::new(counter.quota, State::New, counter.cost, 0),
            });
        }
        refused.then_some(all)
    }

    /// The entry of a counter, if it holds for this request.
    fn usable<'s>(
        &self,
        set: &'s [Entry],
        counter: &CachedCounter<'_>,
        verb: Verb,
        now_us: u64,
    ) -> Option<&'s FoundEntry> {
        let found = set.iter().find_map(|entry| match entry {
            Entry::Found(found) if found.id == counter.id => Some(found),
            Entry::Found(_) | Entry::Dropped { .. } => None,
        })?;
        let is_log = counter.quota.algorithm().is_log();
        let holds = found.quota == *counter.quota
            && now_us.saturating_sub(found.timing.received_us) < self.max_age_us
            && (!is_log || found.required == required(verb, counter.cost));
        holds.then_some(found)
    }

    /// Adds a counter of a request that the store refused, with the state that it found.
    pub(crate) fn insert(
        &self,
        counter: CachedCounter<'_>,
        state: State,
        verb: Verb,
        timing: Timing,
    ) {
        if self.is_provisional(counter.id) {
            return;
        }
        let mut set = self.set(counter.id).lock();
        let known = set.iter().position(|entry| entry.id() == counter.id);
        if known.is_some_and(|at| set[at].outdates(timing)) {
            return;
        }
        let entry = Entry::Found(FoundEntry {
            id: counter.id,
            quota: *counter.quota,
            state,
            required: required(verb, counter.cost),
            timing,
        });
        put(&mut set, known, entry);
    }

    /// Drops the entry of a counter that is reset or refunded, and rejects replies to requests that
    /// were sent before `now_us`.
    pub(crate) fn invalidate(&self, id: u64, now_us: u64) {
        let mut set = self.set(id).lock();
        let known = set.iter().position(|entry| entry.id() == id);
        put(&mut set, known, Entry::Dropped { id, at_us: now_us });
    }

    /// Keeps counters out of the cache until [`end_provisional`](Self::end_provisional): they hold
    /// units that may be given back.
    pub(crate) fn begin_provisional(&self, ids: &[u64], now_us: u64) {
        self.provisional_requests.fetch_add(1, Relaxed);
        let mut provisional = self.provisional.lock();
        for id in ids {
            *provisional.entry(*id).or_default() += 1;
        }
        drop(provisional);
        ids.iter().for_each(|id| self.invalidate(*id, now_us));
    }

    pub(crate) fn end_provisional(&self, ids: &[u64], now_us: u64) {
        ids.iter().for_each(|id| self.invalidate(*id, now_us));
        let mut provisional = self.provisional.lock();
        for id in ids {
            if let Some(requests) = provisional.get_mut(id) {
                *requests -= 1;
                if *requests == 0 {
                    provisional.remove(id);
                }
            }
        }
        self.provisional_requests.fetch_sub(1, Relaxed);
    }

    fn is_provisional(&self, id: u64) -> bool {
        self.provisional_requests.load(Relaxed) > 0 && self.provisional.lock().contains_key(&id)
    }

    fn set(&self, id: u64) -> &Mutex<Vec<Entry>> {
        &self.sets[((u128::from(id) * self.sets.len() as u128) >> 64) as usize]
    }
}

/// Replaces the known entry, or the oldest of a full set.
fn put(set: &mut Vec<Entry>, known: Option<usize>, entry: Entry) {
    let oldest = || {
        let oldest = (0..set.len()).min_by_key(|&at| set[at].since_us());
        oldest.filter(|_| set.len() >= WAYS)
    };
    match known.or_else(oldest) {
        Some(at) => set[at] = entry,
        None => set.push(entry),
    }
}

#[cfg(test)]
mod tests {
    use tallygate_core::evaluate;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn cache() -> RefusalCache {
        RefusalCache::new(RefusalCacheSettings::default())
    }

    fn counter(quota: &Quota, cost: u32) -> CachedCounter<'_> {
        CachedCounter { id: 7, quota, cost }
    }

    fn timing(sent_us: u64, received_us: u64, found_us: u64) -> Timing {
        Timing {
            sent_us,
            received_us,
            found_us,
        }
    }

    /// A bucket of 10, refilled by one a second, that is empty at 100 s of the store's clock.
    fn empty_bucket() -> (Quota, State) {
        let quota: Quota = "token-bucket 1/s burst 10".parse().unwrap();
        let mut state = State::New;
        evaluate(&quota, &mut state, Verb::Check, 10, 100 * SECOND);
        (quota, state)
    }

    #[test]
    fn a_refusal_holds_until_the_latest_possible_time_of_the_store() {
        let (cache, (quota, state)) = (cache(), empty_bucket());
        let counters = || [counter(&quota, 1)].into_iter();
        let refusal = |now_us| {
            let mut found = cache.refusal(counters(), Verb::Check, now_us)?;
            Some(evaluate_found(&mut found, Verb::Check))
        };
        assert!(refusal(0).is_none());
        let timing = timing(0, 200_000, 100 * SECOND);
        cache.insert(counter(&quota, 1), state, Verb::Check, timing);
        let verdict = *refusal(200_000).unwrap().verdict();
        // As of the reply: up to 200 ms later than the store would say.
        assert_eq!(verdict.retry().unwrap(), Retry::after_us(SECOND));
        let verdict = *refusal(500_000).unwrap().verdict();
        assert_eq!(
            verdict.retry().unwrap(),
            Retry::after_us(SECOND - 300_000 + 300)
        );
        // The request may have been decided just after it was sent.
        assert!(refusal(998_999).is_some());
        assert!(refusal(999_001).is_none());
        // A greater cost does not fit yet.
        let larger = cache.refusal([counter(&quota, 3)].into_iter(), Verb::Check, 999_001);
        assert!(larger.is_some());
    }

    #[test]
    fn an_entry_is_not_used_for_another_quota_or_after_its_age() {
        let (cache, (quota, state)) = (cache(), empty_bucket());
        let refusal = |quota: &Quota, now_us| {
            let counters = [counter(quota, 9)].into_iter();
            cache.refusal(counters, Verb::Check, now_us).is_some()
        };
        let timing = timing(0, 0, 100 * SECOND);
        cache.insert(counter(&quota, 9), state, Verb::Check, timing);
        assert!(refusal(&quota, SECOND - 1));
        assert!(!refusal(&quota, SECOND));
        assert!(!refusal(&"token-bucket 1/s burst 20".parse().unwrap(), 1));
    }

    #[test]
    fn replies_to_requests_sent_before_a_reset_are_rejected() {
        let (cache, (quota, state)) = (cache(), empty_bucket());
        let insert = |sent_us| {
            let timing = timing(sent_us, sent_us + 10, 100 * SECOND);
            cache.insert(counter(&quota, 1), state.clone(), Verb::Check, timing);
            let counters = [counter(&quota, 1)].into_iter();
            cache.refusal(counters, Verb::Check, sent_us + 20).is_some()
        };
        assert!(insert(50));
        cache.invalidate(7, 100);
        assert!(!insert(100));
        assert!(insert(101));
        cache.begin_provisional(&[7], 200);
        assert!(!insert(300));
        cache.end_provisional(&[7], 400);
        assert!(!insert(400));
        assert!(insert(401));
    }

    #[test]
    fn the_cache_is_bounded_and_evicts_the_oldest_entry() {
        let (quota, state) = empty_bucket();
        let settings = RefusalCacheSettings {
            keys: 4,
            ..RefusalCacheSettings::default()
        };
        let cache = RefusalCache::new(settings);
        for id in 0..100 {
            let counter = CachedCounter {
                id,
                ..counter(&quota, 1)
            };
            let timing = timing(id, id, 100 * SECOND);
            cache.insert(counter, state.clone(), Verb::Check, timing);
        }
        let is_known = |id: u64| {
            let counter = CachedCounter {
                id,
                ..counter(&quota, 1)
            };
            cache
                .refusal([counter].into_iter(), Verb::Check, 100)
                .is_some()
        };
        assert_eq!(
            (0..100).filter(|id| is_known(*id)).collect::<Vec<_>>(),
            [96, 97, 98, 99]
        );
    }

    /// Two processes with clocks of their own share a counter over a slow network.
    struct Simulation {
        random: fastrand::Rng,
        quota: Quota,
        state: State,
        caches: [RefusalCache; 2],
        /// True time. The store's clock runs 0.05 % faster.
        now: u64,
        /// Requests that were sent, with the time at which the store receives them.
        requests: Vec<(u64, Sent)>,
        /// Replies, with the time at which they are received, the store's time and its state.
        replies: Vec<(u64, Sent, u64, State)>,
        refused: u32,
    }

    #[derive(Clone, Copy)]
    struct Sent {
        process: usize,
        verb: Verb,
        cost: u32,
        sent_us: u64,
    }

    impl Simulation {
        fn store_time(&self) -> u64 {
            50 * 365 * 86_400 * SECOND + self.now + self.now / 2_000
        }

        fn local_time(&self, process: usize) -> u64 {
            self.now + 1_000 * process as u64
        }

        fn counter(&self, cost: u32) -> CachedCounter<'_> {
            counter(&self.quota, cost)
        }

        fn step(&mut self) {
            self.now += self.random.u64(1..30_000);
            let arrived = |due: u64| due <= self.now;
            if let Some(at) = self.requests.iter().position(|(due, _)| arrived(*due)) {
                let (_, sent) = self.requests.swap_remove(at);
                let store_time = self.store_time();
                let found = self.state.clone();
                evaluate(
                    &self.quota,
                    &mut self.state,
                    sent.verb,
                    sent.cost,
                    store_time,
                );
                let due = self.now + self.random.u64(0..80_000);
                self.replies.push((due, sent, store_time, found));
            } else if let Some(at) = self.replies.iter().position(|(due, ..)| arrived(*due)) {
                let (_, sent, found_us, found) = self.replies.swap_remove(at);
                let received_us = self.local_time(sent.process);
                let mut copy = found.clone();
                let verdict = evaluate(&self.quota, &mut copy, sent.verb, sent.cost, found_us);
                if !verdict.allowed() {
                    let timing = timing(sent.sent_us, received_us, found_us);
                    let counter = self.counter(sent.cost);
                    self.caches[sent.process].insert(counter, found, sent.verb, timing);
                }
            } else {
                self.send();
            }
        }

        fn send(&mut self) {
            let process = self.random.usize(..2);
            let sent = Sent {
                process,
                verb: [Verb::Check, Verb::Take][self.random.usize(..2)],
                cost: self.random.u32(1..4),
                sent_us: self.local_time(process),
            };
            let counters = [self.counter(sent.cost)].into_iter();
            let cached = self.caches[process].refusal(counters, sent.verb, sent.sent_us);
            let cached = cached.map(|mut found| evaluate_found(&mut found, sent.verb));
            let Some(cached) = cached else {
                let due = self.now + self.random.u64(0..80_000);
                return self.requests.push((due, sent));
            };
            self.refused += 1;
            let store_time = self.store_time();
            let mut copy = self.state.clone();
            let exact = evaluate(&self.quota, &mut copy, sent.verb, sent.cost, store_time);
            assert!(!exact.allowed(), "{}: the store would admit", self.quota);
            match (cached.verdict().retry(), exact.retry()) {
                (Some(Retry::Never), Some(Retry::Never)) => {}
                // Too long by at most the time that the reply took. Others may have used more since.
                (Some(Retry::After(cached)), Some(Retry::After(exact))) => {
                    let slack = SECOND / 2;
                    assert!(cached.get() <= exact.get() + slack, "{cached} {exact}");
                }
                (cached, exact) => panic!("{}: {cached:?} {exact:?}", self.quota),
            }
        }
    }

    #[test]
    fn a_refusal_is_one_that_the_store_would_make() {
        let seed = std::env::var("TALLYGATE_SEED").ok();
        let seed = seed.map_or_else(|| fastrand::u64(..), |text| text.parse().unwrap());
        for (i, text) in [
            "fixed-window 10/s",
            "sliding-window-counter 10/s",
            "sliding-window-log 10/s",
            "token-bucket 10/s burst 5",
            "token-bucket 7/s burst 20",
            "leaky-bucket 10/s burst 5",
            "leaky-bucket 10/s queue 5",
        ]
        .into_iter()
        .enumerate()
        {
            println!("TALLYGATE_SEED={seed} {text}");
            let mut simulation = Simulation {
                random: fastrand::Rng::with_seed(seed.wrapping_add(i as u64)),
                quota: text.parse().unwrap(),
                state: State::New,
                caches: [cache(), cache()],
                now: 0,
                requests: Vec::new(),
                replies: Vec::new(),
                refused: 0,
            };
            (0..40_000).for_each(|_| simulation.step());
            assert!(simulation.refused > 1_000, "{text}: {}", simulation.refused);
        }
    }
}
