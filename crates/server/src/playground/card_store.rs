//! The counters of cards on the real clock: in a store of their own, so that visitors neither take
//! room of the server's keys, count in its metrics, nor open its breakers.

use std::time::Duration;

use tallygate::http::Limits;
use tallygate::store::Snapshot;
use tallygate::{Decision, Engine, Key, MemoryStore, OnFailure, RedisError, Request, Store, Verb};
use tokio::time::timeout;

use super::sessions::Eviction;
use crate::metrics::Metrics;
use crate::store::{Backend, ServerStore};
use crate::store_url::StoreUrl;

/// Room for every card of every session.
const CAPACITY: usize = 40_000;
/// Of the counters in Redis.
const NAMESPACE: &str = "playground";
/// For a decision, an inspection or a probe. Longer than the default: a visitor prefers an answer.
const STORE_TIMEOUT: Duration = Duration::from_millis(250);

pub(crate) struct CardStore(Engine<ServerStore>);

impl CardStore {
    /// Opens a store like the server's: in Redis, with connections and a namespace of its own.
    ///
    /// # Errors
    /// As for [`RedisStoreBuilder::open`](tallygate::store::RedisStoreBuilder::open).
    pub(crate) fn open(like: &StoreUrl, on_failure: OnFailure) -> Result<Self, RedisError> {
        let backend = match like {
            StoreUrl::Memory => Backend::Memory(MemoryStore::builder().capacity(CAPACITY).build()),
            StoreUrl::Redis(builder) => {
                let builder = builder.clone().namespace(NAMESPACE).local_keys(CAPACITY);
                Backend::Redis(builder.open()?)
            }
        };
        let metrics = Metrics::new(backend.kind()).store();
        let engine = Engine::new(ServerStore { backend, metrics });
        Ok(CardStore(engine.on_failure(on_failure)))
    }

    pub(super) fn engine(&self) -> Engine<ServerStore> {
        self.0.clone()
    }

    pub(super) fn kind(&self) -> &'static str {
        self.0.store().kind()
    }

    pub(super) async fn is_reachable(&self) -> bool {
        let probed = timeout(STORE_TIMEOUT, self.0.store().probe());
        !self.0.store_is_down() && matches!(probed.await, Ok(Ok(())))
    }

    /// Decides one step; if the store fails, by the server's failure policy.
    pub(super) async fn decide(
        &self,
        key: &Key<'_>,
        limits: &Limits,
        verb: Verb,
        cost: u32,
    ) -> Decision {
        let limit = limits[0].clone().deadline(STORE_TIMEOUT);
        let request = Request::new(key, &limit).verb(verb).cost(cost);
        self.0.decide(&request).await
    }

    /// Reads a counter, or returns `None` if the store fails.
    pub(super) async fn inspect(&self, key: &Key<'_>, limits: &Limits) -> Option<Snapshot> {
        let inspected = self.0.store().inspect(key, &limits[0]);
        timeout(STORE_TIMEOUT, inspected).await.ok()?.ok()
    }

    /// Resets counters in the background.
    pub(super) fn evict(&self, evictions: impl IntoIterator<Item = Eviction>) {
        for Eviction { key, limits } in evictions {
            let reset = Request::new(&key, &limits[0]).verb(Verb::Reset);
            self.0.store().submit(&reset);
        }
    }
}
