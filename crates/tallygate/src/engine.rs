//! The engine: a store with a deadline, a circuit breaker, a failure policy and waiting queues.

#[cfg(feature = "tokio")]
mod acquire;
#[cfg(feature = "tokio")]
mod breaker;
mod fallback;
#[cfg(feature = "tokio")]
mod queue;
#[cfg(feature = "tokio")]
mod shaping_queue;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tokio")]
pub use acquire::{AcquireError, Wait};

use crate::decision::Decision;
use crate::failure::OnFailure;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::request::Request;
use crate::store::{MemoryStore, Store};
#[cfg(feature = "tokio")]
use breaker::Breaker;
use fallback::{FailurePolicy, Fallback};
#[cfg(feature = "tokio")]
use queue::Queues;

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
    #[cfg(feature = "tokio")]
    breaker: Breaker,
    fallback: Fallback,
    #[cfg(feature = "tokio")]
    queues: Queues,
}

impl<S: Store> Engine<S> {
    /// Creates an engine with a store, by value or as an [`Arc`].
    pub fn new(store: S) -> Self {
        Engine {
            shared: Arc::new(Shared {
                store,
                #[cfg(feature = "tokio")]
                breaker: Breaker::default(),
                fallback: Fallback::default(),
                #[cfg(feature = "tokio")]
                queues: Queues::default(),
            }),
            failure: FailurePolicy::default(),
        }
    }

    /// Returns a limiter with this engine.
    pub fn limiter(&self, limit: impl Into<Limit>) -> Limiter<S> {
        Limiter::from_engine(self.clone(), limit)
    }

    /// Sets what is decided when the store fails, [`OnFailure::Open`] by default. A limit may have
    /// [its own policy](Limit::on_failure).
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        if policy.counts_replicas() {
            self.store().count_replicas();
        }
        self.failure.policy = policy;
        self
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
        if limit.own_policy().is_some_and(OnFailure::counts_replicas) {
            self.store().count_replicas();
        }
    }

    /// Decides a request. If the store does not answer before the deadline, or the circuit breaker
    /// is open, the [failure policy](Engine::on_failure) decides, and the decision is
    /// [degraded](Decision::degraded).
    #[inline]
    pub async fn decide(&self, request: &Request<'_>) -> Decision {
        match self.try_decide(request) {
            Some(decision) => decision,
            None => self.decide_remote(request).await,
        }
    }

    /// Decides a request without waiting. Returns `None`, and decides nothing, if the counters are
    /// not in this process.
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
        result.unwrap_or_else(|_| {
            let replicas = self.store().replicas();
            self.shared.fallback.decide(request, self.failure, replicas)
        })
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
    ///     limiter.undo(&request, &decision);
    /// }
    /// assert_eq!(limiter.peek("user:42", 1).remaining(), 100);
    /// ```
    pub fn undo(&self, request: &Request<'_>, decision: &Decision) {
        if decision.taken_us().is_some() {
            self.store().undo(request, decision);
        }
    }

    /// Whether the circuit breaker is open: the store has failed repeatedly and is probed in the
    /// background until it answers again.
    #[cfg(feature = "tokio")]
    pub fn store_is_down(&self) -> bool {
        self.shared.breaker.is_open()
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
        debug.field("waiting", &self.shared.queues.len());
        debug
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}
