//! Decisions without the store, which failed or is overloaded, by the failure policy of each limit.

use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::time::Duration;

use smallvec::SmallVec;
use tallygate_core::Verb;

use crate::decision::Decision;
use crate::failure::{OnFailure, Replicas};
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

/// Why the store did not decide a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Failure,
    /// The store is up, but the deadline was missed.
    Overload,
}

/// The counters in this process that replace the store.
#[derive(Debug, Default)]
pub(super) struct Fallback {
    local: OnceLock<MemoryStore>,
    size: Option<LocalSize>,
}

/// The number of live keys, in all and by partition, that have their own counters.
#[derive(Clone, Debug)]
pub(crate) struct LocalSize {
    pub(crate) keys: usize,
    pub(crate) partitions: Vec<usize>,
}

impl Fallback {
    #[cfg(feature = "redis")]
    pub(super) fn with_size(size: LocalSize) -> Self {
        Fallback {
            local: OnceLock::new(),
            size: Some(size),
        }
    }

    fn local(&self) -> &MemoryStore {
        self.local.get_or_init(|| {
            let builder = MemoryStore::builder();
            let builder = match &self.size {
                Some(size) => builder
                    .capacity(size.keys)
                    .partitions(size.partitions.iter().copied()),
                None => builder,
            };
            builder.build()
        })
    }

    pub(super) fn decide(
        &self,
        request: &Request<'_>,
        failure: FailurePolicy,
        cause: Cause,
        replicas: Option<u32>,
    ) -> Decision {
        let mut local = LocalLimits::default();
        for (at, entry) in request.entries().iter().enumerate() {
            let shared_by = match (failure.policy_for(entry), cause) {
                (OnFailure::Local(shared_by), _) => shared_by,
                (OnFailure::Open, Cause::Failure) => {
                    local.open_costs.push(entry.cost());
                    continue;
                }
                // Overload must not switch a limit off: an attacker could cause it.
                (OnFailure::Open, Cause::Overload) => Replicas::Counted {
                    at_least: NonZeroU32::MIN,
                },
                (OnFailure::Closed, Cause::Failure) => return Decision::closed(request, at),
                (OnFailure::Closed, Cause::Overload) => {
                    return Decision::from_overload(request, at);
                }
            };
            let Some(quota) = entry.limit.quota().share(shared_by.number(replicas)) else {
                // The share is too small for any quota.
                return Decision::closed(request, at);
            };
            local.positions.push(at);
            let share = Limit::named(entry.limit.name(), quota);
            let share = share.partition(entry.limit.own_partition());
            local.shares.push(share);
        }
        let Some(part) = local.request(request) else {
            return Decision::open(request);
        };
        let decision = self.local().decide(&part);
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
