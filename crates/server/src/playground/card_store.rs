//! The counters of cards on the real clock: in a store of their own, so that visitors neither take
//! room of the server's keys, count in its metrics, nor open its breakers.

use std::collections::HashMap;
use std::time::Duration;

use tallygate::http::Limits;
use tallygate::store::Snapshot;
use tallygate::{Decision, Engine, Key, MemoryStore, OnFailure, RedisError, Request, Store, Verb};
use tokio::time::timeout;

use super::sessions::{Evicted, Eviction, MAX_OWNERS};
use crate::metrics::Metrics;
use crate::store::{Backend, ServerStore};
use crate::store_url::StoreUrl;

/// Room for every card and reservation of every session.
const CAPACITY: usize = 50_000;
/// Of the counters in Redis.
const NAMESPACE: &str = "playground";
/// For a decision, an inspection or a probe. Longer than the default: a visitor prefers an answer.
const STORE_TIMEOUT: Duration = Duration::from_millis(250);

/// Who takes a step, by number.
#[derive(Clone, Copy, Default)]
pub(super) struct Caller {
    /// Of what a concurrency limit holds.
    pub(super) owner: Option<u32>,
    /// Of a reservation.
    pub(super) id: Option<u32>,
}

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
        let caller = Caller::default();
        self.decide_by(caller, key, limits, verb, cost).await
    }

    /// As [`decide`](Self::decide), for a caller.
    pub(super) async fn decide_by(
        &self,
        caller: Caller,
        key: &Key<'_>,
        limits: &Limits,
        verb: Verb,
        cost: u32,
    ) -> Decision {
        let limit = limits[0].clone().deadline(STORE_TIMEOUT);
        let mut request = Request::new(key, &limit).verb(verb).cost(cost);
        if let Some(owner) = caller.owner {
            request = request.owner(owner.to_string());
        }
        if let Some(id) = caller.id {
            request = request.id(id.to_string());
        }
        self.0.decide(&request).await
    }

    /// The owners of what is held under a concurrency limit, by the ids that a snapshot shows.
    pub(super) fn owners(&self, key: &Key<'_>, limits: &Limits) -> HashMap<u64, u32> {
        if !limits[0].quota().algorithm().is_concurrent() {
            return HashMap::new();
        }
        let store = self.0.store();
        let id = |owner: u32| store.caller_id(key, &limits[0], &Key::from(owner.to_string()));
        (1..=MAX_OWNERS).map(|owner| (id(owner), owner)).collect()
    }

    /// Reads a counter, or returns `None` if the store fails.
    pub(super) async fn inspect(&self, key: &Key<'_>, limits: &Limits) -> Option<Snapshot> {
        let inspected = self.0.store().inspect(key, &limits[0]);
        timeout(STORE_TIMEOUT, inspected).await.ok()?.ok()
    }

    /// Makes the store forget what is evicted, in the background.
    pub(super) fn evict(&self, evictions: impl IntoIterator<Item = Eviction>) {
        for Eviction { key, limits, what } in evictions {
            let request = Request::new(&key, &limits[0]);
            let request = match what {
                Evicted::Counter => request.verb(Verb::Reset),
                // Settled at its estimate it is forgotten, and what it took stays charged.
                Evicted::Reservation { id, units } => {
                    let request = request.verb(Verb::Settle).cost(units);
                    request.id(id.to_string())
                }
            };
            self.0.store().submit(&request);
        }
    }
}
