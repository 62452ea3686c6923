//! The server's store: in memory or in Redis, with metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tallygate::store::{Guard, Snapshot, StoreErrorKind, TailRefund};
use tallygate::{Decision, Key, Limit, MemoryStore, RedisStore, Request, Store, StoreError};

use crate::metrics::StoreMetrics;

pub(crate) struct ServerStore {
    pub(crate) backend: Backend,
    pub(crate) metrics: StoreMetrics,
}

#[allow(clippy::large_enum_variant, reason = "there is one in a process")]
pub(crate) enum Backend {
    Memory(MemoryStore),
    Redis(RedisStore),
}

impl Backend {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Backend::Memory(_) => "memory",
            Backend::Redis(_) => "redis",
        }
    }
}

impl ServerStore {
    pub(crate) fn kind(&self) -> &'static str {
        self.backend.kind()
    }

    pub(crate) fn memory_store(&self) -> Option<&MemoryStore> {
        match &self.backend {
            Backend::Memory(store) => Some(store),
            Backend::Redis(_) => None,
        }
    }

    pub(crate) fn redis_store(&self) -> Option<&RedisStore> {
        match &self.backend {
            Backend::Memory(_) => None,
            Backend::Redis(store) => Some(store),
        }
    }

    /// The state of the counter of a key and a limit.
    ///
    /// # Errors
    /// When the store cannot be reached.
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

    /// The number by which [`inspect`](Self::inspect) tells a member or an owner of a counter from
    /// others.
    pub(crate) fn caller_id(&self, key: &Key<'_>, limit: &Limit, name: &Key<'_>) -> u64 {
        match &self.backend {
            Backend::Memory(store) => store.caller_id(key, limit, name),
            Backend::Redis(store) => store.caller_id(name),
        }
    }
}

impl ServerStore {
    /// Counts an error. The engine counts missed deadlines.
    fn record(&self, decided: &Result<Decision, StoreError>) {
        if let Err(error) = decided
            && error.kind() != StoreErrorKind::Timeout
        {
            self.metrics.record_error(error.kind());
        }
    }
}

impl Store for ServerStore {
    async fn decide(&self, request: &Request<'_>) -> Result<Decision, StoreError> {
        match &self.backend {
            Backend::Memory(store) => Ok(store.decide(request)),
            Backend::Redis(store) => {
                let _timer = self.metrics.start_timer();
                let decided = Store::decide(store, request).await;
                self.record(&decided);
                decided
            }
        }
    }

    async fn decide_within(
        &self,
        request: &Request<'_>,
        deadline: Duration,
    ) -> Result<Decision, StoreError> {
        match &self.backend {
            Backend::Memory(store) => Ok(store.decide(request)),
            Backend::Redis(store) => {
                let _timer = self.metrics.start_timer();
                let decided = store.decide_within(request, deadline).await;
                self.record(&decided);
                decided
            }
        }
    }

    #[inline]
    fn try_decide(&self, request: &Request<'_>) -> Option<Decision> {
        match &self.backend {
            Backend::Memory(store) => {
                let started = Instant::now();
                let decision = store.decide(request);
                self.metrics.observe(started.elapsed());
                Some(decision)
            }
            Backend::Redis(store) => store.try_decide(request),
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

    fn refund_tail(
        &self,
        request: &Request<'_>,
        ends_us: &[u64],
        done: impl FnOnce(TailRefund) + Send + 'static,
    ) {
        match &self.backend {
            Backend::Memory(store) => Store::refund_tail(store, request, ends_us, done),
            Backend::Redis(store) => store.refund_tail(request, ends_us, done),
        }
    }

    fn count_replicas(&self) {
        if let Some(store) = self.redis_store() {
            store.count_replicas();
        }
    }

    fn replicas(&self) -> Option<u32> {
        self.redis_store()?.replicas()
    }

    async fn probe(&self) -> Result<(), StoreError> {
        match self.redis_store() {
            Some(store) => store.probe().await,
            None => Ok(()),
        }
    }

    fn guard(&self) -> Option<&Arc<Guard>> {
        self.redis_store()?.guard()
    }

    fn is_silent(&self, request: &Request<'_>) -> bool {
        let store = self.redis_store();
        store.is_some_and(|store| store.is_silent(request))
    }

    fn is_down(&self) -> bool {
        self.redis_store().is_some_and(Store::is_down)
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
        let store = ServerStore {
            backend: Backend::Memory(MemoryStore::new()),
            metrics: metrics.store(),
        };
        let limiter = Limiter::with_store(store, Quota::per_minute(2));
        let request = limiter.request("a");
        let decision = limiter.try_decide(&request).unwrap();
        assert_eq!(decision.remaining(), 1);
        assert_eq!(limiter.store().memory_store().unwrap().live_keys(), 1);
        limiter.undo_request(&request, &decision);
        assert_eq!(limiter.try_decide(&request).unwrap().remaining(), 1);
        assert_eq!(
            limiter.store().memory_store().unwrap().shared_decisions(),
            0
        );
    }
}
