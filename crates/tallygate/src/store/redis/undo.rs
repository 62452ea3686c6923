//! Takes back what a decision took: one call for the counters of a slot that were taken from at one
//! moment. Knows no connection.

use std::collections::BTreeMap;
use std::iter::once;
use std::sync::Arc;

use futures_util::future::join_all;
use tallygate_core::MAX_TIME_US;
use tallygate_core::lua::Operation;

use super::command::{self, Call};
use super::error::Trouble;
use super::{Inner, Reached, RedisStore, keys};
use crate::decision::Decision;
use crate::request::Request;
use crate::store::StoreError;

impl RedisStore {
    /// Takes back what a decision took for a request, at a supplied time instead of the server's:
    /// see [`Limiter::undo`](crate::Limiter::undo).
    ///
    /// # Errors
    /// When the counters cannot be reached; how much was taken back is not known then.
    pub async fn undo_at(
        &self,
        request: &Request<'_>,
        decision: &Decision,
        now_us: u64,
    ) -> Result<(), StoreError> {
        let at = now_us.min(MAX_TIME_US);
        let calls = self.inner.undoing(request, decision, Some(at));
        Ok(self.inner.undo(calls).await?)
    }
}

impl Inner {
    /// The calls that take back what a decision took.
    pub(super) fn undoing(
        &self,
        request: &Request<'_>,
        decision: &Decision,
        at_us: Option<u64>,
    ) -> Vec<Arc<Call>> {
        let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for asked in request.asked() {
            let units = decision.took(asked);
            let name = self.names.counter(&asked.key, asked.limit);
            if units > 0
                && let Some(taken_us) = decision.taken_from_us(|| command::mark(&name))
            {
                let slot = match self.servers {
                    Reached::One(_) => 0,
                    Reached::Many(_) => keys::slot(&name),
                };
                let group = groups.entry((slot, taken_us)).or_default();
                group.push((name, *asked.limit.quota(), units));
            }
        }
        let call = |((_, taken_us), limits): (_, Vec<_>)| {
            let ask = Operation::Undo { taken_us };
            Arc::new(Call::new(limits.into_iter(), ask, at_us))
        };
        groups.into_iter().map(call).collect()
    }

    /// Makes them, side by side. What is lost is not repeated: it might give back twice.
    pub(super) async fn undo(&self, calls: Vec<Arc<Call>>) -> Result<(), Trouble> {
        let made = join_all(calls.into_iter().map(|call| self.undo_of_slot(call))).await;
        made.into_iter().collect()
    }

    async fn undo_of_slot(&self, call: Arc<Call>) -> Result<(), Trouble> {
        match self.send(Arc::clone(&call)).await {
            // Not run: its counters are on their way, and each is at one of two servers.
            Err(Trouble::TryAgain) if call.len() > 1 => {
                let each = call.limits().iter().map(|limit| {
                    let limit = once((limit.name.clone(), limit.quota, limit.cost));
                    self.send(Arc::new(Call::new(limit, call.ask(), call.at_us())))
                });
                let made = join_all(each).await;
                made.into_iter().try_for_each(|made| made.map(|_| ()))
            }
            made => made.map(|_| ()),
        }
    }
}
