//! The counters of cards on the real clock: in a memory store of their own, or in the server's Redis.

use std::sync::Arc;
use std::time::Duration;

use tallygate::http::Limits;
use tallygate::{Decision, Key, Limiter, Look, MemoryStore, Quota, Request, Store, Verb};
use tokio::time::timeout;

use super::sessions::Eviction;
use crate::state::Serving;

/// Room for every card of every session.
const CAPACITY: usize = 40_000;
/// For a decision, an inspection or a probe.
const STORE_TIMEOUT: Duration = Duration::from_millis(250);

pub(super) enum CardStore {
    /// A store of their own: visitors take no capacity of the server's keys.
    Memory(Limiter),
    /// The server's store, under keys of their own.
    Shared(Arc<Serving>),
}

impl CardStore {
    pub(super) fn new(serving: &Arc<Serving>) -> Self {
        match serving.limiter.store().kind() {
            "memory" => {
                let store = MemoryStore::builder().capacity(CAPACITY).build();
                // Its own limit plays no part.
                CardStore::Memory(Limiter::over(store, Quota::per_minute(1)))
            }
            _ => CardStore::Shared(Arc::clone(serving)),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            CardStore::Memory(_) => "memory",
            CardStore::Shared(serving) => serving.limiter.store().kind(),
        }
    }

    pub(super) async fn is_reachable(&self) -> bool {
        match self {
            CardStore::Memory(_) => true,
            CardStore::Shared(serving) => {
                let limiter = &serving.limiter;
                let probed = timeout(STORE_TIMEOUT, limiter.store().probe());
                !limiter.store_is_down() && matches!(probed.await, Ok(Ok(())))
            }
        }
    }

    /// Decides one step; if the store fails, by the server's failure policy.
    pub(super) async fn decide(
        &self,
        key: &Key<'_>,
        limits: &Limits,
        verb: Verb,
        cost: u32,
    ) -> Decision {
        let request = |limit| Request::new(key, limit).verb(verb).cost(cost);
        match self {
            CardStore::Memory(limiter) => limiter.decide(&request(&limits[0])).await,
            CardStore::Shared(serving) => {
                // Longer than the default: a visitor prefers an answer.
                let limit = limits[0].clone().deadline(STORE_TIMEOUT);
                serving.limiter.decide(&request(&limit)).await
            }
        }
    }

    /// Reads a counter, or returns `None` if the store fails.
    pub(super) async fn look(&self, key: &Key<'_>, limits: &Limits) -> Option<Look> {
        match self {
            CardStore::Memory(limiter) => Some(limiter.store().inspect(key, &limits[0])),
            CardStore::Shared(serving) => {
                let look = serving.limiter.store().look(key, &limits[0]);
                timeout(STORE_TIMEOUT, look).await.ok()?.ok()
            }
        }
    }

    /// Resets counters in the background.
    pub(super) fn evict(&self, evictions: impl IntoIterator<Item = Eviction>) {
        for Eviction { key, limits } in evictions {
            let request = Request::new(&key, &limits[0]).verb(Verb::Reset);
            match self {
                CardStore::Memory(limiter) => limiter.store().carry_out(&request),
                CardStore::Shared(serving) => serving.limiter.store().carry_out(&request),
            }
        }
    }
}
