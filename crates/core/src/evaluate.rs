//! Evaluates requests against counters: the verbs, written once over the [`Level`] trait.

use alloc::vec::Vec;

use crate::MAX_TIME_US;
use crate::algorithm::{
    Advanced, AnyLevel, Level, Log, Packable, Packed, State, WithPackable, with_packed,
};
use crate::decision::{Decision, Outcome, Retry, Verdict};
use crate::quota::Quota;
use crate::verb::Verb;

/// Evaluates one request against one counter at `now_us`. Changes `state` only if units were taken
/// or returned, or the counter was reset. Times beyond [`MAX_TIME_US`] count as that.
pub fn evaluate(quota: &Quota, state: &mut State, verb: Verb, cost: u32, now_us: u64) -> Verdict {
    let now = now_us.min(MAX_TIME_US);
    if let State::Log(log) = state
        && quota.algorithm().is_log()
    {
        let verdict = evaluate_log(quota, log, verb, cost, now);
        state.reset_if_empty();
        return verdict;
    }
    let mut evaluation = Evaluation::new(quota, state.advance(quota, now), verb, cost);
    let (verdict, change) = evaluation.decide();
    let next = evaluation.level.into_state();
    change.write(state, next);
    verdict
}

/// Compiled for logs alone, without dispatch.
#[inline]
fn evaluate_log(quota: &Quota, log: &mut Log, verb: Verb, cost: u32, now: u64) -> Verdict {
    if verb == Verb::Check
        && cost > 0
        && let Some(remaining) = log.try_append(quota, cost, now)
    {
        return Verdict {
            outcome: Outcome::Admitted {
                granted: cost,
                delay_us: 0,
            },
            limit: quota.limit(),
            remaining,
            reset_after_us: quota.period_us(),
        };
    }
    let advanced = Advanced::from_log(log, quota, now);
    let (verdict, change) = Evaluation::new(quota, advanced, verb, cost).decide();
    if change == Change::Delete {
        *log = Log::default();
    }
    verdict
}

/// What an evaluation does to the stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays as it is.
    None,
    /// It is replaced.
    Write(T),
    /// The counter is new again.
    Delete,
}

/// The result of evaluating one request against one packed counter.
#[derive(Clone, Copy, Debug)]
pub struct PackedEvaluation {
    /// The verdict.
    pub verdict: Verdict,
    /// What to do with the stored state.
    pub change: Change<Packed>,
    /// The [effective time](State::effective_time_us).
    pub effective_time_us: u64,
}

/// Evaluates one request against one [packed](State::pack) counter. Returns `None` for a
/// [log](crate::Algorithm::is_log), which cannot be packed.
#[inline(always)]
pub fn evaluate_packed(
    quota: &Quota,
    packed: Packed,
    verb: Verb,
    cost: u32,
    now_us: u64,
) -> Option<PackedEvaluation> {
    struct Evaluate<'a> {
        quota: &'a Quota,
        verb: Verb,
        cost: u32,
    }
    impl WithPackable for Evaluate<'_> {
        type Output = PackedEvaluation;

        #[inline(always)]
        fn call<P: Packable>(self, advanced: Advanced<P>) -> PackedEvaluation {
            let mut evaluation = Evaluation::new(self.quota, advanced, self.verb, self.cost);
            let (verdict, change) = evaluation.decide();
            let change = match change {
                Change::None => Change::None,
                Change::Write(()) => Change::Write(evaluation.level.pack(self.quota)),
                Change::Delete => Change::Delete,
            };
            PackedEvaluation {
                verdict,
                change,
                effective_time_us: evaluation.now,
            }
        }
    }
    let evaluate = Evaluate { quota, verb, cost };
    with_packed(quota, packed, now_us.min(MAX_TIME_US), evaluate)
}

/// Evaluates one request against several counters, each with its own cost: if any refuses, none is
/// charged. A take grants the same to each whose cost is not 0: the least that any would grant.
pub fn evaluate_all(limits: &mut [(&Quota, &mut State, u32)], verb: Verb, now_us: u64) -> Decision {
    let now = now_us.min(MAX_TIME_US);
    let mut evaluations: Vec<Evaluation<'_, AnyLevel<'_>>> = limits
        .iter_mut()
        .map(|(quota, state, cost)| Evaluation::new(quota, state.advance(quota, now), verb, *cost))
        .collect();
    let results = decide_all(&mut evaluations);
    let next: Vec<Option<State>> = evaluations
        .into_iter()
        .map(|evaluation| evaluation.level.into_state())
        .collect();
    let mut verdicts = Vec::with_capacity(limits.len());
    for (((_, state, _), next), (verdict, change)) in limits.iter_mut().zip(next).zip(results) {
        change.write(state, next);
        verdicts.push(verdict);
    }
    Decision::from_verdicts(verdicts)
}

