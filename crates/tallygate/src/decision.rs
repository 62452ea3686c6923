//! The answer a caller gets: the core's decision in durations, and how it was reached.

mod taken;

use std::time::Duration;

pub(crate) use taken::Taken;
use tallygate_core::{Outcome, Retry, Verb, Verdict};

use crate::request::{Asked, Request};

/// The answer to one request over all its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    inner: tallygate_core::Decision,
    how: How,
}

/// What a decision was made on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    /// Counters of its own.
    Own(Taken),
    /// A budget shared with others, for want of room.
    Shared,
    /// No counter: the store failed, and the policy admits.
    Open,
    /// No counter: the store failed, and the policy of the limit at that place refuses.
    Closed { at: u8 },
    /// Counters of this process: the store failed.
    Local,
    /// Counters of this process for some limits, among them the binding one, at that place, and
    /// none for the others, whose policy admits.
    Partly { at: u8 },
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
    /// Combines the verdicts of a request's limits, in their order: for stores. What it took can
    /// only be undone if it is told [when](Decision::taken_at_us).
    fn from(verdicts: Vec<Verdict>) -> Self {
        // So long ago that nothing of it is left.
        Decision::new(
            tallygate_core::Decision::from_verdicts(verdicts),
            Taken::At(0),
        )
    }
}

impl Decision {
    /// Decides over one limit, on a counter of its own.
    #[inline]
    pub(crate) fn one(verdict: Verdict, effective_time_us: u64) -> Self {
        let inner = tallygate_core::Decision::from_verdict(verdict);
        Decision::new(inner, Taken::At(effective_time_us))
    }

    /// Decides on counters of its own.
    #[inline]
    pub(crate) fn new(inner: tallygate_core::Decision, taken: Taken) -> Self {
        let how = How::Own(taken);
        Decision { inner, how }
    }

    /// Decides on a budget shared with others.
    pub(crate) fn on_shared(inner: tallygate_core::Decision) -> Self {
        let how = How::Shared;
        Decision { inner, how }
    }

    /// Admits without having counted.
    pub(crate) fn open(request: &Request<'_>) -> Self {
        let granted = match request.asks() {
            Verb::Check | Verb::Take | Verb::Charge => {
                least(request.asked().iter().map(Asked::units))
            }
            Verb::Peek | Verb::Refund | Verb::Reset => 0,
        };
        let outcome = Outcome::Admitted {
            granted,
            delay_us: 0,
        };
        Self::uncounted(request, 0, outcome, How::Open)
    }

    /// Refuses without having counted, because of the limit at that place.
    pub(crate) fn closed(request: &Request<'_>, at: usize) -> Self {
        let outcome = Outcome::Refused {
            retry: Retry::Never,
        };
        Self::uncounted(request, at, outcome, How::Closed { at: narrow(at) })
    }

    fn uncounted(request: &Request<'_>, at: usize, outcome: Outcome, how: How) -> Self {
        let limit = request.asked()[at].limit.quota().capacity();
        let verdict = Verdict {
            outcome,
            limit,
            remaining: 0,
            reset_after_us: 0,
        };
        let inner = tallygate_core::Decision::from_verdict(verdict);
        Decision { inner, how }
    }

    /// The same, made on counters of this process because the store failed.
    pub(crate) fn counted_here(self) -> Self {
        Decision {
            how: How::Local,
            ..self
        }
    }

    /// The same, made on counters of this process for the limits at these places, while others,
    /// with these costs, admit without a count.
    pub(crate) fn partly_counted_here(self, places: &[usize], uncounted: &[u32]) -> Self {
        let at = places.get(self.binding()).copied().unwrap_or(0);
        let mut verdict = *self.inner.verdict();
        if let Outcome::Admitted { granted, .. } = &mut verdict.outcome {
            *granted = least(uncounted.iter().copied().chain([*granted]));
        }
        Decision {
            inner: tallygate_core::Decision::from_verdict(verdict),
            how: How::Partly { at: narrow(at) },
        }
    }

    /// The same as a refusal by every limit whose delay is longer than that, until it no longer
    /// is; none if there is no such limit.
    #[cfg(feature = "tokio")]
    pub(crate) fn refused_beyond(&self, longest: Duration) -> Option<Self> {
        let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        if self.verdict().delay_us() <= longest {
            return None;
        }
        let verdicts = self.inner.verdicts().iter().map(|&(mut verdict)| {
            if verdict.delay_us() > longest {
                let retry = Retry::after_us(verdict.delay_us() - longest);
                verdict.outcome = Outcome::Refused { retry };
            }
            verdict
        });
        let inner = tallygate_core::Decision::from_verdicts(verdicts.collect());
        let how = self.how.clone();
        Some(Decision { inner, how })
    }

    /// Whether the request may go ahead, after its [`delay`](Decision::delay).
    #[inline]
    pub fn allowed(&self) -> bool {
        self.inner.verdict().allowed()
    }

    /// Units taken; where limits have costs of their own, the least of those that are not 0.
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

    /// When to try again; none when admitted, or when nobody knows because the request was
    /// [refused for want of the store](Decision::unavailable).
    pub fn retry_after(&self) -> Option<RetryAfter> {
        if self.unavailable() {
            return None;
        }
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

    /// The figures above in one: the binding limit's, with the largest delay and the least grant
    /// of all.
    pub fn verdict(&self) -> &Verdict {
        self.inner.verdict()
    }

    /// The position in the request of the limit that decided: when refused, the refusing one with
    /// the longest retry; when admitted, the one with the least remaining. When the store failed,
    /// the one whose policy refuses, or of those that were counted.
    pub fn binding(&self) -> usize {
        match self.how {
            How::Own(_) | How::Shared | How::Local | How::Open => self.inner.binding(),
            How::Closed { at } | How::Partly { at } => at.into(),
        }
    }

    /// Every limit's own verdict, in the request's order; none if the store failed and not every
    /// limit was counted.
    pub fn verdicts(&self) -> &[Verdict] {
        match self.how {
            How::Own(_) | How::Shared | How::Local => self.inner.verdicts(),
            How::Open | How::Closed { .. } | How::Partly { .. } => &[],
        }
    }

    /// Whether it was made without the store, which failed: see
    /// [`Limiter::on_failure`](crate::Limiter::on_failure).
    pub fn degraded(&self) -> bool {
        match self.how {
            How::Own(_) | How::Shared => false,
            How::Open | How::Closed { .. } | How::Local | How::Partly { .. } => true,
        }
    }

    /// Whether it was refused only because the store failed: not the caller's fault, and nothing
    /// that a quota says.
    pub fn unavailable(&self) -> bool {
        matches!(self.how, How::Closed { .. })
    }

    /// Whether a limit had no counter of its own because the store is full, and shared a budget
    /// with others of the same quota. A refund or reset on a shared budget changes nothing.
    pub fn shared(&self) -> bool {
        self.how == How::Shared
    }
}

/// The least of those that are not 0; 0 if none is.
fn least(units: impl Iterator<Item = u32>) -> u32 {
    units.filter(|units| *units > 0).min().unwrap_or(0)
}

/// A place in a request, which has room for [`MAX_LIMITS`](crate::MAX_LIMITS).
fn narrow(at: usize) -> u8 {
    u8::try_from(at).unwrap_or(u8::MAX)
}
