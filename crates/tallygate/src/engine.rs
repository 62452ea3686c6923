//! The engine: a store with a deadline, a circuit breaker, a failure policy and waiting queues.

#[cfg(feature = "tokio")]
mod acquire;
mod fallback;
mod guard;
#[cfg(feature = "tokio")]
mod hold;
#[cfg(feature = "tokio")]
mod queue;
#[cfg(feature = "tokio")]
mod reserve;
#[cfg(feature = "tokio")]
mod shaping_queue;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use smallvec::SmallVec;
#[cfg(feature = "tokio")]
use tokio::runtime::Handle;

#[cfg(feature = "tokio")]
pub use acquire::{AcquireError, Wait};
#[cfg(feature = "redis")]
pub(crate) use fallback::LocalSize;
pub use guard::{Guard, OverloadStats};
#[cfg(feature = "tokio")]
pub use hold::{Hold, Refused};
#[cfg(feature = "tokio")]
pub use reserve::{Reservation, ReserveError};

/// What the simulation of a fleet shares with engines.
#[cfg(feature = "simulate")]
pub(crate) mod simulated {
    pub(crate) use super::fallback::{
        Answered, Cause, FailurePolicy, answer_without_store, decide_without_store, surplus,
    };
}

use crate::decision::Decision;
use crate::failure::OnFailure;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::request::Request;
#[cfg(feature = "tokio")]
use crate::store::breaker::{Breaker, Probe};
#[cfg(feature = "tokio")]
use crate::store::deadline;
use crate::store::{MemoryStore, Store, StoreError, StoreErrorKind};
use fallback::{Cause, FailurePolicy, answer_without_store};

/// Why the store did not decide each limit of a request.
type Kinds = SmallVec<[StoreErrorKind; 4]>;

#[cfg(feature = "tokio")]
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Decides requests with a store, or without it when the store fails.
///
/// An engine has no limits of its own: a [`Request`] carries them. A [`Limiter`] is an engine with
/// limits. An engine is cheap to clone; clones, and the limiters and layers made from them, share
/// the store, its circuit breaker, the counters that replace it, and the waiting queues.
///
/// ```
/// use tallygate::{Engine, Limit, MemoryStore, Quota, Request};
///
/// let engine = Engine::new(MemoryStore::new());
/// let limit = Limit::named("user", Quota::per_minute(60));
/// let decision = engine.try_decide(&Request::new("user:42", &limit));
/// assert!(decision.is_some_and(|decision| decision.allowed()));
/// ```
pub struct Engine<S = MemoryStore> {
    shared: Arc<Shared<S>>,
    failure: FailurePolicy,
}

/// What all clones of an engine share.
struct Shared<S> {
    store: S,
    guard: Arc<Guard>,
}

impl<S: Store> Engine<S> {
    /// Creates an engine with a store, by value or as an [`Arc`].
    pub fn new(store: S) -> Self {
        let guard = match store.guard() {
            Some(guard) => Arc::clone(guard),
            None => Arc::new(Guard::new()),
        };
        let engine = Engine {
            shared: Arc::new(Shared { store, guard }),
            failure: FailurePolicy::default(),
        };
        engine.count_replicas(engine.failure.policy);
        engine
    }

    /// Returns a limiter with this engine.
    pub fn limiter(&self, limit: impl Into<Limit>) -> Limiter<S> {
        Limiter::from_engine(self.clone(), limit)
    }

