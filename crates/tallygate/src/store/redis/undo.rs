//! Undoes decisions: one call per slot and charge time.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tallygate_core::MAX_TIME_US;
use tallygate_core::lua::Operation;

use super::command::{Counter, ScriptCall, counter_id};
use super::error::StoreFailure;
use super::{Backend, Inner, RedisStore, keys};
use crate::decision::Decision;
use crate::request::Request;
use crate::store::StoreError;

impl RedisStore {
    /// Undoes a decision at a supplied time instead of the server's; see
    /// [`Limiter::undo`](crate::Limiter::undo).
    ///
    /// # Errors
    /// When the counters cannot be reached; how much was refunded is unknown then.
    pub async fn undo_at(
        &self,
        request: &Request<'_>,
        decision: &Decision,
        now_us: u64,
    ) -> Result<(), StoreError> {
        let at = now_us.min(MAX_TIME_US);
        let calls = self.inner.undo_calls(request, decision, Some(at));
        Ok(self.inner.undo(calls).await?)
    }
}

impl Inner {
    pub(super) fn undo_calls(
        &self,
        request: &Request<'_>,
        decision: &Decision,
        at_us: Option<u64>,
    ) -> Vec<Arc<ScriptCall>> {
        let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for check in request.entries() {
            let units = decision.taken_units(check);
            let key = self.keyspace.counter_key(&check.key, check.limit);
            if units > 0
                && let Some(taken_us) = decision.counter_taken_us(|| counter_id(&key))
            {
                let slot = match self.backend {
                    Backend::Single(_) => 0,
                    Backend::Cluster(_) => keys::slot(&key),
                };
                let group = groups.entry((slot, taken_us)).or_default();
                let id = self.cache().map_or(0, |cache| cache.id(check));
                group.push(Counter::new(key, *check.limit.quota(), units, id));
            }
        }
        let call = |((_, taken_us), counters): (_, Vec<_>)| {
            let operation = Operation::Undo { taken_us };
            Arc::new(ScriptCall::new(counters.into_iter(), operation, at_us))
        };
        groups.into_iter().map(call).collect()
    }

    /// Sends the calls in parallel. A lost one is not repeated: it might have run.
    pub(super) async fn undo(&self, calls: Vec<Arc<ScriptCall>>) -> Result<(), StoreFailure> {
        let results = join_all(calls.into_iter().map(|call| self.send_undo(call))).await;
        results.into_iter().collect()
    }

    async fn send_undo(&self, call: Arc<ScriptCall>) -> Result<(), StoreFailure> {
        let _invalidation = self.cache().and_then(|cache| cache.invalidate(&call));
        match self.send(Arc::clone(&call)).await {
            // Did not run: a slot migration has moved some of its counters.
            Err(StoreFailure::TryAgain) if call.len() > 1 => {
                let (operation, at) = (call.operation, call.at_us);
                let singles = call.counters.iter().map(|counter| {
                    let single = ScriptCall::single(counter, counter.cost, operation, at);
                    self.send(Arc::new(single))
                });
                let mut results = join_all(singles).await.into_iter();
                results.try_for_each(|result| result.map(drop))
            }
            result => result.map(drop),
        }
    }
}
