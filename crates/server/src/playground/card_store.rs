//! The counters of cards on the real clock: in a memory store of their own, or in the server's
//! Redis.

use std::time::Duration;

use tallygate::http::Limits;
use tallygate::{Decision, Engine, Key, MemoryStore, Request, Snapshot, Store, Verb};
use tokio::time::timeout;

use super::sessions::Eviction;
use crate::metrics::Metrics;
use crate::state::ServerState;
use crate::store::{Backend, ServerStore};

/// Room for every card of every session.
const CAPACITY: usize = 40_000;
/// For a decision, an inspection or a probe. Longer than the default: a visitor prefers an answer.
const STORE_TIMEOUT: Duration = Duration::from_millis(250);

pub(super) struct CardStore(Engine<ServerStore>);

impl CardStore {
    pub(super) fn new(state: &ServerState) -> Self {
        CardStore(match state.engine.store().kind() {
            // A store of their own: visitors take no capacity of the server's keys and do not count
            // in its metrics.
            "memory" => {
                let store = MemoryStore::builder().capacity(CAPACITY).build();
                Engine::new(ServerStore {
                    backend: Backend::Memory(store),
                    metrics: Metrics::new("memory").store(),
                })
            }
            _ => state.engine.clone(),
        })
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
