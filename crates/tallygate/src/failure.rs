//! What to answer when the store does not, in words. Knows nothing of how it is carried out.

use std::num::NonZeroU32;

/// What to answer when the store does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Admits: the limit is there to keep order, and order can wait.
    #[default]
    Open,
    /// Refuses: what is protected must not be had without a count, such as a login.
    Closed,
    /// Counts in this process, each of several replicas its share of the limit.
    Local(Replicas),
}

/// Among how many processes a limit is shared while each counts by itself.
///
/// Each takes `floor(limit / n)` and `floor(burst / n)`; where that is less than one, one in a
/// period longer by as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// So many.
    Fixed(NonZeroU32),
    /// As many as the store last counted, and no fewer than this: what it takes until a store
    /// that counts has answered.
    Counted {
        /// The least number.
        at_least: NonZeroU32,
    },
}

impl OnFailure {
    /// Whether a store has to count replicas for it.
    pub(crate) fn counts_replicas(self) -> bool {
        match self {
            OnFailure::Local(Replicas::Counted { .. }) => true,
            OnFailure::Local(Replicas::Fixed(_)) | OnFailure::Open | OnFailure::Closed => false,
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