/// Refuses or commits every evaluation of one request.
fn decide_all<L: Level>(evaluations: &mut [Evaluation<'_, L>]) -> Vec<(Verdict, Change<()>)> {
    let refusals: Vec<Option<Verdict>> = evaluations.iter().map(Evaluation::refusal).collect();
    if refusals.iter().any(Option::is_some) {
        let each = evaluations.iter().zip(refusals);
        return each
            .map(|(evaluation, refusal)| {
                let verdict = refusal.unwrap_or_else(|| evaluation.admitted_uncharged());
                (verdict, Change::None)
            })
            .collect();
    }
    let charged = evaluations.iter().filter(|evaluation| evaluation.cost > 0);
    let least = charged.map(Evaluation::grant).min().unwrap_or(0);
    let commit = |evaluation: &mut Evaluation<'_, _>| match evaluation.verb {
        Verb::Take => evaluation.commit(least),
        Verb::Check | Verb::Peek | Verb::Charge | Verb::Refund | Verb::Reset => {
            evaluation.commit(evaluation.grant())
        }
    };
    evaluations.iter_mut().map(commit).collect()
}

/// One counter as a script found it.
#[cfg(feature = "lua")]
#[derive(Debug)]
pub struct FoundState<'a> {
    /// The quota.
    pub quota: &'a Quota,
    /// The state before the request.
    pub state: State,
    /// The units requested.
    pub cost: u32,
    /// The script's time.
    pub now_us: u64,
}

#[cfg(feature = "lua")]
impl FoundState<'_> {
    /// The [effective time](State::effective_time_us) of the request.
    pub fn effective_time_us(&self) -> u64 {
        self.state.effective_time_us(self.quota, self.now_us)
    }
}

/// Derives the decision that scripts made from the states they found. Each state may come from a
/// script of its own.
#[cfg(feature = "lua")]
pub fn evaluate_found(found: &mut [FoundState<'_>], verb: Verb) -> Decision {
    let mut evaluations = found.iter_mut().map(|found| {
        let now = found.now_us.min(MAX_TIME_US);
        let advanced = found.state.advance(found.quota, now);
        Evaluation::new(found.quota, advanced, verb, found.cost)
    });
    if evaluations.len() == 1
        && let Some(mut evaluation) = evaluations.next()
    {
        return Decision::from_verdict(evaluation.decide().0);
    }
    let results = decide_all(&mut evaluations.collect::<Vec<Evaluation<'_, AnyLevel<'_>>>>());
    Decision::from_verdicts(results.into_iter().map(|(verdict, _)| verdict).collect())
}

/// Returns `cost` units that a check, take or charge took at `taken_us`, as far as they still count
/// at `now_us`: never more, so that a late undo admits nothing above the limit. An immediate undo
/// leaves the state as if the units had never been taken. If nothing counts any more, the state stays
/// as it is. An undo on a log reaches its newest 256 entries.
///
/// `taken_us` is the [effective time](State::effective_time_us) of the decision, and `quota` the one
/// it was made under. A [refund](Verb::Refund) has no such time and returns to the current window.
/// Units that were reset or refunded in between are returned once more, and so are units that are
/// undone twice.
///
/// ```
/// use tallygate_core::{evaluate, undo, Quota, State, Verb};
///
/// let quota: Quota = "fixed-window 10/min".parse()?;
/// let mut state = State::New;
/// let minute = 60_000_000;
/// let taken_us = state.effective_time_us(&quota, 28 * minute);
/// evaluate(&quota, &mut state, Verb::Check, 4, taken_us);
/// assert_eq!(undo(&quota, &mut state, taken_us, 4, taken_us + 1).remaining, 10);
///
/// evaluate(&quota, &mut state, Verb::Check, 4, taken_us);
/// evaluate(&quota, &mut state, Verb::Check, 9, 29 * minute);
/// assert_eq!(undo(&quota, &mut state, taken_us, 4, 29 * minute).remaining, 1); // expired
/// # Ok::<(), tallygate_core::QuotaError>(())
/// ```
pub fn undo(quota: &Quota, state: &mut State, taken_us: u64, cost: u32, now_us: u64) -> Verdict {
    let advanced = state.advance(quota, now_us.min(MAX_TIME_US));
    let mut evaluation = Evaluation::new(quota, advanced, Verb::Refund, cost);
    let (taken, now) = (taken_us.min(MAX_TIME_US), evaluation.now);
    let (verdict, change) = if cost > 0 && evaluation.level.undo(quota, cost, taken, now) {
        evaluation.refunded()
    } else {
        evaluation.refunded_nothing()
    };
    let next = evaluation.level.into_state();
    change.write(state, next);
    verdict
}

impl Change<()> {
    fn write(self, state: &mut State, next: Option<State>) {
        match (self, next) {
            (Change::Delete, _) => *state = State::New,
            (Change::Write(()), Some(next)) => *state = next,
            (Change::Write(()), None) | (Change::None, Some(_)) => {}
            // Advancing a new log made it an empty one.
            (Change::None, None) => state.reset_if_empty(),
        }
    }
}

/// One request against one counter.
struct Evaluation<'a, L> {
    quota: &'a Quota,
    verb: Verb,
    cost: u32,
    level: L,
    now: u64,
    behind: u64,
    available: u32,
}

