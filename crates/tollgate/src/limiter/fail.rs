//! What to answer when the store does not: after a deadline, by a policy. Errors stop here. Knows
//! nothing of why a store fails.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[cfg(feature = "tokio")]
use super::breaker::Breaker;
use crate::decision::Decision;
use crate::failure::OnFailure;
use crate::limit::Limit;
use crate::request::Request;
use crate::store::{MemoryStore, Store, StoreError};

/// How long a store may take unless told otherwise.
const DEADLINE: Duration = Duration::from_millis(50);

/// How a limiter meets failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) policy: OnFailure,
    pub(super) deadline: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            policy: OnFailure::default(),
            deadline: DEADLINE,
        }
    }
}

/// What limiters over one store share: what is known of the store, and what counts instead.
#[derive(Debug, Default)]
pub(super) struct Guard {
    #[cfg(feature = "tokio")]
    pub(super) breaker: Arc<Breaker>,
    local: OnceLock<MemoryStore>,
}

impl Guard {
    /// Decides, with the store or without it.
    pub(super) async fn decide<S: Store>(
        &self,
        store: &Arc<S>,
        request: &Request<'_>,
        plan: Plan,
    ) -> Decision {
        match self.ask(store, request, plan.deadline).await {
            Ok(decision) => decision,
            Err(_) => self.instead(store.replicas(), request, plan.policy),
        }
    }

    #[cfg(feature = "tokio")]
    async fn ask<S: Store>(
        &self,
        store: &Arc<S>,
        request: &Request<'_>,
        deadline: Duration,
    ) -> Result<Decision, StoreError> {
        self.breaker.ask(store, request, deadline).await
    }

    /// Without timers there is no deadline: the store has to keep its own.
    #[cfg(not(feature = "tokio"))]
    async fn ask<S: Store>(
        &self,
        store: &Arc<S>,
        request: &Request<'_>,
        _: Duration,
    ) -> Result<Decision, StoreError> {
        store.decide(request).await
    }

    fn instead(&self, counted: Option<u32>, request: &Request<'_>, policy: OnFailure) -> Decision {
        match policy {
            OnFailure::Open => Decision::open(request),
            OnFailure::Closed => Decision::closed(request),
            OnFailure::Local(replicas) => self
                .counted_here(request, replicas.number(counted))
                // A share so small that no quota says it is no share.
                .unwrap_or_else(|| Decision::closed(request)),
        }
    }

    fn counted_here(&self, request: &Request<'_>, replicas: u32) -> Option<Decision> {
        let share = |limit: &Limit| {
            let quota = limit.quota().share(replicas)?;
            Some(Limit::named(limit.name(), quota))
        };
        let asked = request.asked();
        let limits: Option<Vec<Limit>> = asked.iter().map(|asked| share(asked.limit)).collect();
        let limits = limits?;
        let mut pairs = asked.iter().zip(&limits);
        let (first, limit) = pairs.next()?;
        let request = Request::new(&first.key, limit)
            .cost(first.units())
            .verb(request.asks());
        let request = pairs
            .try_fold(request, |request, (asked, limit)| {
                request.and_cost(&asked.key, limit, asked.units())
            })
            .ok()?;
        let store = self.local.get_or_init(MemoryStore::new);
        Some(store.decide(&request).counted_here())
    }
}
