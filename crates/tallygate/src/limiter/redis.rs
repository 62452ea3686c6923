//! The verbs as asynchronous calls, for counters in Redis.

use futures_util::future::join_all;
use tallygate_core::Verb;

use super::Limiter;
use crate::decision::Decision;
use crate::key::Key;
use crate::request::Request;
use crate::store::RedisStore;

/// How many requests of a batch are decided at the same time: fewer than a connection queues.
const MAX_CONCURRENT: usize = 1_024;

/// Asynchronous calls, for counters in Redis. They never fail: without the servers, the
/// [failure policy](Limiter::on_failure) decides.
impl Limiter<RedisStore> {
    /// Takes 1 unit if it fits.
    pub async fn check(&self, key: impl Into<Key<'_>>) -> Decision {
        self.decide_key(key.into(), Verb::Check, 1).await
    }

    /// Takes all of the cost or nothing.
    pub async fn check_cost(&self, key: impl Into<Key<'_>>, cost: u32) -> Decision {
        self.decide_key(key.into(), Verb::Check, cost).await
    }

    /// Checks a cost of 1 for each key. They travel together: a hundred keys take about one round
    /// trip. Equal keys are decided in any order.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tallygate::{Limiter, Quota, RedisStore};
    ///
    /// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
    /// let limiter = Limiter::with_store(store, Quota::per_minute(2));
    /// let decisions = limiter.check_many(["a", "b", "a", "a"]).await;
    /// let allowed = decisions.iter().filter(|decision| decision.allowed());
    /// assert_eq!(allowed.count(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check_many<'k, K: Into<Key<'k>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Decision> {
        let keys: Vec<Key<'k>> = keys.into_iter().map(Into::into).collect();
        let requests: Vec<Request<'_>> = keys.iter().map(|key| self.request(key)).collect();
        self.decide_many(&requests).await
    }

    /// Answers as [`check_cost`](Limiter::check_cost) would and changes nothing.
    pub async fn peek(&self, key: impl Into<Key<'_>>, cost: u32) -> Decision {
        self.decide_key(key.into(), Verb::Peek, cost).await
    }

    /// Takes as much of the cost as fits.
    pub async fn take(&self, key: impl Into<Key<'_>>, cost: u32) -> Decision {
        self.decide_key(key.into(), Verb::Take, cost).await
    }

    /// Takes the cost unconditionally; later requests wait until the debt is paid.
    pub async fn charge(&self, key: impl Into<Key<'_>>, cost: u32) -> Decision {
        self.decide_key(key.into(), Verb::Charge, cost).await
    }

    /// Returns units that were taken.
    pub async fn refund(&self, key: impl Into<Key<'_>>, cost: u32) -> Decision {
        self.decide_key(key.into(), Verb::Refund, cost).await
    }

    /// Removes the counters of the key.
    pub async fn reset(&self, key: impl Into<Key<'_>>) -> Decision {
        self.decide_key(key.into(), Verb::Reset, 0).await
    }

    /// Decides several requests, whichever limits they carry. Those with the same counters are
    /// decided in any order.
    pub async fn decide_many(&self, requests: &[Request<'_>]) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(requests.len());
        for requests in requests.chunks(MAX_CONCURRENT) {
            let mut deciding = Vec::with_capacity(requests.len());
            for request in requests {
                deciding.push(self.decide(request));
            }
            decisions.extend(join_all(deciding).await);
        }
        decisions
    }

    async fn decide_key(&self, key: Key<'_>, verb: Verb, cost: u32) -> Decision {
        let request = self.request(&key).verb(verb).cost(cost);
        self.decide(&request).await
    }
}