impl<'a, L: Level> Evaluation<'a, L> {
    #[inline(always)]
    fn new(quota: &'a Quota, advanced: Advanced<L>, verb: Verb, cost: u32) -> Self {
        let Advanced { level, now, behind } = advanced;
        Evaluation {
            available: level.available(quota, now),
            quota,
            verb,
            cost,
            level,
            now,
            behind,
        }
    }

    /// Decides without regard to other limits.
    #[inline(always)]
    fn decide(&mut self) -> (Verdict, Change<()>) {
        match self.refusal() {
            Some(verdict) => (verdict, Change::None),
            None => self.commit(self.grant()),
        }
    }

    /// The verdict if this limit refuses.
    #[inline(always)]
    fn refusal(&self) -> Option<Verdict> {
        let required = match self.verb {
            Verb::Check | Verb::Peek => self.cost,
            Verb::Take => self.cost.min(1),
            Verb::Charge | Verb::Refund | Verb::Reset => 0,
        };
        if required <= self.available {
            return None;
        }
        let retry = if required > self.quota.capacity() {
            Retry::Never
        } else {
            let wait = self.level.until_fits(self.quota, required, self.now);
            Retry::after_us(self.since_caller_time(wait))
        };
        Some(self.verdict(Outcome::Refused { retry }, self.available))
    }

    /// What this limit grants, given that it does not refuse.
    #[inline(always)]
    fn grant(&self) -> u32 {
        match self.verb {
            Verb::Check | Verb::Charge => self.cost,
            Verb::Take => self.cost.min(self.available),
            Verb::Peek | Verb::Refund | Verb::Reset => 0,
        }
    }

    /// The verdict of a limit that admits but is not charged: a peek, a cost of 0, or a request
    /// that another limit refused.
    #[inline(always)]
    fn admitted_uncharged(&self) -> Verdict {
        let outcome = Outcome::Admitted {
            granted: 0,
            delay_us: self.delay(self.cost),
        };
        self.verdict(outcome, self.available)
    }

    /// Executes an admitted request, taking `granted` units if the verb takes any.
    #[inline(always)]
    fn commit(&mut self, granted: u32) -> (Verdict, Change<()>) {
        let (quota, now) = (self.quota, self.now);
        match self.verb {
            Verb::Peek => (self.admitted_uncharged(), Change::None),
            Verb::Check | Verb::Take | Verb::Charge | Verb::Refund if self.cost == 0 => {
                (self.admitted_uncharged(), Change::None)
            }
            Verb::Check | Verb::Take | Verb::Charge => {
                let delay_us = self.delay(granted);
                self.level.take(quota, granted, now);
                let outcome = Outcome::Admitted { granted, delay_us };
                let remaining = self.available.saturating_sub(granted);
                (self.verdict(outcome, remaining), Change::Write(()))
            }
            Verb::Refund => {
                if self.level.refund(quota, self.cost, now) {
                    self.refunded()
                } else {
                    self.refunded_nothing()
                }
            }
            Verb::Reset => {
                let verdict = Verdict {
                    outcome: Outcome::UNCHARGED,
                    limit: quota.capacity(),
                    remaining: quota.capacity(),
                    reset_after_us: 0,
                };
                (verdict, Change::Delete)
            }
        }
    }

    /// The result if there were no units to return. The state stays as it is, also one that is as
    /// new: it may matter again when the clock steps back.
    #[inline(always)]
    fn refunded_nothing(&self) -> (Verdict, Change<()>) {
        let verdict = self.verdict(Outcome::UNCHARGED, self.available);
        (verdict, Change::None)
    }

    /// The result after units were returned.
    #[inline(always)]
    fn refunded(&self) -> (Verdict, Change<()>) {
        let verdict = self.verdict(
            Outcome::UNCHARGED,
            self.level.available(self.quota, self.now),
        );
        let change = match verdict.reset_after_us {
            0 => Change::Delete,
            1.. => Change::Write(()),
        };
        (verdict, change)
    }

    /// The shaping delay of a request that takes units: until the queue ahead has drained.
    #[inline(always)]
    fn delay(&self, units: u32) -> u64 {
        if units == 0 || !self.quota.algorithm().is_shaping() {
            return 0;
        }
        self.since_caller_time(self.level.until_new(self.quota, self.now))
    }

    /// Converts a wait from the effective time to one from the caller's time.
    #[inline(always)]
    fn since_caller_time(&self, wait: u64) -> u64 {
        if wait == 0 { 0 } else { wait + self.behind }
    }

    #[inline(always)]
    fn verdict(&self, outcome: Outcome, remaining: u32) -> Verdict {
        Verdict {
            outcome,
            limit: self.quota.capacity(),
            remaining,
            reset_after_us: self.since_caller_time(self.level.until_new(self.quota, self.now)),
        }
    }
}
