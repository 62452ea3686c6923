//! Evaluates requests against counters: the verbs, written once over the [`Level`] trait.

use alloc::vec::Vec;

use crate::MAX_TIME_US;
use crate::algorithm::{
    Advanced, Algorithm, AnyLevel, FormerHold, Level, Log, Packable, Packed, State, WithPackable,
    with_packed,
};
use crate::caller::{Caller, Reservation};
use crate::decision::{Decision, Outcome, Retry, Verdict};
use crate::quota::Quota;
use crate::verb::Verb;

/// Evaluates one request of a nameless caller against one counter at `now_us`. Changes `state` only
/// if units were taken or returned, or the counter was reset. Times beyond [`MAX_TIME_US`] count as
/// that.
pub fn evaluate(quota: &Quota, state: &mut State, verb: Verb, cost: u32, now_us: u64) -> Verdict {
    evaluate_by(quota, state, &Caller::default(), verb, cost, now_us)
}

/// Evaluates one request of a caller as [`evaluate`] does. Without a reservation: a reserve is a
/// check, and a settle finds nothing; see [`evaluate_all`].
///
/// ```
/// use tallygate_core::{Caller, Quota, State, Verb, evaluate_by};
///
/// let quota: Quota = "concurrent 1 for 30s".parse()?;
/// let mut state = State::New;
/// let [first, second] = [1, 2].map(|owner| Caller { owner, ..Caller::default() });
/// let check = |state: &mut State, caller| evaluate_by(&quota, state, caller, Verb::Check, 1, 0);
/// assert!(check(&mut state, &first).allowed());
/// assert!(!check(&mut state, &second).allowed());
/// evaluate_by(&quota, &mut state, &first, Verb::Release, 1, 0);
/// assert!(check(&mut state, &second).allowed());
/// # Ok::<(), tallygate_core::QuotaError>(())
/// ```
pub fn evaluate_by(
    quota: &Quota,
    state: &mut State,
    caller: &Caller,
    verb: Verb,
    cost: u32,
    now_us: u64,
) -> Verdict {
    let now = now_us.min(MAX_TIME_US);
    let (step, cost) = Step::new(verb, cost, quota.algorithm(), None);
    match state {
        State::Log(log) if quota.algorithm().is_log() => {
            let verdict = evaluate_log(quota, log, step, cost, now);
            state.reset_if_empty();
            return verdict;
        }
        // Without dispatch, and a share without a box.
        State::Shared(share) if quota.algorithm().is_shared() => {
            let advanced = Advanced::from_share(share, quota, caller, now);
            let (verdict, change) = Evaluation::new(quota, advanced, step, cost).decide();
            change.write(state, None);
            return verdict;
        }
        State::Holds(holds) if quota.algorithm().is_concurrent() => {
            let advanced = Advanced::from_holds(holds, quota, caller, now);
            let (verdict, change) = Evaluation::new(quota, advanced, step, cost).decide();
            change.write(state, None);
            return verdict;
        }
        _ => {}
    }
    let mut evaluation = Evaluation::new(quota, state.advance(quota, caller, now), step, cost);
    let (verdict, change) = evaluation.decide();
    let next = evaluation.level.into_state();
    change.write(state, next);
    verdict
}

/// What a verb does to one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Check,
    Peek,
    Take,
    Charge,
    /// A charge of what a settle found above the estimate: never delayed.
    ChargeMore,
    Refund,
    Reset,
    Renew,
    /// Returns what a settle found below the estimate.
    Undo {
        taken: u64,
    },
    /// Repeats the answer of a reserve of the same id.
    Repeat {
        estimate: u32,
    },
}

impl Step {
    /// What a verb with a cost does to a limit that remembers a reservation under the request's id.
    #[inline(always)]
    fn new(
        verb: Verb,
        cost: u32,
        algorithm: Algorithm,
        reservation: Option<Reservation>,
    ) -> (Self, u32) {
        match verb {
            Verb::Check => (Step::Check, cost),
            Verb::Peek => (Step::Peek, cost),
            Verb::Take => (Step::Take, cost),
            Verb::Refund => (Step::Refund, cost),
            Verb::Reset => (Step::Reset, cost),
            verb if !touches(verb, algorithm) => (Step::Peek, 0),
            Verb::Charge => (Step::Charge, cost),
            Verb::Renew => (Step::Renew, cost),
            Verb::Release => (Step::Refund, u32::MAX),
            Verb::Reserve => match reservation {
                Some(Reservation { estimate, .. }) if !algorithm.is_concurrent() => {
                    (Step::Repeat { estimate }, 0)
                }
                Some(_) | None => (Step::Check, cost),
            },
            Verb::Settle => match reservation {
                Some(Reservation { estimate, .. }) if cost > estimate => {
                    (Step::ChargeMore, cost - estimate)
                }
                Some(Reservation {
                    estimate, taken_us, ..
                }) if cost < estimate => (Step::Undo { taken: taken_us }, estimate - cost),
                Some(_) | None => (Step::Peek, 0),
            },
        }
    }
}

