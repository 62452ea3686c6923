//! What to answer when the store does not: after a deadline, by a policy. Errors stop here. Knows
//! nothing of why a store fails.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;
use tallygate_core::Verb;

#[cfg(feature = "tokio")]
use super::breaker::Breaker;
use crate::decision::Decision;
use crate::failure::OnFailure;
use crate::limit::Limit;
use crate::request::{Asked, Request};
use crate::store::{MemoryStore, Store, StoreError};

/// How long a store may take unless told otherwise.
const DEADLINE: Duration = Duration::from_millis(50);

/// How a limiter meets failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) policy: OnFailure,
    pub(super) deadline: Duration,
}

impl Plan {
    /// A limit's own policy, or else the limiter's.
    fn policy_of(self, asked: &Asked<'_>) -> OnFailure {
        asked.limit.own_policy().unwrap_or(self.policy)
    }

    /// The least deadline of a request's limits, each its own or else the limiter's.
    #[cfg(feature = "tokio")]
    fn deadline_of(self, request: &Request<'_>) -> Duration {
        let each = request.asked().iter();
        let each = each.map(|asked| asked.limit.own_deadline().unwrap_or(self.deadline));
        each.min().unwrap_or(self.deadline)
    }
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
        match self.ask(store, request, plan).await {
            Ok(decision) => decision,
            Err(_) => self.instead(store.replicas(), request, plan),
        }
    }

    #[cfg(feature = "tokio")]
    async fn ask<S: Store>(
        &self,
        store: &Arc<S>,
        request: &Request<'_>,
        plan: Plan,
    ) -> Result<Decision, StoreError> {
        let deadline = || plan.deadline_of(request);
        self.breaker.ask(store, request, deadline).await
    }

    /// Without timers there is no deadline: the store has to keep its own.
    #[cfg(not(feature = "tokio"))]
    async fn ask<S: Store>(
        &self,
        store: &Arc<S>,
        request: &Request<'_>,
        _: Plan,
    ) -> Result<Decision, StoreError> {
        store.decide(request).await
    }

    fn instead(&self, counted: Option<u32>, request: &Request<'_>, plan: Plan) -> Decision {
        let mut local = Local::default();
        for (at, asked) in request.asked().iter().enumerate() {
            match plan.policy_of(asked) {
                OnFailure::Open => local.uncounted.push(asked.units()),
                OnFailure::Closed => return Decision::closed(request, at),
                OnFailure::Local(replicas) => {
                    let quota = asked.limit.quota().share(replicas.number(counted));
                    let Some(quota) = quota else {
                        // A share so small that no quota says it is no share.
                        return Decision::closed(request, at);
                    };
                    local.places.push(at);
                    local.shares.push(Limit::named(asked.limit.name(), quota));
                }
            }
        }
        let Some(part) = local.request(request) else {
            return Decision::open(request);
        };
        let decision = self.local.get_or_init(MemoryStore::new).decide(&part);
        if local.uncounted.is_empty() {
            decision.counted_here()
        } else {
            decision.partly_counted_here(&local.places, &local.uncounted)
        }
    }
}

/// Which limits of a request are counted in this process, and under which share.
#[derive(Default)]
struct Local {
    places: SmallVec<[usize; 4]>,
    shares: SmallVec<[Limit; 4]>,
    /// The costs of the limits that are not counted, because they are open.
    uncounted: SmallVec<[u32; 4]>,
}

impl Local {
    /// What is asked of those limits together; none if there are none.
    fn request<'a>(&'a self, whole: &'a Request<'_>) -> Option<Request<'a>> {
        // A take grants the same to every limit, so no more than the least open one takes.
        let most = match whole.asks() {
            Verb::Take => self
                .uncounted
                .iter()
                .copied()
                .filter(|&units| units > 0)
                .min(),
            Verb::Check | Verb::Peek | Verb::Charge | Verb::Refund | Verb::Reset => None,
        };
        let mut each = self.places.iter().zip(&self.shares).map(|(&at, share)| {
            let asked = &whole.asked()[at];
            let units = asked.units();
            (
                &asked.key,
                share,
                most.map_or(units, |most| units.min(most)),
            )
        });
        let (key, limit, cost) = each.next()?;
        let first = Request::new(key, limit).cost(cost).verb(whole.asks());
        let all = each.try_fold(first, |request, (key, limit, cost)| {
            request.and_cost(key, limit, cost)
        });
        Some(all.expect("the whole request has no counter twice, and its shares have its names"))
    }
}
