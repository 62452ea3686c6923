//! Where counters are kept. Knows keys, limits and decisions; knows nothing of HTTP.

mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

pub use memory::{MemoryStore, MemoryStoreBuilder};
#[cfg(feature = "redis")]
pub(crate) use redis::suffix;
#[cfg(feature = "redis")]
pub use redis::{RedisError, RedisReply, RedisServer, RedisStore, RedisStoreBuilder, Topology};
use tallygate_core::CounterState;

use crate::decision::Decision;
use crate::limit::Limit;
use crate::request::Request;

/// Keeps counters and decides each request in one atomic step, on its own clock.
pub trait Store: Send + Sync + 'static {
    /// Decides one request.
    ///
    /// # Errors
    /// When the counters cannot be reached; nothing is known about the request then.
    fn decide(
        &self,
        request: &Request<'_>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send;

    /// Decides one request at once, if the counters are in this process and cannot fail; whoever
    /// gets nothing has to [wait](Store::decide) for the answer, and nothing was decided.
    #[inline]
    fn decide_at_once(&self, request: &Request<'_>) -> Option<Decision> {
        let _ = request;
        None
    }

    /// Hears of a limit to come, before the first request does. Nothing need be done.
    fn prepare(&self, limit: &Limit) {
        let _ = limit;
    }

    /// Carries a request out without anybody waiting for the answer: what a waiter that was
    /// dropped can still do. A store that fails forgets it.
    fn carry_out(self: &Arc<Self>, request: &Request<'_>);

    /// Takes back, without anybody waiting, what a decision of this store took for the limits of a
    /// request, which may be some of those it was made for: as of [then](Decision::taken_us), as
    /// far as it still weighs, and never more. A store that fails forgets it; it is never sent
    /// twice.
    fn undo(self: &Arc<Self>, request: &Request<'_>, decision: &Decision);

    /// Begins to count among how many processes the counters are shared. Nothing need be done.
    fn count_replicas(&self) {}

    /// Among how many processes the counters are shared, as last counted; none if nobody counts.
    fn replicas(&self) -> Option<u32> {
        None
    }

    /// Finds out whether the counters can be reached, after they could not.
    ///
    /// # Errors
    /// When they cannot.
    fn probe(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }
}

/// What a counter showed, and when by its store's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Look {
    /// When it was looked at, in microseconds since the Unix epoch.
    pub now_us: u64,
    /// What it showed.
    pub view: CounterState,
}

/// Counters that could not be reached.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

/// Why counters could not be reached, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// There is no connection, or it broke.
    Unreachable,
    /// No answer came in time.
    Timeout,
    /// Too many requests are waiting already.
    Overloaded,
    /// The store refuses for now: out of memory, loading, a replica, and the like.
    Refused,
    /// The store refuses until somebody mends the settings: a password, a right, the URL.
    Misconfigured,
    /// The answer makes no sense.
    Garbled,
    /// Anything else.
    Other,
}

impl StoreErrorKind {
    /// The word, for metrics.
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
    /// Wraps what went wrong; its text must carry no key.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(StoreErrorKind::Other, source)
    }

    /// Wraps what went wrong under a word for it.
    pub fn of(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        StoreError {
            kind,
            source: source.into(),
        }
    }

    /// What went wrong, in a word.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store did not answer: {}", self.source)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