/// Whether a verb means this limit at all; others answer as a peek of cost 0.
pub(crate) fn touches(verb: Verb, algorithm: Algorithm) -> bool {
    match verb {
        Verb::Renew | Verb::Release => algorithm.is_concurrent(),
        Verb::Charge | Verb::Settle => !algorithm.is_concurrent(),
        Verb::Check | Verb::Peek | Verb::Take | Verb::Refund | Verb::Reset | Verb::Reserve => true,
    }
}

/// Compiled for logs alone, without dispatch.
#[inline]
fn evaluate_log(quota: &Quota, log: &mut Log, step: Step, cost: u32, now: u64) -> Verdict {
    if step == Step::Check
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
    let (verdict, change) = Evaluation::new(quota, advanced, step, cost).decide();
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

/// Evaluates one request against one [packed](State::pack) counter. Returns `None` for a state that
/// [cannot be packed](crate::Algorithm::state_size).
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
            let (step, cost) = Step::new(self.verb, self.cost, self.quota.algorithm(), None);
            let mut evaluation = Evaluation::new(self.quota, advanced, step, cost);
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

/// One limit of a request.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The quota.
    pub quota: &'a Quota,
    /// The state of the counter.
    pub state: &'a mut State,
    /// The units requested.
    pub cost: u32,
    /// Who asks.
    pub caller: Caller,
    /// What the counter remembers under the id of a [reserve](Verb::Reserve) or a
    /// [settle](Verb::Settle): before the request, and after it. Ignored by other verbs.
    pub reservation: Option<Reservation>,
}

impl<'a> Entry<'a> {
    /// A limit and the request of a nameless caller.
    pub fn new(quota: &'a Quota, state: &'a mut State, cost: u32) -> Self {
        Entry {
            quota,
            state,
            cost,
            caller: Caller::default(),
            reservation: None,
        }
    }
}

