//! Decisions: the verdicts of a request's limits, and the counters they are based on.

mod taken_at;

use std::mem::discriminant;
use std::time::Duration;

pub(crate) use taken_at::TakenAt;
use tallygate_core::{Outcome, Retry, Verb, Verdict};

use crate::request::{Request, RequestEntry};

/// The decision on one request over all its limits.
#[derive(Clone, Debug)]
pub struct Decision {
    inner: tallygate_core::Decision,
    source: DecisionSource,
}

/// The counters that a decision is based on.
#[derive(Clone, Debug)]
enum DecisionSource {
    /// The counters of the keys.
    Counters(TakenAt),
    /// A budget that keys share because the store is full.
    SharedBudget,
    /// No counter: the store failed, and the policy admits.
    Open,
    /// No counter: the store failed, and the policy of the limit at that position refuses.
    Closed { at: u8 },
    /// No counter: this process or the store is overloaded. The limit at that position refuses.
    Shed { at: u8 },
    /// Counters in this process: the store failed or is overloaded.
    Local,
    /// Counters in this process for some limits, among them the binding one at that position, and
    /// none for the others, whose policy admits.
    PartlyLocal { at: u8 },
}

impl From<Vec<Verdict>> for Decision {
    /// Combines the verdicts of a request's limits, in their order, for implementations of `Store`.
    /// Add [the time](Decision::with_taken_us) to make the decision undoable.
    fn from(verdicts: Vec<Verdict>) -> Self {
        // Time 0: an undo returns nothing.
        Decision::new(
            tallygate_core::Decision::from_verdicts(verdicts),
            TakenAt::all(0),
        )
    }
}

impl Decision {
    /// Creates the decision of one limit.
    #[inline]
    pub(crate) fn from_verdict(verdict: Verdict, effective_time_us: u64) -> Self {
        let inner = tallygate_core::Decision::from_verdict(verdict);
        Decision::new(inner, TakenAt::all(effective_time_us))
    }

    #[inline]
    pub(crate) fn new(inner: tallygate_core::Decision, taken_at: TakenAt) -> Self {
        let source = DecisionSource::Counters(taken_at);
        Decision { inner, source }
    }

    pub(crate) fn from_shared_budget(inner: tallygate_core::Decision) -> Self {
        let source = DecisionSource::SharedBudget;
        Decision { inner, source }
    }

    /// Admits without a counter.
    pub(crate) fn open(request: &Request<'_>) -> Self {
        let granted = match request.requested_verb() {
            Verb::Check | Verb::Take | Verb::Charge | Verb::Reserve => {
                least(request.entries().iter().map(RequestEntry::cost))
            }
            Verb::Peek
            | Verb::Refund
            | Verb::Reset
            | Verb::Settle
            | Verb::Renew
            | Verb::Release => 0,
        };
        let outcome = Outcome::Admitted {
            granted,
            delay_us: 0,
        };
        Self::uncounted(request, 0, outcome, DecisionSource::Open)
    }

    /// Refuses without a counter: the store failed, and the policy of the limit at that position
    /// refuses.
    pub(crate) fn closed(request: &Request<'_>, at: usize) -> Self {
        Self::refused_uncounted(request, at, DecisionSource::Closed { at: narrow(at) })
    }

    /// Refuses without a counter, because of overload.
    pub(crate) fn from_overload(request: &Request<'_>, at: usize) -> Self {
        Self::refused_uncounted(request, at, DecisionSource::Shed { at: narrow(at) })
    }

    fn refused_uncounted(request: &Request<'_>, at: usize, source: DecisionSource) -> Self {
        let outcome = Outcome::Refused {
            retry: Retry::Never,
        };
        Self::uncounted(request, at, outcome, source)
    }

    fn uncounted(
        request: &Request<'_>,
        at: usize,
        outcome: Outcome,
        source: DecisionSource,
    ) -> Self {
        let limit = request.entries()[at].limit.quota().capacity();
        let verdict = Verdict {
            outcome,
            limit,
            remaining: 0,
            reset_after_us: 0,
        };
        let inner = tallygate_core::Decision::from_verdict(verdict);
        Decision { inner, source }
    }

    /// Marks the decision as based on counters in this process, because the store failed.
    pub(crate) fn into_local(self) -> Self {
        Decision {
            source: DecisionSource::Local,
            ..self
        }
    }

