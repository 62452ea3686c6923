//! The counters of cards on the real clock: in a memory store of their own, or in the server's Redis.

use std::sync::Arc;
use std::time::Duration;

use tallygate::http::Limits;
use tallygate::{Decision, Engine, Key, MemoryStore, Request, Snapshot, Store, Verb};
use tokio::time::timeout;

use super::sessions::Eviction;
use crate::state::ServerState;

/// Room for every card of every session.
const CAPACITY: usize = 40_000;
/// For a decision, an inspection or a probe.
const STORE_TIMEOUT: Duration = Duration::from_millis(250);

pub(super) enum CardStore {
    /// A store of their own: visitors take no capacity of the server's keys.
    Memory(Engine),
    /// The server's store, under keys of their own.
    Shared(Arc<ServerState>),
}

impl CardStore {
    pub(super) fn new(state: &Arc<ServerState>) -> Self {
        match state.engine.store().kind() {
            "memory" => {
                let store = MemoryStore::builder().capacity(CAPACITY).build();
                CardStore::Memory(Engine::new(store))
            }
            _ => CardStore::Shared(Arc::clone(state)),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            CardStore::Memory(_) => "memory",
            CardStore::Shared(state) => state.engine.store().kind(),
        }
    }

    pub(super) async fn is_reachable(&self) -> bool {
        match self {
            CardStore::Memory(_) => true,
            CardStore::Shared(state) => {
                let engine = &state.engine;
                let probed = timeout(STORE_TIMEOUT, engine.store().probe());
                !engine.store_is_down() && matches!(probed.await, Ok(Ok(())))
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
            CardStore::Memory(engine) => engine.decide(&request(&limits[0])).await,
            CardStore::Shared(state) => {
                // Longer than the default: a visitor prefers an answer.
                let limit = limits[0].clone().deadline(STORE_TIMEOUT);
                state.engine.decide(&request(&limit)).await
            }
        }
    }

    /// Reads a counter, or returns `None` if the store fails.
    pub(super) async fn inspect(&self, key: &Key<'_>, limits: &Limits) -> Option<Snapshot> {
        match self {
            CardStore::Memory(engine) => Some(engine.store().inspect(key, &limits[0])),
            CardStore::Shared(state) => {
                let look = state.engine.store().inspect(key, &limits[0]);
                timeout(STORE_TIMEOUT, look).await.ok()?.ok()
            }
        }
    }

    /// Resets counters in the background.
    pub(super) fn evict(&self, evictions: impl IntoIterator<Item = Eviction>) {
        for Eviction { key, limits } in evictions {
            let request = Request::new(&key, &limits[0]).verb(Verb::Reset);
            match self {
                CardStore::Memory(engine) => engine.store().submit(&request),
                CardStore::Shared(state) => state.engine.store().submit(&request),
            }
        }
    }
}
