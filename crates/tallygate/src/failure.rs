//! Failure policies: what is decided when the store fails.

use std::num::NonZeroU32;

/// What is decided when the store fails: [`Local`](OnFailure::Local), counted and at least 1, by
/// default.
///
/// When the store is up but overloaded, `Open` counts as `Local`: overload admits at most this
/// replica's share of the limit beyond the store's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Admits. For limits that are not security controls.
    Open,
    /// Refuses. For limits that must not be bypassed, such as login attempts.
    Closed,
    /// Counts in this process, with this replica's share of the limit.
    Local(Replicas),
}

impl Default for OnFailure {
    fn default() -> Self {
        OnFailure::Local(Replicas::Counted {
            at_least: NonZeroU32::MIN,
        })
    }
}

/// The number of processes that share a limit while each counts by itself.
///
/// Each process gets `floor(limit / n)` and `floor(burst / n)`. If a share is less than one, it is
/// one in a proportionally longer period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// A fixed number.
    Fixed(NonZeroU32),
    /// The number that the store last counted, but at least `at_least`, which also applies until
    /// the store has counted.
    Counted {
        /// The lower bound.
        at_least: NonZeroU32,
    },
}

impl OnFailure {
    /// Whether the store has to count replicas.
    pub(crate) fn counts_replicas(self) -> bool {
        match self {
            OnFailure::Local(Replicas::Counted { .. }) | OnFailure::Open => true,
            OnFailure::Local(Replicas::Fixed(_)) | OnFailure::Closed => false,
        }
    }
}

impl Replicas {
    pub(crate) fn number(self, counted: Option<u32>) -> u32 {
        match self {
            Replicas::Fixed(number) => number.get(),
            Replicas::Counted { at_least } => counted.unwrap_or(0).max(at_least.get()),
        }
    }
}