/// Evaluates one request against several counters, each with its own cost: if any refuses, none is
/// charged. A take grants the same to each whose cost is not 0: the least that any would grant.
///
/// ```
/// use tallygate_core::{Entry, Quota, State, Verb, evaluate_all};
///
/// let quota: Quota = "token-bucket 10/s burst 100".parse()?;
/// let mut state = State::New;
/// let mut reserved = None;
/// let mut ask = |verb, cost, now| {
///     let mut entry = [Entry { reservation: reserved, ..Entry::new(&quota, &mut state, cost) }];
///     let decision = evaluate_all(&mut entry, verb, now);
///     reserved = entry[0].reservation;
///     decision.verdict().remaining
/// };
/// assert_eq!(ask(Verb::Reserve, 80, 0), 20);
/// assert_eq!(ask(Verb::Settle, 30, 1_000_000), 70);
/// # Ok::<(), tallygate_core::QuotaError>(())
/// ```
pub fn evaluate_all(limits: &mut [Entry<'_>], verb: Verb, now_us: u64) -> Decision {
    let now = now_us.min(MAX_TIME_US);
    let mut evaluations: Vec<Evaluation<'_, AnyLevel<'_>>> = Vec::with_capacity(limits.len());
    let mut reservations: Vec<Option<Reservation>> = Vec::new();
    let any_cost = limits.iter().any(|entry| entry.cost > 0);
    for entry in &mut *limits {
        let (known, caller) = known(verb, entry.reservation, entry.caller, now);
        let (step, cost) = Step::new(verb, entry.cost, entry.quota.algorithm(), known);
        if verb.needs_id() {
            let taken = entry.state.effective_time_us(entry.quota, now);
            reservations.push(entry.reservation_after(verb, known, taken));
        }
        let advanced = entry.state.advance(entry.quota, &caller, now);
        let mut evaluation = Evaluation::new(entry.quota, advanced, step, cost);
        evaluation.is_counted = is_counted(verb, entry.quota, entry.cost, any_cost);
        evaluations.push(evaluation);
    }
    let (decision, changes) = decide_all(&mut evaluations);
    let next: Vec<Option<State>> = evaluations
        .into_iter()
        .map(|evaluation| evaluation.level.into_state())
        .collect();
    let mut reservations = reservations.into_iter();
    let admitted = decision.verdict().allowed();
    for ((entry, next), change) in limits.iter_mut().zip(next).zip(changes) {
        change.write(entry.state, next);
        if let Some(after) = reservations.next()
            && admitted
        {
            entry.reservation = after;
        }
    }
    decision
}

/// Whether a request is granted at most what a limit grants: the verb touches it, and not with a
/// cost of 0 where others have one.
fn is_counted(verb: Verb, quota: &Quota, cost: u32, any_cost: bool) -> bool {
    let has_cost = match verb {
        // A cost of 0 is an actual cost, or means nothing.
        Verb::Settle | Verb::Renew | Verb::Release | Verb::Reset => true,
        Verb::Check | Verb::Peek | Verb::Take | Verb::Charge | Verb::Refund | Verb::Reserve => {
            cost > 0 || !any_cost
        }
    };
    has_cost && touches(verb, quota.algorithm())
}

/// The reservation that a verb finds, and the caller that it means: a settle that of the reserve.
fn known(
    verb: Verb,
    reservation: Option<Reservation>,
    mut caller: Caller,
    now: u64,
) -> (Option<Reservation>, Caller) {
    if !verb.needs_id() {
        return (None, caller);
    }
    let known = reservation.and_then(|known| known.live(now));
    if let (Verb::Settle, Some(known)) = (verb, known) {
        caller.member = known.member;
        caller.weight = known.weight;
    }
    (known, caller)
}

impl Entry<'_> {
    /// What the counter remembers after an admitted reserve or settle at the counter's own time.
    fn reservation_after(
        &self,
        verb: Verb,
        known: Option<Reservation>,
        taken_us: u64,
    ) -> Option<Reservation> {
        let is_remembered = !self.quota.algorithm().is_concurrent();
        match (verb, known) {
            (Verb::Settle, Some(_)) => None,
            (Verb::Reserve, None) if self.cost > 0 && is_remembered => Some(Reservation {
                taken_us,
                estimate: self.cost,
                member: self.caller.member,
                weight: self.caller.weight,
            }),
            _ => self.reservation,
        }
    }
}

/// Refuses or commits every evaluation of one request.
fn decide_all<L: Level>(evaluations: &mut [Evaluation<'_, L>]) -> (Decision, Vec<Change<()>>) {
    let refusals: Vec<Option<Verdict>> = evaluations.iter().map(Evaluation::refusal).collect();
    if refusals.iter().any(Option::is_some) {
        let each = evaluations.iter().zip(refusals);
        let each = each.map(|(evaluation, refusal)| {
            refusal.unwrap_or_else(|| evaluation.admitted_uncharged())
        });
        let changes = evaluations.iter().map(|_| Change::None).collect();
        return (Decision::combine(each.collect(), 0), changes);
    }
    let charged = evaluations.iter().filter(|evaluation| evaluation.cost > 0);
    let least = charged.map(Evaluation::grant).min().unwrap_or(0);
    let mut verdicts = Vec::with_capacity(evaluations.len());
    let mut changes = Vec::with_capacity(evaluations.len());
    let mut granted: Option<u32> = None;
    for evaluation in evaluations {
        let grant = match evaluation.step {
            Step::Take => least,
            _ => evaluation.grant(),
        };
        let (verdict, change) = evaluation.commit(grant);
        if evaluation.is_counted {
            let units = verdict.granted();
            granted = Some(granted.map_or(units, |least| least.min(units)));
        }
        verdicts.push(verdict);
        changes.push(change);
    }
    (Decision::combine(verdicts, granted.unwrap_or(0)), changes)
}

/// One counter as a script found it.
#[cfg(feature = "lua")]
#[derive(Clone, Debug)]
pub struct FoundState<'a> {
    /// The quota.
    pub quota: &'a Quota,
    /// The state before the request.
    pub state: State,
    /// The units requested.
    pub cost: u32,
    /// The script's time.
    pub now_us: u64,
    /// Who asks.
    pub caller: Caller,
    /// What the counter remembered under the request's id.
    pub reservation: Option<Reservation>,
}

