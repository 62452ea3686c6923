//! Stores of counters: [`MemoryStore`], `RedisStore`, and what is needed to write another [`Store`].
//! [`inspect`](MemoryStore::inspect) shows the state of a counter.

#[cfg(feature = "tokio")]
pub(crate) mod breaker;
#[cfg(feature = "tokio")]
pub(crate) mod deadline;
#[cfg(feature = "redis")]
mod hot_keys;
#[cfg(feature = "redis")]
mod lease;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod refusal_cache;
#[cfg(feature = "redis")]
mod store_time;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::time::Duration;

#[cfg(feature = "redis")]
pub use lease::LeaseStats;
pub use memory::{MemoryStore, MemoryStoreBuilder};
#[cfg(feature = "simulate")]
pub(crate) use redis::simulated;
#[cfg(feature = "redis")]
pub(crate) use redis::suffix;
#[cfg(feature = "redis")]
pub use redis::{RedisError, RedisReply, RedisServer, RedisStore, RedisStoreBuilder, Topology};
#[cfg(feature = "redis")]
pub use refusal_cache::{RefusalCacheSettings, RefusalCacheStats};
pub use tallygate_core::{CounterState, HoldState, MemberState, Outcome, Verdict};

use crate::clock::Clock;
use crate::decision::Decision;
pub use crate::engine::{Guard, OverloadStats};
use crate::error::debug_is_display;
use crate::limit::Limit;
use crate::request::Request;

/// The number of hash tags of a cluster unless another is set.
#[cfg(any(feature = "redis", feature = "config"))]
pub(crate) const DEFAULT_HASH_TAGS: u32 = 64;
/// One for each slot of a cluster.
#[cfg(any(feature = "redis", feature = "config"))]
pub(crate) const MAX_HASH_TAGS: u32 = 16_384;

/// Whether the hash tags of a cluster may be so many.
#[cfg(any(feature = "redis", feature = "config"))]
pub(crate) fn may_be_hash_tags(count: u32) -> bool {
    count.is_power_of_two() && count <= MAX_HASH_TAGS
}

/// Shorter HMAC secrets can be guessed.
#[cfg(any(feature = "redis", feature = "config"))]
pub(crate) const MIN_HMAC_SECRET_BYTES: usize = 16;

/// Stores counters and decides each request in one atomic step, by its own clock.
pub trait Store: Send + Sync + 'static {
    /// Decides a request.
    ///
    /// # Errors
    /// When the counters cannot be reached. It is unknown then whether the request was counted.
    fn decide(
        &self,
        request: &Request<'_>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send;

    /// Decides a request before a deadline. A store with several servers returns what it knows when
    /// the deadline passes: a refusal by one server, or that only some servers failed.
    ///
    /// # Errors
    /// As for [`decide`](Store::decide), and when the deadline is missed.
    #[cfg(feature = "tokio")]
    fn decide_within(
        &self,
        request: &Request<'_>,
        deadline: Duration,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        deadline::enforce(self.decide(request), deadline)
    }

    /// Decides a request without waiting, if the counters are in this process or the request is
    /// known to be refused. Otherwise returns `None` and decides nothing.
    #[inline]
    fn try_decide(&self, request: &Request<'_>) -> Option<Decision> {
        let _ = request;
        None
    }

    /// Prepares for a limit before the first request that carries it. Does nothing by default.
    fn prepare(&self, limit: &Limit) {
        let _ = limit;
    }

    /// Sends a request without waiting for the answer. If the store fails, the request is lost.
    fn submit(&self, request: &Request<'_>);

    /// Undoes what a decision of this store took, without waiting for the answer. The limits of the
    /// request may be some of those that were decided. The units are returned as of
    /// [the time](Decision::taken_us) they were taken. If the store fails, the request is lost; it
    /// is never sent twice.
    fn undo(&self, request: &Request<'_>, decision: &Decision);

    /// Returns the last units that were taken from shaping limits, without waiting for the answer. If
    /// a schedule does not end at the expected time, which is rounded up to a microsecond, others are
    /// scheduled behind them, and nothing is returned.
    ///
    /// `ends_us` has a time for each limit of the request, whose costs are the units. `done` is called
    /// once, on any thread. By default, nothing is returned.
    fn refund_tail(
        &self,
        request: &Request<'_>,
        ends_us: &[u64],
        done: impl FnOnce(TailRefund) + Send + 'static,
    ) {
        let _ = (request, ends_us);
        done(TailRefund::NotLast);
    }

    /// Starts to count the processes that share the counters. Does nothing by default.
    fn count_replicas(&self) {}

    /// The number of processes that share the counters, if it is counted.
    fn replicas(&self) -> Option<u32> {
        None
    }

    /// Checks whether the counters can be reached, after a failure.
    ///
    /// # Errors
    /// When they cannot.
    fn probe(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }

    /// The guard that all engines over this store share. By default every engine has its own,
    /// which only clones of the engine share.
    fn guard(&self) -> Option<&Arc<Guard>> {
        None
    }

    /// Whether the servers that hold the counters of a request have stopped answering. A deadline
    /// that is missed while they still answer is overload and not a failure. True by default.
    fn is_silent(&self, request: &Request<'_>) -> bool {
        let _ = request;
        true
    }

    /// Whether a server is known to be down, for a store that has a circuit breaker for each server.
    fn is_down(&self) -> bool {
        false
    }
}

impl<S: Store> Store for Arc<S> {
    fn decide(
        &self,
        request: &Request<'_>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        S::decide(self, request)
    }

    #[cfg(feature = "tokio")]
    fn decide_within(
        &self,
        request: &Request<'_>,
        deadline: Duration,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        S::decide_within(self, request, deadline)
    }

    #[inline]
    fn try_decide(&self, request: &Request<'_>) -> Option<Decision> {
        S::try_decide(self, request)
    }

    fn prepare(&self, limit: &Limit) {
        S::prepare(self, limit);
    }

    fn submit(&self, request: &Request<'_>) {
        S::submit(self, request);
    }

    fn undo(&self, request: &Request<'_>, decision: &Decision) {
        S::undo(self, request, decision);
    }

    fn refund_tail(
        &self,
        request: &Request<'_>,
        ends_us: &[u64],
        done: impl FnOnce(TailRefund) + Send + 'static,
    ) {
        S::refund_tail(self, request, ends_us, done);
    }

    fn count_replicas(&self) {
        S::count_replicas(self);
    }

    fn replicas(&self) -> Option<u32> {
        S::replicas(self)
    }

    fn probe(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        S::probe(self)
    }

    fn guard(&self) -> Option<&Arc<Guard>> {
        S::guard(self)
    }

    fn is_silent(&self, request: &Request<'_>) -> bool {
        S::is_silent(self, request)
    }

    fn is_down(&self) -> bool {
        S::is_down(self)
    }
}

/// The result of a [`Store::refund_tail`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailRefund {
    /// The units were returned.
    Refunded,
    /// Nothing was returned: others are scheduled behind them.
    NotLast,
    /// The store failed, and may have returned them.
    Unknown,
}

/// A store with counters in this process: a [`MemoryStore`], by value or as an [`Arc`].
pub trait LocalStore: Store {
    /// The clock of the store.
    type Clock: Clock;

    /// The memory store.
    fn memory_store(&self) -> &MemoryStore<Self::Clock>;
}

impl<C: Clock> LocalStore for MemoryStore<C> {
    type Clock = C;

    #[inline(always)]
    fn memory_store(&self) -> &MemoryStore<C> {
        self
    }
}

impl<S: LocalStore> LocalStore for Arc<S> {
    type Clock = S::Clock;

    #[inline(always)]
    fn memory_store(&self) -> &MemoryStore<S::Clock> {
        S::memory_store(self)
    }
}

/// The state of a counter at one time of the store's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The time of the store's clock, in microseconds since the Unix epoch.
    pub now_us: u64,
    /// The state of the counter.
    pub state: CounterState,
}

