//! Decisions without the store, by the failure policy of each limit.

use std::sync::OnceLock;
use std::time::Duration;

use smallvec::SmallVec;
use tallygate_core::Verb;

use crate::decision::Decision;
use crate::failure::OnFailure;
use crate::limit::Limit;
use crate::request::{Request, RequestEntry};
use crate::store::MemoryStore;

const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// The failure policy and the deadline of an engine; a limit may override both.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailurePolicy {
    pub(super) policy: OnFailure,
    pub(super) deadline: Duration,
}

impl FailurePolicy {
    fn policy_for(self, entry: &RequestEntry<'_>) -> OnFailure {
        entry.limit.own_policy().unwrap_or(self.policy)
    }

    /// The shortest deadline of a request's limits.
    #[cfg(feature = "tokio")]
    pub(super) fn deadline_for(self, request: &Request<'_>) -> Duration {
        let each = request.entries().iter();
        let each = each.map(|entry| entry.limit.own_deadline().unwrap_or(self.deadline));
        each.min().unwrap_or(self.deadline)
    }
}

impl Default for FailurePolicy {
    fn default() -> Self {
        FailurePolicy {
            policy: OnFailure::default(),
            deadline: DEFAULT_DEADLINE,
        }
    }
}

/// The counters in this process that replace the store for [`OnFailure::Local`].
#[derive(Debug, Default)]
pub(super) struct Fallback {
    local: OnceLock<MemoryStore>,
}

impl Fallback {
    pub(super) fn decide(
        &self,
        request: &Request<'_>,
        failure: FailurePolicy,
        replicas: Option<u32>,
    ) -> Decision {
        let mut local = LocalLimits::default();
        for (at, entry) in request.entries().iter().enumerate() {
            match failure.policy_for(entry) {
                OnFailure::Open => local.open_costs.push(entry.cost()),
                OnFailure::Closed => return Decision::closed(request, at),
                OnFailure::Local(shared_by) => {
                    let quota = entry.limit.quota().share(shared_by.number(replicas));
                    let Some(quota) = quota else {
                        // The share is too small for any quota.
                        return Decision::closed(request, at);
                    };
                    local.positions.push(at);
                    local.shares.push(Limit::named(entry.limit.name(), quota));
                }
            }
        }
        let Some(part) = local.request(request) else {
            return Decision::open(request);
        };
        let decision = self.local.get_or_init(MemoryStore::new).decide(&part);
        if local.open_costs.is_empty() {
            decision.into_local()
        } else {
            decision.into_partly_local(&local.positions, &local.open_costs)
        }
    }
}

/// The limits of a request that are counted in this process.
#[derive(Default)]
struct LocalLimits {
    /// Positions in the request.
    positions: SmallVec<[usize; 4]>,
    /// This process's share of each limit.
    shares: SmallVec<[Limit; 4]>,
    /// The costs of the limits whose policy is [`OnFailure::Open`].
    open_costs: SmallVec<[u32; 4]>,
}

impl LocalLimits {
    fn request<'a>(&'a self, whole: &'a Request<'_>) -> Option<Request<'a>> {
        // A take grants every limit the same, so at most the least cost of an open limit.
        let max = match whole.requested_verb() {
            Verb::Take => self
                .open_costs
                .iter()
                .copied()
                .filter(|&cost| cost > 0)
                .min(),
            Verb::Check | Verb::Peek | Verb::Charge | Verb::Refund | Verb::Reset => None,
        };
        let mut each = self.positions.iter().zip(&self.shares).map(|(&at, share)| {
            let entry = &whole.entries()[at];
            let cost = entry.cost().min(max.unwrap_or(u32::MAX));
            (&entry.key, share, cost)
        });
        let (key, limit, cost) = each.next()?;
        let first = Request::new(key, limit)
            .cost(cost)
            .verb(whole.requested_verb());
        let all = each.try_fold(first, |request, (key, limit, cost)| {
            request.and_cost(key, limit, cost)
        });
        Some(all.expect("the shares have the names of the limits, which are distinct"))
    }
}
