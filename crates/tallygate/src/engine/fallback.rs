//! Decisions without the store, which failed or is overloaded, by the failure policy of each limit.

use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::time::Duration;

use smallvec::SmallVec;
#[cfg(feature = "tokio")]
use smallvec::smallvec;
use tallygate_core::Verb;

use crate::decision::Decision;
use crate::failure::{OnFailure, Replicas};
use crate::limit::Limit;
use crate::request::{Request, RequestEntry};
use crate::store::{MemoryStore, StoreErrorKind};

const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// The failure policy and the deadline of an engine; a limit may override both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailurePolicy {
    pub(crate) policy: OnFailure,
    pub(crate) deadline: Duration,
}

impl FailurePolicy {
    fn policy_for(self, entry: &RequestEntry<'_>) -> OnFailure {
        entry.limit.own_policy().unwrap_or(self.policy)
    }

    /// Whether units of a limit are counted in this process while the store fails.
    #[cfg(feature = "tokio")]
    fn counts_locally(self, entry: &RequestEntry<'_>, replicas: Option<u32>) -> bool {
        match self.policy_for(entry) {
            OnFailure::Local(shared_by) => {
                let share = entry.limit.quota().divide(shared_by.number(replicas));
                share.is_some()
            }
            OnFailure::Open | OnFailure::Closed => false,
        }
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
pub(crate) enum Cause {
    Failure,
    /// The store is up, but the deadline was missed.
    Overload,
}

impl Cause {
    /// Why a request failed. A missed deadline is a failure only if the servers are silent.
    pub(crate) fn new(kind: StoreErrorKind, is_silent: impl FnOnce() -> bool) -> Self {
        match kind {
            StoreErrorKind::Overloaded => Cause::Overload,
            StoreErrorKind::Timeout if !is_silent() => Cause::Overload,
            _ => Cause::Failure,
        }
    }
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

    /// Tells the counters in this process, if there are any, of a verb that never takes units: what
    /// was held or reserved while the store failed is known only here.
    #[cfg(feature = "tokio")]
    pub(super) fn submit(
        &self,
        request: &Request<'_>,
        failure: FailurePolicy,
        replicas: Option<u32>,
    ) {
        if self.local.get().is_none() {
            return;
        }
        // Other limits would refuse the request: those that the servers decided.
        let entries = request.entries().iter().enumerate();
        let local = entries.filter(|(_, entry)| failure.counts_locally(entry, replicas));
        let local: SmallVec<[usize; 4]> = local.map(|(at, _)| at).collect();
        if !local.is_empty() {
            let causes: SmallVec<[Cause; 4]> = smallvec![Cause::Failure; local.len()];
            self.decide(&request.subset(&local), failure, &causes, replicas);
        }
    }

    /// Decides a request. `causes` has one for each limit.
    pub(super) fn decide(
        &self,
        request: &Request<'_>,
        failure: FailurePolicy,
        causes: &[Cause],
        replicas: Option<u32>,
    ) -> Decision {
        decide_without_store(request, failure, causes, replicas, |part| {
            self.local().decide(part)
        })
    }
}

/// Decides by the policies of a request's limits. `causes` has one for each limit; `local` decides
/// what is counted in this process.
pub(crate) fn decide_without_store(
    request: &Request<'_>,
    failure: FailurePolicy,
    causes: &[Cause],
    replicas: Option<u32>,
    local: impl FnOnce(&Request<'_>) -> Decision,
) -> Decision {
    let mut shares = LocalLimits::default();
    for (at, (entry, cause)) in request.entries().iter().zip(causes).enumerate() {
        let shared_by = match (failure.policy_for(entry), cause) {
            (OnFailure::Local(shared_by), _) => shared_by,
            (OnFailure::Open, Cause::Failure) => {
                shares.open_costs.push(entry.cost());
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
        let Some(quota) = entry.limit.quota().divide(shared_by.number(replicas)) else {
            // The share is too small for any quota.
            return Decision::closed(request, at);
        };
        shares.positions.push(at);
        let share = Limit::named(entry.limit.name(), quota);
        let share = share.partition(entry.limit.own_partition());
        shares.shares.push(share);
    }
    let Some(part) = shares.request(request) else {
        return Decision::open(request);
    };
    let decision = local(&part);
    if shares.open_costs.is_empty() {
        decision.into_local()
    } else {
        decision.into_partly_local(&shares.positions, &shares.open_costs)
    }
}

/// How a request was answered that the store did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// By policy: the store failed.
    Failure,
    /// Under overload: by what this process knows.
    Cached,
    /// Under overload: it could not be queued.
    Shed,
    /// Under overload: refused by policy.
    Closed,
    /// Under overload: counted in this process.
    Local,
}

/// Answers a request that the store did not decide. `kinds` and `causes` have one for each limit;
/// `try_decide` is asked what this process knows of it, and `by_policy` decides without the store.
pub(crate) fn answer_without_store(
    request: &Request<'_>,
    kinds: &[StoreErrorKind],
    causes: &[Cause],
    try_decide: impl FnOnce() -> Option<Decision>,
    by_policy: impl FnOnce() -> Decision,
) -> (Decision, Answered) {
    if !causes.contains(&Cause::Overload) {
        return (by_policy(), Answered::Failure);
    }
    // The store may have refused the same key since.
    if let Some(known) = try_decide() {
        return (known, Answered::Cached);
    }
    let shed = |kind: &StoreErrorKind| *kind == StoreErrorKind::Overloaded;
    if let Some(at) = kinds.iter().position(shed) {
        return (Decision::from_overload(request, at), Answered::Shed);
    }
    let decision = by_policy();
    let answered = match decision.unavailable() {
        true => Answered::Closed,
        false => Answered::Local,
    };
    (decision, answered)
}

/// What limits that the servers decided took too much, because the policies over the others, which
/// failed, refuse or grant less. `positions` are those of the decided ones.
pub(crate) fn surplus<'r>(
    request: &Request<'r>,
    positions: &[usize],
    decided: &Decision,
    fallback: &Decision,
) -> Option<Request<'r>> {
    if !fallback.allowed() {
        return Some(request.subset(positions));
    }
    // A take grants every limit the same.
    let surplus = decided.granted().saturating_sub(fallback.granted());
    let takes = surplus > 0 && request.requested_verb() == Verb::Take;
    takes.then(|| request.subset(positions).each_cost(surplus))
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
            _ => None,
        };
        let mut each = self.positions.iter().zip(&self.shares).map(|(&at, share)| {
            let entry = &whole.entries()[at];
            entry.for_limit(share, entry.cost().min(max.unwrap_or(u32::MAX)))
        });
        let first = Request::from_entry(each.next()?);
        let all = each.try_fold(first.asked_like(whole), Request::and_entry);
        Some(all.expect("the shares have the names of the limits, which are distinct"))
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use super::*;

    /// The servers of some limits may have failed while others answered.
    #[test]
    fn a_release_reaches_the_counters_of_this_process_beside_limits_without_any() {
        let failure = FailurePolicy::default();
        let limit = |name: &str| Limit::named(name, "concurrent 3 for 1h".parse().unwrap());
        let fixed =
            |replicas| OnFailure::Local(Replicas::Fixed(NonZeroU32::new(replicas).unwrap()));
        let local = limit("local").on_failure(fixed(1));
        let fallback = Fallback::default();
        let free = || {
            let peek = Request::new("k", &local).verb(Verb::Peek);
            let peek = fallback.decide(&peek, failure, &[Cause::Failure], None);
            peek.remaining()
        };
        for policy in [OnFailure::Closed, OnFailure::Open, fixed(100)] {
            let hold = Request::new("k", &local).owner("o").verb(Verb::Check);
            let held = fallback.decide(&hold, failure, &[Cause::Failure], None);
            assert!(held.allowed());
            assert_eq!(free(), 2);
            let other = limit("other").on_failure(policy);
            let both = Request::with_limits("k", [&other, &local]).unwrap();
            let release = both.owner("o").verb(Verb::Release);
            fallback.submit(&release, failure, None);
            assert_eq!(free(), 3, "{policy:?}");
        }
    }
}