/// The error of a store that did not decide a request.
pub struct StoreError {
    kind: StoreErrorKind,
    source: Box<dyn Error + Send + Sync>,
    partial: Option<Box<PartialDecision>>,
}

/// What is known of a request when some of its servers failed. The limits that are decided admit.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "no other store has servers")
)]
pub(crate) struct PartialDecision {
    /// Over the limits that are decided; `None` if there are none.
    pub(crate) decision: Option<Decision>,
    /// The positions of these limits.
    pub(crate) decided: Vec<usize>,
    /// The others, in order.
    pub(crate) failed: Vec<FailedLimit>,
}

impl PartialDecision {
    /// Nothing is decided of a request with so many limits, which all failed in this way.
    #[cfg(feature = "redis")]
    pub(crate) fn undecided(limits: usize, kind: StoreErrorKind) -> Self {
        PartialDecision {
            decision: None,
            decided: Vec::new(),
            failed: (0..limits).map(|at| FailedLimit { at, kind }).collect(),
        }
    }
}

/// A limit that was not decided. One server may be lost while another is overloaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedLimit {
    /// The position in the request.
    pub(crate) at: usize,
    pub(crate) kind: StoreErrorKind,
}

/// The kind of a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// There is no connection, or it was lost.
    Unreachable,
    /// The store did not answer before the deadline.
    Timeout,
    /// Too many requests are in flight.
    Overloaded,
    /// The store refuses requests for now: out of memory, loading, a replica.
    Refused,
    /// The store refuses requests until the configuration is fixed: password, ACL, URL.
    Misconfigured,
    /// The reply of the store is malformed.
    Garbled,
    /// Anything else.
    Other,
}

impl StoreErrorKind {
    /// The value of the metric label.
    pub fn name(self) -> &'static str {
        match self {
            StoreErrorKind::Unreachable => "unreachable",
            StoreErrorKind::Timeout => "timeout",
            StoreErrorKind::Overloaded => "overloaded",
            StoreErrorKind::Refused => "refused",
            StoreErrorKind::Misconfigured => "misconfigured",
            StoreErrorKind::Garbled => "garbled",
            StoreErrorKind::Other => "other",
        }
    }
}

impl StoreError {
    /// Wraps an error. Its text must not contain a key.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::with_kind(StoreErrorKind::Other, source)
    }

    /// Wraps an error of a kind. Its text must not contain a key.
    pub fn with_kind(
        kind: StoreErrorKind,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        StoreError {
            kind,
            source: source.into(),
            partial: None,
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn with_partial(mut self, partial: PartialDecision) -> Self {
        self.partial = Some(Box::new(partial));
        self
    }

    #[cfg(feature = "redis")]
    pub(crate) fn take_partial(&mut self) -> Option<PartialDecision> {
        self.partial.take().map(|partial| *partial)
    }

    /// What the servers that did not fail decided.
    pub(crate) fn partial(&self) -> Option<&PartialDecision> {
        self.partial.as_deref()
    }

    /// The kind of the error.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store did not answer: {}", self.source)
    }
}

debug_is_display!(StoreError);

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