#[cfg(feature = "lua")]
impl<'a> FoundState<'a> {
    /// A counter and the request of a nameless caller.
    pub fn new(quota: &'a Quota, state: State, cost: u32, now_us: u64) -> Self {
        FoundState {
            quota,
            state,
            cost,
            now_us,
            caller: Caller::default(),
            reservation: None,
        }
    }

    /// The [effective time](State::effective_time_us) of the request.
    pub fn effective_time_us(&self) -> u64 {
        self.state.effective_time_us(self.quota, self.now_us)
    }

    /// Whether a verb charges nothing because it is a reserve of a known id.
    pub fn is_repeated(&self, verb: Verb) -> bool {
        let known = self.reservation.and_then(|known| known.live(self.now_us));
        verb == Verb::Reserve && known.is_some()
    }

    /// The [effective time](State::effective_time_us) of what a verb takes; 0 if it is a reserve of a
    /// known id, which takes nothing.
    pub fn taken_us(&self, verb: Verb) -> u64 {
        match self.is_repeated(verb) {
            true => 0,
            false => self.effective_time_us(),
        }
    }
}

/// Derives the decision that scripts made from the states they found. Each state may come from a
/// script of its own.
#[cfg(feature = "lua")]
pub fn evaluate_found(found: &mut [FoundState<'_>], verb: Verb) -> Decision {
    let any_cost = found.iter().any(|found| found.cost > 0);
    let mut evaluations = found.iter_mut().map(|found| {
        let now = found.now_us.min(MAX_TIME_US);
        let (known, caller) = known(verb, found.reservation, found.caller, now);
        let (step, cost) = Step::new(verb, found.cost, found.quota.algorithm(), known);
        let advanced = found.state.advance(found.quota, &caller, now);
        let mut evaluation = Evaluation::new(found.quota, advanced, step, cost);
        evaluation.is_counted = is_counted(verb, found.quota, found.cost, any_cost);
        evaluation
    });
    if evaluations.len() == 1
        && let Some(mut evaluation) = evaluations.next()
    {
        return Decision::from_verdict(evaluation.decide().0);
    }
    decide_all(&mut evaluations.collect::<Vec<Evaluation<'_, AnyLevel<'_>>>>()).0
}

/// Advances states that a script found before a check to those that the next of several equal checks
/// finds: they change if this one is admitted. Returns whether it is. All states come from one script.
#[cfg(feature = "lua")]
pub fn next_check(found: &mut [FoundState<'_>]) -> bool {
    if let [found] = found {
        let verdict = evaluate(
            found.quota,
            &mut found.state,
            Verb::Check,
            found.cost,
            found.now_us,
        );
        return verdict.allowed();
    }
    let now_us = found.first().map_or(0, |found| found.now_us);
    let limits = found.iter_mut();
    let mut limits: Vec<Entry<'_>> = limits
        .map(|found| Entry::new(found.quota, &mut found.state, found.cost))
        .collect();
    evaluate_all(&mut limits, Verb::Check, now_us)
        .verdict()
        .allowed()
}

/// Takes one in `divisor` of the available units for later use, at most `max` and at least 2, or
/// nothing. What was granted is in the verdict.
///
/// ```
/// use tallygate_core::{evaluate_lease, Quota, State};
///
/// let quota: Quota = "token-bucket 10/s burst 100".parse()?;
/// let mut state = State::New;
/// assert_eq!(evaluate_lease(&quota, &mut state, 50, 4, 0).granted(), 25);
/// assert_eq!(evaluate_lease(&quota, &mut state, 8, 4, 0).granted(), 8);
/// assert_eq!(evaluate_lease(&quota, &mut state, 50, 34, 0).granted(), 0);
/// # Ok::<(), tallygate_core::QuotaError>(())
/// ```
pub fn evaluate_lease(
    quota: &Quota,
    state: &mut State,
    max: u32,
    divisor: u32,
    now_us: u64,
) -> Verdict {
    let available = evaluate(quota, state, Verb::Peek, 0, now_us).remaining;
    let granted = match (available / divisor.max(1)).min(max) {
        0 | 1 => 0,
        granted => granted,
    };
    evaluate(quota, state, Verb::Take, granted, now_us)
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
    undo_by(quota, state, &Caller::default(), taken_us, cost, now_us)
}

/// Undoes what a caller took as [`undo`] does. What the caller holds of a concurrency limit ends.
pub fn undo_by(
    quota: &Quota,
    state: &mut State,
    caller: &Caller,
    taken_us: u64,
    cost: u32,
    now_us: u64,
) -> Verdict {
    let advanced = state.advance(quota, caller, now_us.min(MAX_TIME_US));
    let taken = taken_us.min(MAX_TIME_US);
    let mut evaluation = Evaluation::new(quota, advanced, Step::Undo { taken }, cost);
    let (verdict, change) = evaluation.undo(taken);
    let next = evaluation.level.into_state();
    change.write(state, next);
    verdict
}

/// What a caller holds of a concurrency limit at `now_us`. Kept from before a check, it can be
/// [restored](restore_hold).
pub fn former_hold(
    quota: &Quota,
    state: &State,
    caller: &Caller,
    now_us: u64,
) -> Option<FormerHold> {
    match state {
        State::Holds(holds) => holds.held(quota, caller, now_us.min(MAX_TIME_US)),
        #[cfg(feature = "lua")]
        State::HoldsSummary(summary) => summary.former(),
        _ => None,
    }
}

/// Takes back what a check or take of a concurrency limit did: the owner holds what it held before,
/// until the same time. Whether that changed anything.
pub fn restore_hold(state: &mut State, caller: &Caller, former: Option<FormerHold>) -> bool {
    let changed = state.as_holds().restore(caller.owner, former);
    state.reset_if_empty();
    changed
}

/// Returns the last `cost` units of a shaping queue if its schedule ends at `end_us`, give or take a
/// microsecond: then nothing is scheduled behind them. Returns where it ends then. Otherwise, and for
/// other algorithms, returns `None`, and the state stays as it is.
///
/// If a unit takes less than three microseconds, the end does not tell whether one was added.
///
/// ```
/// use tallygate_core::{evaluate, refund_tail, Quota, State, Verb};
///
/// let quota: Quota = "leaky-bucket 1/s queue 10".parse()?;
/// let mut state = State::New;
/// evaluate(&quota, &mut state, Verb::Check, 3, 0);
/// assert_eq!(refund_tail(&quota, &mut state, 2_000_000, 1, 0), None);
/// assert_eq!(refund_tail(&quota, &mut state, 3_000_000, 1, 0), Some(2_000_000));
/// # Ok::<(), tallygate_core::QuotaError>(())
/// ```
pub fn refund_tail(
    quota: &Quota,
    state: &mut State,
    end_us: u64,
    cost: u32,
    now_us: u64,
) -> Option<u64> {
    if !quota.algorithm().is_shaping() || cost == 0 {
        return None;
    }
    let advanced = state.advance(quota, &Caller::default(), now_us.min(MAX_TIME_US));
    let mut evaluation = Evaluation::new(quota, advanced, Step::Refund, cost);
    // No schedule ends later.
    let end_us = end_us.min(2 * MAX_TIME_US);
    if evaluation.schedule_end().abs_diff(end_us) > 1
        || !evaluation.level.refund(quota, cost, evaluation.now)
    {
        return None;
    }
    let end = evaluation.schedule_end();
    let (_, change) = evaluation.refunded();
    let next = evaluation.level.into_state();
    change.write(state, next);
    Some(end)
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
    step: Step,
    cost: u32,
    level: L,
    now: u64,
    behind: u64,
    available: u32,
    /// Whether the request is granted at most what this limit grants.
    is_counted: bool,
}

impl<'a, L: Level> Evaluation<'a, L> {
    #[inline(always)]
    fn new(quota: &'a Quota, advanced: Advanced<L>, step: Step, cost: u32) -> Self {
        let Advanced { level, now, behind } = advanced;
        Evaluation {
            available: level.available(quota, now),
            quota,
            step,
            cost,
            level,
            now,
            behind,
            is_counted: true,
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
        let required = match self.step {
            Step::Check | Step::Peek => self.cost,
            Step::Take => self.cost.min(1),
            Step::Renew if self.level.held() == 0 => {
                return Some(self.refused(Retry::Never));
            }
            Step::Charge
            | Step::ChargeMore
            | Step::Refund
            | Step::Reset
            | Step::Renew
            | Step::Undo { .. }
            | Step::Repeat { .. } => 0,
        };
        if required <= self.available {
            return None;
        }
        let retry = if required > self.quota.capacity() {
            Retry::Never
        } else {
            let wait = self.level.until_fits(self.quota, required, self.now);
            self.level.retry(self.since_caller_time(wait))
        };
        Some(self.refused(retry))
    }

    /// What this limit grants, given that it does not refuse.
    #[inline(always)]
    fn grant(&self) -> u32 {
        match self.step {
            Step::Check | Step::Charge | Step::ChargeMore => self.cost,
            Step::Take => self.cost.min(self.available),
            Step::Repeat { estimate } => estimate,
            Step::Renew => self.level.held(),
            Step::Peek | Step::Refund | Step::Reset | Step::Undo { .. } => 0,
        }
    }

    #[inline(always)]
    fn refused(&self, retry: Retry) -> Verdict {
        self.untouched(Outcome::Refused { retry })
    }

    /// The verdict of a limit that is not changed.
    #[inline(always)]
    fn untouched(&self, outcome: Outcome) -> Verdict {
        let remaining = self.level.remaining(self.quota, self.available);
        self.verdict(outcome, remaining)
    }

    /// The verdict of a limit that admits but is not charged: a peek, a cost of 0, or a request
    /// that another limit refused.
    #[inline(always)]
    fn admitted_uncharged(&self) -> Verdict {
        self.untouched(Outcome::Admitted {
            granted: 0,
            delay_us: self.delay(self.cost),
        })
    }

    /// Executes an admitted request, taking `granted` units if the step takes any.
    #[inline(always)]
    fn commit(&mut self, granted: u32) -> (Verdict, Change<()>) {
        let (quota, now) = (self.quota, self.now);
        match self.step {
            Step::Peek => (self.admitted_uncharged(), Change::None),
            Step::Check | Step::Take | Step::Charge | Step::Refund if self.cost == 0 => {
                (self.admitted_uncharged(), Change::None)
            }
            Step::Check | Step::Take | Step::Charge | Step::ChargeMore => {
                let delay_us = match self.step {
                    Step::ChargeMore => 0,
                    _ => self.delay(granted),
                };
                self.level.take(quota, granted, now);
                let outcome = Outcome::Admitted { granted, delay_us };
                let available = self.available;
                let remaining = self.level.remaining_after(quota, available, granted, now);
                (self.verdict(outcome, remaining), Change::Write(()))
            }
            Step::Refund => {
                if self.level.refund(quota, self.cost, now) {
                    self.refunded()
                } else {
                    self.refunded_nothing()
                }
            }
            Step::Undo { taken } => self.undo(taken),
            Step::Repeat { .. } => {
                let delay_us = 0;
                let verdict = self.untouched(Outcome::Admitted { granted, delay_us });
                (verdict, Change::None)
            }
            Step::Renew => {
                self.level.renew(quota, now);
                let delay_us = 0;
                let verdict = self.untouched(Outcome::Admitted { granted, delay_us });
                (verdict, Change::Write(()))
            }
            Step::Reset => {
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

    /// Returns the cost, taken at an earlier time.
    fn undo(&mut self, taken: u64) -> (Verdict, Change<()>) {
        if self.cost > 0 && self.level.undo(self.quota, self.cost, taken, self.now) {
            self.refunded()
        } else {
            self.refunded_nothing()
        }
    }

    /// The result if there were no units to return. The state stays as it is, also one that is as
    /// new: it may matter again when the clock steps back.
    #[inline(always)]
    fn refunded_nothing(&self) -> (Verdict, Change<()>) {
        (self.untouched(Outcome::UNCHARGED), Change::None)
    }

    /// The result after units were returned.
    #[inline(always)]
    fn refunded(&self) -> (Verdict, Change<()>) {
        let available = self.level.available(self.quota, self.now);
        let remaining = self.level.remaining(self.quota, available);
        let verdict = self.verdict(Outcome::UNCHARGED, remaining);
        let change = match verdict.reset_after_us {
            0 => Change::Delete,
            1.. => Change::Write(()),
        };
        (verdict, change)
    }

    /// When the queue will have drained.
    fn schedule_end(&self) -> u64 {
        self.now + self.level.until_new(self.quota, self.now)
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