    /// Sets what is decided when the store fails, [`OnFailure::Local`] by default. A limit may have
    /// [its own policy](Limit::on_failure).
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.count_replicas(policy);
        self.failure.policy = policy;
        self
    }

    fn count_replicas(&self, policy: OnFailure) {
        if policy.counts_replicas() {
            self.store().count_replicas();
        }
    }

    /// Sets the deadline of the store, 50 ms by default. A limit may have
    /// [its own deadline](Limit::deadline). Deadlines need the feature `tokio`.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.failure.deadline = deadline;
        self
    }

    /// The store.
    #[inline]
    pub fn store(&self) -> &S {
        &self.shared.store
    }

    /// Announces a limit before the first request that carries it: the store allocates memory for
    /// it, and counts replicas if the limit's [policy](Limit::on_failure) needs their number.
    pub fn prepare(&self, limit: &Limit) {
        self.store().prepare(limit);
        if let Some(policy) = limit.own_policy() {
            self.count_replicas(policy);
        }
    }

    /// Decides a request. If the store fails, the [failure policy](Engine::on_failure) decides, and
    /// the decision is [degraded](Decision::degraded).
    ///
    /// A missed deadline is a failure only if the store has stopped answering. Otherwise it is
    /// overload: limits are counted in this process, with this replica's share, except those whose
    /// policy is [`OnFailure::Closed`], which refuse.
    #[inline]
    pub async fn decide(&self, request: &Request<'_>) -> Decision {
        match self.try_decide(request) {
            Some(decision) => decision,
            None => self.decide_remote(request).await,
        }
    }

    /// Decides a request without waiting. Returns `None`, and decides nothing, if the store has to
    /// be asked.
    #[inline]
    pub fn try_decide(&self, request: &Request<'_>) -> Option<Decision> {
        self.store().try_decide(request)
    }

    async fn decide_remote(&self, request: &Request<'_>) -> Decision {
        #[cfg(feature = "tokio")]
        let result = self.shared.decide(request, self.failure).await;
        // Without timers there is no deadline: the store has to enforce its own.
        #[cfg(not(feature = "tokio"))]
        let result = self.store().decide(request).await;
        result.unwrap_or_else(|error| self.decide_without_store(request, &error))
    }

    /// Decides the limits on servers that failed by their policies. If these refuse, what the others
    /// took is returned.
    fn decide_without_store(&self, request: &Request<'_>, error: &StoreError) -> Decision {
        let Some(partial) = error.partial() else {
            let kinds = SmallVec::from_elem(error.kind(), request.entries().len());
            return self.fall_back(request, &kinds);
        };
        let (positions, kinds): (Vec<usize>, Kinds) = partial
            .failed
            .iter()
            .map(|failed| (failed.at, failed.kind))
            .unzip();
        let fallback = self.fall_back(&request.subset(&positions), &kinds);
        let Some(decided) = &partial.decision else {
            return fallback;
        };
        if let Some(surplus) = fallback::surplus(request, &partial.decided, decided, &fallback) {
            self.undo(&surplus, decided);
        }
        fallback.with_decided(&positions, decided)
    }

    /// Decides without the store, which failed for each limit in this way.
    fn fall_back(&self, request: &Request<'_>, kinds: &Kinds) -> Decision {
        let guard = &*self.shared.guard;
        if kinds.contains(&StoreErrorKind::Timeout) {
            guard.timeouts.fetch_add(1, Relaxed);
        }
        let cause = |(at, kind): (usize, &StoreErrorKind)| {
            Cause::new(*kind, || self.store().is_silent(&request.subset(&[at])))
        };
        let causes: SmallVec<[Cause; 4]> = kinds.iter().enumerate().map(cause).collect();
        let by_policy = || {
            let (fallback, replicas) = (&guard.fallback, self.store().replicas());
            fallback.decide(request, self.failure, &causes, replicas)
        };
        let try_decide = || self.try_decide(request);
        let (decision, answered) =
            answer_without_store(request, kinds, &causes, try_decide, by_policy);
        guard.overload.count(answered);
        decision
    }

    /// Tells the counters of this process of a request that never takes units, without an answer.
    #[cfg(feature = "tokio")]
    fn submit_local(&self, request: &Request<'_>) {
        let fallback = &self.shared.guard.fallback;
        fallback.submit(request, self.failure, self.store().replicas());
    }

    /// How requests were answered under overload: they missed their deadline although the store was
    /// up, or could not be queued.
    pub fn overload(&self) -> OverloadStats {
        self.shared.guard.overload.stats()
    }

    /// The number of requests that missed their deadline.
    pub fn timeouts(&self) -> u64 {
        self.shared.guard.timeouts.load(Relaxed)
    }

    /// Undoes what a decision took, because the request does not count after all: a page that had
    /// not changed, a failed attempt. Returns at once.
    ///
    /// The units are returned as of the time they were taken, as far as they still weigh, so that
    /// no request is admitted that would not have been without this one. A
    /// [refund](crate::Verb::Refund) returns units to the current counter instead.
    ///
    /// The request is the one that was decided, or some of its limits if the others do count.
    /// Nothing happens if the decision is a refusal, [degraded](Decision::degraded) or
    /// [shared](Decision::shared), or if the store fails. Undo a decision once: a second undo
    /// returns units of other requests.
    ///
    /// ```
    /// use tallygate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::new(Quota::per_minute(100));
    /// let request = limiter.request("user:42").cost(5);
    /// let decision = limiter.decide_now(&request);
    /// assert_eq!(decision.remaining(), 95);
    ///
    /// let status = 304;
    /// if decision.allowed() && status == 304 {
    ///     limiter.engine().undo(&request, &decision);
    /// }
    /// assert_eq!(limiter.peek("user:42", 1).remaining(), 100);
    /// ```
    pub fn undo(&self, request: &Request<'_>, decision: &Decision) {
        if decision.taken_us().is_some() {
            self.store().undo(request, decision);
        }
    }

    /// Whether a circuit breaker is open: the store, or a server of it, has failed repeatedly and is
    /// probed in the background until it answers again.
    #[cfg(feature = "tokio")]
    pub fn store_is_down(&self) -> bool {
        let breaker = self.shared.guard.breaker.as_ref();
        breaker.is_some_and(Breaker::is_open) || self.store().is_down()
    }
}

#[cfg(feature = "tokio")]
impl<S: Store> Shared<S> {
    /// Decides with the store, unless its breaker is open, and before the deadline.
    async fn decide(
        self: &Arc<Self>,
        request: &Request<'_>,
        failure: FailurePolicy,
    ) -> Result<Decision, StoreError> {
        let deadline = failure.deadline_for(request);
        let Some(breaker) = &self.guard.breaker else {
            return self.store.decide_within(request, deadline).await;
        };
        if breaker.is_open() {
            let text = "it has not answered lately";
            return Err(StoreError::with_kind(StoreErrorKind::Unreachable, text));
        }
        let result = self.store.decide_within(request, deadline).await;
        match &result {
            Ok(_) => breaker.on_success(),
            Err(error) => match error.kind() {
                StoreErrorKind::Overloaded => {}
                StoreErrorKind::Timeout if !self.store.is_silent(request) => {}
                _ => {
                    // Without a runtime there are no probes: every request goes on to the store.
                    if breaker.on_failure()
                        && let Ok(runtime) = Handle::try_current()
                    {
                        breaker.open(self, &runtime, error);
                    }
                }
            },
        }
        result
    }
}

#[cfg(feature = "tokio")]
impl<S: Store> Probe for Shared<S> {
    fn name(&self) -> &str {
        "store"
    }

    async fn probe(&self) -> Result<(), StoreError> {
        deadline::enforce(self.store.probe(), PROBE_TIMEOUT).await
    }
}

impl<S> Clone for Engine<S> {
    fn clone(&self) -> Self {
        Engine {
            shared: Arc::clone(&self.shared),
            failure: self.failure,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Engine");
        debug.field("store", &self.shared.store);
        #[cfg(feature = "tokio")]
        debug.field("waiting", &self.shared.guard.queues.len());
        debug
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}