    /// Marks the decision as based on counters in this process for the limits at these positions.
    /// The other limits, with these costs, admit without a counter.
    pub(crate) fn into_partly_local(self, positions: &[usize], uncounted: &[u32]) -> Self {
        let at = positions.get(self.binding()).copied().unwrap_or(0);
        let mut verdict = *self.inner.verdict();
        if let Outcome::Admitted { granted, .. } = &mut verdict.outcome {
            *granted = least(uncounted.iter().copied().chain([*granted]));
        }
        Decision {
            inner: tallygate_core::Decision::from_verdict(verdict),
            source: DecisionSource::PartlyLocal { at: narrow(at) },
        }
    }

    /// Completes a decision by the failure policy over the limits at some positions of a request with
    /// that of the store over the others, which admit.
    pub(crate) fn with_decided(self, positions: &[usize], decided: &Decision) -> Self {
        let at = narrow(positions[self.binding()]);
        let mut verdict = *self.inner.verdict();
        if let Outcome::Admitted { granted, delay_us } = &mut verdict.outcome {
            let decided = decided.verdict();
            *granted = least([*granted, decided.granted()].into_iter());
            *delay_us = decided.delay_us().max(*delay_us);
        }
        let source = match self.source {
            DecisionSource::Closed { .. } => DecisionSource::Closed { at },
            DecisionSource::Shed { .. } => DecisionSource::Shed { at },
            DecisionSource::Counters(_)
            | DecisionSource::SharedBudget
            | DecisionSource::Open
            | DecisionSource::Local
            | DecisionSource::PartlyLocal { .. } => DecisionSource::PartlyLocal { at },
        };
        let inner = tallygate_core::Decision::from_verdict(verdict);
        Decision { inner, source }
    }

    /// Marks the decision as made from units that this process had taken ahead.
    #[cfg(feature = "redis")]
    pub(crate) fn into_leased(mut self) -> Self {
        if let DecisionSource::Counters(taken_at) = &mut self.source {
            taken_at.set_leased();
        }
        self
    }

    /// Turns delays above `max` into refusals. `None` if there are none.
    #[cfg(feature = "tokio")]
    pub(crate) fn refused_beyond(&self, max: Duration) -> Option<Self> {
        let max_us = u64::try_from(max.as_micros()).unwrap_or(u64::MAX);
        if self.verdict().delay_us() <= max_us {
            return None;
        }
        let verdicts = self.inner.verdicts().iter().map(|&(mut verdict)| {
            if verdict.delay_us() > max_us {
                let retry = Retry::after_us(verdict.delay_us() - max_us);
                verdict.outcome = Outcome::Refused { retry };
            }
            verdict
        });
        let inner = tallygate_core::Decision::from_verdicts(verdicts.collect());
        Some(Decision {
            inner,
            ..self.clone()
        })
    }

    /// The estimate that the id of a [reserve](Verb::Reserve) is known with, if that is another one than
    /// the request's: nothing was charged for this one. `None` for any other decision.
    pub fn first_estimate(&self, request: &Request<'_>) -> Option<u32> {
        let verdicts = self.inner.verdicts();
        let entries = request.entries();
        let is_reserve = request.requested_verb() == Verb::Reserve && self.allowed();
        if !is_reserve || verdicts.len() != entries.len() {
            return None;
        }
        let each = entries.iter().zip(verdicts);
        let mut others = each.filter(|(entry, verdict)| {
            let is_remembered = !entry.limit.quota().algorithm().is_concurrent();
            is_remembered && entry.cost() > 0 && verdict.granted() != entry.cost()
        });
        others.next().map(|(_, verdict)| verdict.granted())
    }

    /// Whether the request is admitted, after its [`delay`](Decision::delay).
    #[inline]
    pub fn allowed(&self) -> bool {
        self.inner.verdict().allowed()
    }

    /// The units taken. If limits have their own costs, the least of those above 0.
    pub fn granted(&self) -> u32 {
        self.inner.verdict().granted()
    }

    /// The capacity of the binding limit.
    pub fn limit(&self) -> u32 {
        self.inner.verdict().limit
    }

    /// The units of the binding limit that can be taken now.
    pub fn remaining(&self) -> u32 {
        self.inner.verdict().remaining
    }

