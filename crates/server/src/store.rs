//! The store that a server counts in, whichever it is, and how long it takes. Knows stores and
//! metrics; knows nothing of rules and doors.

use std::time::Instant;

use tallygate::{
    Decision, Key, Limit, MemoryStore, RedisStore, Request, Snapshot, Store, StoreError,
};

use crate::metrics::StoreMetrics;

/// A memory or Redis store with metrics.
pub(crate) struct ServerStore {
    backend: Backend,
    metrics: StoreMetrics,
}

#[allow(clippy::large_enum_variant, reason = "there is one in a process")]
enum Backend {
    Memory(MemoryStore),
    Redis(RedisStore),
}

impl ServerStore {
    /// Counts in this process.
    pub(crate) fn memory(store: MemoryStore, metrics: StoreMetrics) -> Self {
        let backend = Backend::Memory(store);
        ServerStore { backend, metrics }
    }

    /// Counts in Redis or Valkey.
    pub(crate) fn redis(store: RedisStore, metrics: StoreMetrics) -> Self {
        let backend = Backend::Redis(store);
        ServerStore { backend, metrics }
    }

    /// What kind of store it is, in a word.
    pub(crate) fn kind(&self) -> &'static str {
        match self.backend {
            Backend::Memory(_) => "memory",
            Backend::Redis(_) => "redis",
        }
    }

    /// The servers, if that is where it counts.
    pub(crate) fn redis_store(&self) -> Option<&RedisStore> {
        match &self.backend {
            Backend::Memory(_) => None,
            Backend::Redis(store) => Some(store),
        }
    }

    /// How many live keys this process holds. Looks at every place, so it takes a while.
    pub(crate) fn live_keys(&self) -> usize {
        match &self.backend {
            Backend::Memory(store) => store.live_keys(),
            Backend::Redis(_) => 0,
        }
    }

    /// Looks at the counter of a key and a limit.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub(crate) async fn inspect(
        &self,
        key: &Key<'_>,
        limit: &Limit,
    ) -> Result<Snapshot, StoreError> {
        match &self.backend {
            Backend::Memory(store) => Ok(store.inspect(key, limit)),
            Backend::Redis(store) => store.inspect(key, limit).await,
        }
    }

    /// How many decisions were made on shared budgets.
    pub(crate) fn shared_decisions(&self) -> u64 {
        match &self.backend {
            Backend::Memory(store) => store.shared_decisions(),
            Backend::Redis(_) => 0,
        }
    }
}

impl Store for ServerStore {
    async fn decide(&self, request: &Request<'_>) -> Result<Decision, StoreError> {
        match &self.backend {
            Backend::Memory(store) => Ok(store.decide(request)),
            Backend::Redis(store) => {
                let timer = self.metrics.start_timer();
                let decided = Store::decide(store, request).await;
                timer.finish(decided.as_ref().err().map(StoreError::kind));
                decided
            }
        }
    }

    #[inline]
    fn try_decide(&self, request: &Request<'_>) -> Option<Decision> {
        match &self.backend {
            Backend::Memory(store) => {
                let began = Instant::now();
                let decision = store.decide(request);
                self.metrics.observe(began.elapsed());
                Some(decision)
            }
            Backend::Redis(_) => None,
        }
    }

    fn prepare(&self, limit: &Limit) {
        match &self.backend {
            Backend::Memory(store) => Store::prepare(store, limit),
            Backend::Redis(store) => store.prepare(limit),
        }
    }

    fn submit(&self, request: &Request<'_>) {
        match &self.backend {
            Backend::Memory(store) => store.submit(request),
            Backend::Redis(store) => store.submit(request),
        }
    }

    fn undo(&self, request: &Request<'_>, decision: &Decision) {
        match &self.backend {
            Backend::Memory(store) => store.undo(request, decision),
            Backend::Redis(store) => store.undo(request, decision),
        }
    }

    fn count_replicas(&self) {
        match &self.backend {
            Backend::Memory(store) => store.count_replicas(),
            Backend::Redis(store) => store.count_replicas(),
        }
    }

    fn replicas(&self) -> Option<u32> {
        match &self.backend {
            Backend::Memory(store) => store.replicas(),
            Backend::Redis(store) => store.replicas(),
        }
    }

    async fn probe(&self) -> Result<(), StoreError> {
        match &self.backend {
            Backend::Memory(store) => store.probe().await,
            Backend::Redis(store) => store.probe().await,
        }
    }
}

impl std::fmt::Debug for ServerStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ServerStore").field(&self.kind()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use tallygate::{Limiter, Quota};

    #[test]
    fn counters_in_this_process_decide_at_once_and_can_be_undone() {
        let metrics = Metrics::new("memory");
        let store = ServerStore::memory(MemoryStore::new(), metrics.store());
        let limiter = Limiter::with_store(store, Quota::per_minute(2));
        let request = limiter.request("a");
        let decision = limiter.try_decide(&request).unwrap();
        assert_eq!(decision.remaining(), 1);
        assert_eq!(limiter.store().live_keys(), 1);
        limiter.undo(&request, &decision);
        assert_eq!(limiter.try_decide(&request).unwrap().remaining(), 1);
        assert_eq!(limiter.store().shared_decisions(), 0);
    }
}
