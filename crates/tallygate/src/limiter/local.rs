//! The verbs as plain calls, for counters in this process.

use tallygate_core::Verb;

use super::Limiter;
use crate::decision::Decision;
use crate::key::Key;
use crate::request::Request;
use crate::store::{LocalStore, MemoryStore};

/// Plain calls, for counters in this process.
impl<S: LocalStore> Limiter<S> {
    /// Takes 1 unit if it fits.
    #[must_use = "a decision limits nothing unless it is used"]
    #[inline]
    pub fn check<'k>(&self, key: impl Into<Key<'k>>) -> Decision {
        self.decide_key(key.into(), Verb::Check, 1)
    }

    /// Takes all of the cost or nothing.
    #[must_use = "a decision limits nothing unless it is used"]
    #[inline]
    pub fn check_cost<'k>(&self, key: impl Into<Key<'k>>, cost: u32) -> Decision {
        self.decide_key(key.into(), Verb::Check, cost)
    }

    /// Checks a cost of 1 for each key, in order. Faster than one by one if the keys do not fit
    /// the CPU caches.
    ///
    /// ```
    /// use tallygate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::new(Quota::per_minute(2));
    /// let decisions = limiter.check_many(["a", "b", "a", "a"]);
    /// let allowed: Vec<bool> = decisions.iter().map(|d| d.allowed()).collect();
    /// assert_eq!(allowed, [true, true, true, false]);
    /// ```
    #[must_use = "a decision limits nothing unless it is used"]
    pub fn check_many<'k, K: Into<Key<'k>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Decision> {
        let keys = keys.into_iter().map(Into::into);
        match &*self.limits {
            [limit] => self.memory().check_many(keys, limit),
            _ => {
                let keys: Vec<Key<'k>> = keys.collect();
                let requests: Vec<Request<'_>> = keys.iter().map(|key| self.request(key)).collect();
                self.memory().decide_many(&requests)
            }
        }
    }

    /// Answers as [`check_cost`](Limiter::check_cost) would and changes nothing.
    #[must_use = "a decision limits nothing unless it is used"]
    pub fn peek<'k>(&self, key: impl Into<Key<'k>>, cost: u32) -> Decision {
        self.decide_key(key.into(), Verb::Peek, cost)
    }

    /// Takes as much of the cost as fits.
    #[must_use = "a decision limits nothing unless it is used"]
    pub fn take<'k>(&self, key: impl Into<Key<'k>>, cost: u32) -> Decision {
        self.decide_key(key.into(), Verb::Take, cost)
    }

    /// Takes the cost unconditionally; later requests wait until the debt is paid.
    pub fn charge<'k>(&self, key: impl Into<Key<'k>>, cost: u32) -> Decision {
        self.decide_key(key.into(), Verb::Charge, cost)
    }

    /// Returns units that were taken.
    pub fn refund<'k>(&self, key: impl Into<Key<'k>>, cost: u32) -> Decision {
        self.decide_key(key.into(), Verb::Refund, cost)
    }

    /// Removes the counters of the key.
    pub fn reset<'k>(&self, key: impl Into<Key<'k>>) -> Decision {
        self.decide_key(key.into(), Verb::Reset, 0)
    }

    /// Decides a request, whichever limits it carries.
    pub fn decide_now(&self, request: &Request<'_>) -> Decision {
        self.memory().decide(request)
    }

    /// Decides several requests in order, whichever limits they carry.
    pub fn decide_many(&self, requests: &[Request<'_>]) -> Vec<Decision> {
        self.memory().decide_many(requests)
    }

    #[inline(always)]
    fn memory(&self) -> &MemoryStore<S::Clock> {
        self.engine.store().memory_store()
    }

    #[inline(always)]
    fn decide_key(&self, key: Key<'_>, verb: Verb, cost: u32) -> Decision {
        match &*self.limits {
            [limit] => self.memory().decide_key(&key, limit, verb, cost),
            _ => self
                .memory()
                .decide(&self.request(&key).verb(verb).cost(cost)),
        }
    }
}