    /// When to retry. `None` if the request is admitted, or if it is
    /// [refused because the store failed](Decision::unavailable).
    ///
    /// ```
    /// use tallygate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::new(Quota::per_minute(1));
    /// let _first = limiter.check("user:42");
    /// let retry = limiter.check("user:42").retry_after();
    /// if let Some(wait) = retry.and_then(|retry| retry.duration()) {
    ///     println!("retry in {} s", wait.as_secs());
    /// }
    /// ```
    pub fn retry_after(&self) -> Option<Retry> {
        match self.unavailable() {
            true => None,
            false => self.inner.verdict().retry(),
        }
    }

    /// The time without requests after which the counter of the binding limit is back in its initial
    /// state.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.inner.verdict().reset_after_us)
    }

    /// The shaping delay of an admitted request.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.inner.verdict().delay_us())
    }

    /// The combined verdict: the binding limit's, with the largest delay and the least grant of all.
    pub fn verdict(&self) -> &Verdict {
        self.inner.verdict()
    }

    /// The position of the binding limit in the request: if refused, the refusing limit with the
    /// longest retry; if admitted, the one with the least remaining. If the store failed, the limit
    /// whose policy refuses, or one of those that were counted.
    pub fn binding(&self) -> usize {
        match self.source {
            DecisionSource::Counters(_)
            | DecisionSource::SharedBudget
            | DecisionSource::Local
            | DecisionSource::Open => self.inner.binding(),
            DecisionSource::Closed { at }
            | DecisionSource::Shed { at }
            | DecisionSource::PartlyLocal { at } => at.into(),
        }
    }

    /// The verdict of each limit, in the request's order. Empty if the store failed and not every
    /// limit was counted.
    pub fn verdicts(&self) -> &[Verdict] {
        match self.source {
            DecisionSource::Counters(_) | DecisionSource::SharedBudget | DecisionSource::Local => {
                self.inner.verdicts()
            }
            DecisionSource::Open
            | DecisionSource::Closed { .. }
            | DecisionSource::Shed { .. }
            | DecisionSource::PartlyLocal { .. } => &[],
        }
    }

    /// Whether the decision was made without the store, which failed; see
    /// [`Engine::on_failure`](crate::Engine::on_failure).
    pub fn degraded(&self) -> bool {
        match self.source {
            DecisionSource::Counters(_) | DecisionSource::SharedBudget => false,
            DecisionSource::Open
            | DecisionSource::Closed { .. }
            | DecisionSource::Shed { .. }
            | DecisionSource::Local
            | DecisionSource::PartlyLocal { .. } => true,
        }
    }

    /// Whether the request was refused only because the store failed or is overloaded, and not by a
    /// quota.
    pub fn unavailable(&self) -> bool {
        let source = &self.source;
        matches!(
            source,
            DecisionSource::Closed { .. } | DecisionSource::Shed { .. }
        )
    }

    /// Whether the request was refused only because of overload: a retry a moment later may succeed.
    pub fn shed(&self) -> bool {
        matches!(self.source, DecisionSource::Shed { .. })
    }

    /// Whether a limit was decided from units that this process had [taken ahead](crate::Limit::lease): its
    /// figures are estimates.
    pub fn leased(&self) -> bool {
        matches!(&self.source, DecisionSource::Counters(taken_at) if taken_at.leased())
    }

    /// Whether a limit had no counter because the store is full, and shared a budget with other keys
    /// of the same quota. Refund and reset do not change a shared budget.
    pub fn shared(&self) -> bool {
        matches!(self.source, DecisionSource::SharedBudget)
    }
}

/// Compares what was decided; the time of the decision is ignored.
impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        discriminant(&self.source) == discriminant(&other.source)
            && self.binding() == other.binding()
            && self.inner == other.inner
    }
}

impl Eq for Decision {}

/// The least cost above 0; 0 if there is none.
fn least(units: impl Iterator<Item = u32>) -> u32 {
    units.filter(|units| *units > 0).min().unwrap_or(0)
}

/// A position in a request, which is below [`MAX_LIMITS`](crate::MAX_LIMITS).
fn narrow(at: usize) -> u8 {
    u8::try_from(at).unwrap_or(u8::MAX)
}
