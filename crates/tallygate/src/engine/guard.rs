//! What all engines over one store share: its circuit breaker, the counters that replace it, and
//! the queues of waiting requests.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(feature = "redis")]
use super::fallback::LocalSize;
use super::fallback::{Answered, Fallback};
#[cfg(feature = "tokio")]
use super::queue::Queues;
#[cfg(feature = "tokio")]
use crate::store::breaker::Breaker;

/// The state of everything that stands in for one store when it fails or is overloaded.
///
/// An [`Engine`](crate::Engine) creates a guard for its store. A store that is cloned into several
/// engines [provides one](crate::Store::guard), so that they share a circuit breaker and one
/// budget of local counters.
#[derive(Default)]
pub struct Guard {
    /// `None`: the store has breakers of its own.
    #[cfg(feature = "tokio")]
    pub(super) breaker: Option<Breaker>,
    pub(super) fallback: Fallback,
    #[cfg(feature = "tokio")]
    pub(super) queues: Queues,
    pub(super) timeouts: AtomicU64,
    pub(super) overload: OverloadCounters,
}

impl Guard {
    /// Creates a guard with a circuit breaker for the whole store.
    pub fn new() -> Self {
        Guard {
            #[cfg(feature = "tokio")]
            breaker: Some(Breaker::default()),
            ..Guard::default()
        }
    }

    /// Creates a guard for a store that has a breaker for each of its servers.
    #[cfg(feature = "redis")]
    pub(crate) fn without_breaker(local: LocalSize) -> Self {
        Guard {
            fallback: Fallback::with_size(local),
            ..Guard::default()
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Guard");
        debug.field("overload", &self.overload.stats());
        debug.finish_non_exhaustive()
    }
}

/// How requests were answered that missed their deadline although the store was up, or that could
/// not be queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverloadStats {
    /// Refused: the counter is known to be exhausted.
    pub cached: u64,
    /// Counted in this process, with this replica's share of the limit.
    pub local: u64,
    /// Refused by [`OnFailure::Closed`](crate::OnFailure::Closed).
    pub closed: u64,
    /// Refused: the queue to the store was full.
    pub shed: u64,
}

#[derive(Debug, Default)]
pub(super) struct OverloadCounters {
    cached: AtomicU64,
    local: AtomicU64,
    closed: AtomicU64,
    shed: AtomicU64,
}

impl OverloadCounters {
    pub(super) fn count(&self, answered: Answered) {
        let counter = match answered {
            Answered::Failure => return,
            Answered::Cached => &self.cached,
            Answered::Shed => &self.shed,
            Answered::Closed => &self.closed,
            Answered::Local => &self.local,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn stats(&self) -> OverloadStats {
        OverloadStats {
            cached: self.cached.load(Relaxed),
            local: self.local.load(Relaxed),
            closed: self.closed.load(Relaxed),
            shed: self.shed.load(Relaxed),
        }
    }
}
