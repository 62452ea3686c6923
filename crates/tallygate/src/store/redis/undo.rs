//! Undoes decisions: one call per part of the servers and charge time.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tallygate_core::lua::Operation;
use tallygate_core::{FoundState, MAX_TIME_US, Verb, refund_tail};

use super::cache::CounterCache;
use super::command::{Counter, ScriptCall, counter_id};
use super::error::StoreFailure;
use super::keys::Keyspace;
use super::{Inner, RedisStore};
use crate::decision::Decision;
use crate::request::Request;
use crate::store::{StoreError, TailRefund};

/// The calls that undo a decision: one for each part of the servers and time, and one for each hold
/// that is restored or reduced.
pub(super) fn undo_calls(
    keyspace: &Keyspace,
    part_of: impl Fn(&[u8]) -> u16,
    cache: Option<&CounterCache>,
    request: &Request<'_>,
    decision: &Decision,
    at_us: Option<u64>,
) -> Vec<Arc<ScriptCall>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut singles = Vec::new();
    for check in request.entries() {
        let units = decision.taken_units(check);
        let key = keyspace.counter_key(&check.key, check.limit);
        let is_concurrent = check.limit.quota().algorithm().is_concurrent();
        // The surplus of a take: the owner keeps the rest.
        let is_part = (1..decision.granted()).contains(&units) && decision.taken_us().is_some();
        if is_concurrent && is_part {
            let counter = Counter::from_entry(keyspace, request, check, units, cache);
            let operation = Operation::Verb(Verb::Refund);
            let call = ScriptCall::new([counter].into_iter(), operation, at_us);
            singles.push(Arc::new(call));
            continue;
        }
        if let Some(former) = decision.former_hold(counter_id(&key)) {
            let counter = Counter::from_entry(keyspace, request, check, units, cache);
            let former = Some(former);
            let operation = Operation::Restore { former };
            let call = ScriptCall::new([counter].into_iter(), operation, at_us);
            singles.push(Arc::new(call));
            continue;
        }
        if units > 0
            && let Some(taken_us) = decision.counter_taken_us(|| counter_id(&key))
        {
            let is_reserved = request.reserves(check);
            // A reserve of a known id took nothing.
            if is_reserved && taken_us == 0 {
                continue;
            }
            let time = (!is_reserved).then_some(taken_us);
            // A settle at 0 forgets the id too.
            let units = if is_reserved { 0 } else { units };
            let group = groups.entry((part_of(&key), time)).or_default();
            group.push(Counter::from_entry(keyspace, request, check, units, cache));
        }
    }
    let call = |((_, time), counters): ((u16, Option<u64>), Vec<_>)| {
        let operation = match time {
            Some(taken_us) => Operation::Undo { taken_us },
            None => Operation::Verb(Verb::Settle),
        };
        Arc::new(ScriptCall::new(counters.into_iter(), operation, at_us))
    };
    let undos = groups.into_iter().map(call);
    undos.chain(singles).collect()
}

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
        let part_of = |key: &[u8]| self.backend.part(key);
        let cache = self.cache().map(|cache| &**cache);
        undo_calls(&self.keyspace, part_of, cache, request, decision, at_us)
    }

    /// The call that returns the tail of one shaping limit, if its schedule ends as expected. `None`
    /// for several limits: their slots are not known to be the last of all.
    pub(super) fn tail_call(&self, request: &Request<'_>, ends_us: &[u64]) -> Option<ScriptCall> {
        let ([entry], [end_us]) = (request.entries(), ends_us) else {
            return None;
        };
        let key = self.keyspace.counter_key(&entry.key, entry.limit);
        let id = self.cache().map_or(0, |cache| cache.id(entry));
        let counter = Counter::new(key, *entry.limit.quota(), entry.cost(), id);
        let operation = Operation::RefundTail { end_us: *end_us };
        Some(ScriptCall::new([counter].into_iter(), operation, None))
    }

    pub(super) async fn refund_tail(&self, call: ScriptCall) -> TailRefund {
        let Operation::RefundTail { end_us } = call.operation else {
            return TailRefund::NotLast;
        };
        let call = Arc::new(call);
        let _invalidation = self.cache().and_then(|cache| cache.invalidate(&call));
        match self.send(Arc::clone(&call)).await {
            Ok(reply) => {
                let refunded = call.found(reply).all(|mut found| {
                    let FoundState {
                        quota,
                        cost,
                        now_us,
                        ..
                    } = found;
                    refund_tail(quota, &mut found.state, end_us, cost, now_us).is_some()
                });
                if refunded {
                    TailRefund::Refunded
                } else {
                    TailRefund::NotLast
                }
            }
            Err(failure) if failure.did_not_run() => TailRefund::NotLast,
            Err(_) => TailRefund::Unknown,
        }
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
