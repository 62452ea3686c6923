//! The answer a caller gets: the core's decision in durations, and how it was reached.

use std::time::Duration;

use tollgate_core::{Retry, Verdict};

/// The answer to one request over all its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    inner: tollgate_core::Decision,
    shared: bool,
}

/// When a refused request would be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// After this long, and not a microsecond earlier.
    After(Duration),
    /// Never: its cost is above the capacity.
    Never,
}

impl RetryAfter {
    /// The wait, if there is an end to it.
    pub fn duration(self) -> Option<Duration> {
        match self {
            RetryAfter::After(wait) => Some(wait),
            RetryAfter::Never => None,
        }
    }
}

impl From<Vec<Verdict>> for Decision {
    /// Combines the verdicts of a request's limits, in their order: for stores.
    fn from(verdicts: Vec<Verdict>) -> Self {
        Decision::new(tollgate_core::Decision::all(verdicts), false)
    }
}

impl Decision {
    #[inline]
    pub(crate) fn new(inner: tollgate_core::Decision, shared: bool) -> Self {
        Decision { inner, shared }
    }

    /// Whether the request may go ahead, after its [`delay`](Decision::delay).
    #[inline]
    pub fn allowed(&self) -> bool {
        self.inner.verdict().allowed()
    }

    /// Units taken.
    pub fn granted(&self) -> u32 {
        self.inner.verdict().granted()
    }

    /// The binding limit's capacity.
    pub fn limit(&self) -> u32 {
        self.inner.verdict().limit
    }

    /// What could be taken right now, of the binding limit.
    pub fn remaining(&self) -> u32 {
        self.inner.verdict().remaining
    }

    /// When to try again; none when admitted.
    pub fn retry_after(&self) -> Option<RetryAfter> {
        self.inner.verdict().retry().map(|retry| match retry {
            Retry::After(us) => RetryAfter::After(Duration::from_micros(us.get())),
            Retry::Never => RetryAfter::Never,
        })
    }

    /// Silence after which the binding limit's key is as if never seen.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.inner.verdict().reset_after_us)
    }

    /// How long an admitted request has to wait in a shaping queue before it goes ahead.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.inner.verdict().delay_us())
    }

    /// The position in the request of the limit that decided: when refused, the refusing one with
    /// the longest retry; when admitted, the one with the least remaining.
    pub fn binding(&self) -> usize {
        self.inner.binding()
    }

    /// Every limit's own verdict, in the request's order.
    pub fn verdicts(&self) -> &[Verdict] {
        self.inner.verdicts()
    }

    /// Whether a limit had no counter of its own because the store is full, and shared a budget
    /// with others of the same quota. A refund or reset on a shared budget changes nothing.
    pub fn shared(&self) -> bool {
        self.shared
    }
}
