//! Requests over counters that one script cannot reach. Each part is decided on its own, in
//! parallel. A part that refuses decides, whatever becomes of the others; what the others took is
//! returned after the answer. Never admits more than one atomic decision would, but units may be
//! charged for a moment before they are returned.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tallygate_core::lua::Operation;
use tallygate_core::{
    Caller, FormerHold, FoundState, State, Verb, Verdict, evaluate_found, former_hold,
};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Inner;
use super::batch::CallResult;
use super::command::{ScriptCall, ScriptReply, counter_id};
use super::error::StoreFailure;
use crate::decision::Decision;
use crate::store::{FailedLimit, PartialDecision, StoreErrorKind};

#[derive(Clone, Copy)]
pub(super) enum SplitBy {
    Part,
    Limit,
}

/// What a cross-slot request is answered.
pub(super) enum SplitDecision {
    Decided(Decision),
    /// Parts failed, the first for this reason, and no other refuses.
    Partial(PartialDecision, StoreFailure),
    /// Nothing is known.
    Failed(StoreFailure),
}

/// Some of a request's counters, by index, and the call that decides them.
#[derive(Clone)]
pub(super) struct Part {
    indices: Vec<usize>,
    pub(super) call: Arc<ScriptCall>,
}

/// A part that was decided, with its counters as the script found them.
struct DecidedPart {
    part: Part,
    reply: ScriptReply,
}

/// A request while its parts are decided. Performs no I/O and reads no clock.
pub(super) struct SplitRequest {
    call: Arc<ScriptCall>,
    verb: Verb,
    decided: Vec<DecidedPart>,
    failures: Vec<(Part, StoreFailure)>,
}

/// What the parts took, and what of it has an effect.
pub(super) struct Charges {
    each: Vec<Charge>,
    /// For each counter of the request.
    granted: Vec<u32>,
}

struct Charge {
    index: usize,
    units: u32,
    taken_us: u64,
    /// What the owner held before of a concurrency limit.
    former: Option<FormerHold>,
}

impl SplitRequest {
    pub(super) fn new(call: &Arc<ScriptCall>, verb: Verb) -> Self {
        SplitRequest {
            call: Arc::clone(call),
            verb,
            decided: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Its parts. `part_of` is the part of the servers that holds a key.
    pub(super) fn parts(&self, split_by: SplitBy, part_of: impl Fn(&[u8]) -> u16) -> Vec<Part> {
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        for (i, counter) in self.call.counters.iter().enumerate() {
            let group = match split_by {
                SplitBy::Part => part_of(&counter.key).into(),
                SplitBy::Limit => i,
            };
            match groups.iter_mut().find(|(known, _)| *known == group) {
                Some((_, indices)) => indices.push(i),
                None => groups.push((group, vec![i])),
            }
        }
        let part = |(_, indices)| Part::new(&self.call, indices);
        groups.into_iter().map(part).collect()
    }

    /// Records the reply to a part. Returns the parts to be sent in its place.
    pub(super) fn on_reply(&mut self, part: Part, reply: CallResult) -> Vec<Part> {
        match reply {
            Ok(reply) => self.decided.push(DecidedPart { part, reply }),
            // Did not run: a slot migration has moved some of its counters.
            Err(StoreFailure::TryAgain) if part.indices.len() > 1 => {
                let singles = part.indices.iter().map(|&i| Part::new(&self.call, vec![i]));
                return singles.collect();
            }
            Err(failure) => self.failures.push((part, failure)),
        }
        Vec::new()
    }

    /// Whether a part failed, or has not replied.
    #[cfg(feature = "simulate")]
    pub(super) fn is_incomplete(&self) -> bool {
        let decided = self
            .decided
            .iter()
            .map(|decided| decided.part.indices.len());
        decided.sum::<usize>() < self.call.len()
    }

    /// What it is answered, and what was taken. Parts that have not replied are too late.
    pub(super) fn finish(self) -> (SplitDecision, Charges) {
        let each = charges(&self.decided, self.verb);
        let split = combine(&self.call, self.verb, &self.decided, &each, self.failures);
        let granted: Vec<u32> = match &split {
            SplitDecision::Decided(decision) => {
                let verdicts = decision.verdicts().iter();
                verdicts.map(Verdict::granted).collect()
            }
            SplitDecision::Partial(..) | SplitDecision::Failed(_) => vec![0; self.call.len()],
        };
        let each = if takes(self.verb) { each } else { Vec::new() };
        (split, Charges { each, granted })
    }
}

impl Charges {
    /// The calls that return what has no effect; everything, unless the answer was `kept`.
    pub(super) fn undo_calls(&self, call: &ScriptCall, kept: bool) -> Vec<Arc<ScriptCall>> {
        let surplus = self.each.iter().filter_map(|charge| {
            let granted = if kept { self.granted[charge.index] } else { 0 };
            let units = charge.units.checked_sub(granted)?;
            (units > 0).then(|| undo_call(call, charge, units, granted == 0))
        });
        surplus.collect()
    }
}

/// The calls that return what a part took that replied after the deadline: its limits were decided
/// without it.
pub(super) fn undo_late(
    call: &ScriptCall,
    verb: Verb,
    part: Part,
    reply: CallResult,
) -> Vec<Arc<ScriptCall>> {
    let Ok(reply) = reply else {
        return Vec::new();
    };
    if !takes(verb) {
        return Vec::new();
    }
    let charges = charges(&[DecidedPart { part, reply }], verb);
    let taken = charges.iter().filter(|charge| charge.units > 0);
    taken
        .map(|charge| undo_call(call, charge, charge.units, true))
        .collect()
}

/// Whether what a request took is returned if it has no effect.
fn takes(verb: Verb) -> bool {
    matches!(verb, Verb::Check | Verb::Take | Verb::Reserve)
}

/// Returns units that a counter was charged; `all`: it is as if it had not been asked.
fn undo_call(call: &ScriptCall, charge: &Charge, units: u32, all: bool) -> Arc<ScriptCall> {
    let counter = &call.counters[charge.index];
    let former = charge.former;
    let (operation, units) = match call.operation {
        _ if counter.quota.algorithm().is_concurrent() => match all {
            true => (Operation::Restore { former }, units),
            false => (Operation::Verb(Verb::Refund), units),
        },
        // Forgets the id too.
        reserve if reserve.has_reservation(&counter.quota) => (Operation::Verb(Verb::Settle), 0),
        _ => {
            let taken_us = charge.taken_us;
            (Operation::Undo { taken_us }, units)
        }
    };
    Arc::new(ScriptCall::single(counter, units, operation, call.at_us))
}

/// Decides a request in parts, until the deadline if there is one. Runs to the end even if the
/// caller stops waiting, so that units charged without effect are returned.
pub(super) async fn decide(
    inner: &Arc<Inner>,
    call: Arc<ScriptCall>,
    verb: Verb,
    split_by: SplitBy,
    deadline: Option<Duration>,
) -> SplitDecision {
    let (answer, answered) = oneshot::channel();
    let task = Arc::clone(inner);
    let runtime = inner.runtime.handle();
    let split = SplitRequest::new(&call, verb);
    runtime.spawn(async move { decide_parts(&task, split, split_by, deadline, answer).await });
    let lost = || SplitDecision::Failed(StoreFailure::ConnectionLost);
    answered.await.unwrap_or_else(|_| lost())
}

async fn decide_parts(
    inner: &Inner,
    mut split: SplitRequest,
    split_by: SplitBy,
    deadline: Option<Duration>,
    answer: oneshot::Sender<SplitDecision>,
) {
    let (call, verb) = (Arc::clone(&split.call), split.verb);
    let _provisional = inner.cache().map(|cache| cache.begin_provisional(&call));
    let mut pending = FuturesUnordered::new();
    let until = deadline.map(|deadline| Instant::now() + deadline);
    let send = |part: Part| async move {
        let reply = inner.send_until(Arc::clone(&part.call), until).await;
        (part, reply)
    };
    let parts = split.parts(split_by, |key| inner.backend.part(key));
    pending.extend(parts.into_iter().map(send));
    let collect = async {
        while let Some((part, reply)) = pending.next().await {
            pending.extend(split.on_reply(part, reply).into_iter().map(send));
        }
    };
    match deadline {
        // A part that has neither replied nor failed by then is too late.
        Some(deadline) => drop(timeout(deadline, collect).await),
        None => collect.await,
    }
    let (split, charges) = split.finish();
    if deadline.is_none() {
        // Without a deadline the next request may depend on it, as in a replay.
        take_back(inner, charges.undo_calls(&call, true)).await;
        let _ = answer.send(split);
        return;
    }
    // With a deadline the caller decides the failed limits, and returns what the others took.
    let keeps_charges = matches!(split, SplitDecision::Partial(..));
    // The answer first, then what has to be returned: everything, if the caller has stopped waiting.
    let received = answer.send(split).is_ok();
    if !(keeps_charges && received) {
        take_back(inner, charges.undo_calls(&call, received)).await;
    }
    let mut late = Vec::new();
    while let Some((part, reply)) = pending.next().await {
        late.extend(undo_late(&call, verb, part, reply));
    }
    take_back(inner, late).await;
}

/// Returns units to counters. A lost call is not repeated: it might have run.
async fn take_back(inner: &Inner, undos: Vec<Arc<ScriptCall>>) {
    join_all(undos.into_iter().map(|undo| inner.send(undo))).await;
}

/// What each counter was charged by the decision of its own part.
fn charges(decided: &[DecidedPart], verb: Verb) -> Vec<Charge> {
    let mut charges = Vec::new();
    for DecidedPart { part, reply } in decided {
        let mut found: Vec<FoundState<'_>> = part.call.found(reply.clone()).collect();
        let before: Vec<_> = found.iter().map(|found| before(found, verb)).collect();
        let decision = evaluate_found(&mut found, verb);
        let units = decision.verdicts().iter().map(Verdict::granted);
        let counters = part.indices.iter().zip(units).zip(before);
        charges.extend(
            counters.map(|((&index, granted), (taken_us, former, is_known))| {
                // A reserve of a known id is granted what was taken then.
                let units = if is_known { 0 } else { granted };
                Charge {
                    index,
                    units,
                    taken_us,
                    former,
                }
            }),
        );
    }
    charges
}

/// When a counter is charged, what the owner held before, and whether the id is known.
fn before(found: &FoundState<'_>, verb: Verb) -> (u64, Option<FormerHold>, bool) {
    let former = former_hold(found.quota, &found.state, &Caller::NONE, found.now_us);
    (found.taken_us(verb), former, found.is_repeated(verb))
}

/// Combines the parts that were decided.
fn combine(
    call: &ScriptCall,
    verb: Verb,
    decided: &[DecidedPart],
    charges: &[Charge],
    failures: Vec<(Part, StoreFailure)>,
) -> SplitDecision {
    let mut times_us = vec![0; call.len()];
    for charge in charges {
        times_us[charge.index] = charge.taken_us;
    }
    let mut known: Vec<(usize, FoundState<'_>)> = Vec::new();
    for DecidedPart { part, reply } in decided {
        let found = part.call.found(reply.clone());
        known.extend(part.indices.iter().copied().zip(found));
    }
    known.sort_by_key(|(index, _)| *index);
    let positions: Vec<usize> = known.iter().map(|(index, _)| *index).collect();
    let mut found: Vec<FoundState<'_>> = known.into_iter().map(|(_, found)| found).collect();
    if found.len() == call.len() {
        let decision = evaluate_found(&mut found, verb);
        return SplitDecision::Decided(Decision::new(decision, call.taken_at(&times_us)));
    }
    let decision = match &*found {
        [] => None,
        found => Some(evaluate_found(&mut copy_states(found), verb)),
    };
    if decision.as_ref().is_none_or(|one| one.verdict().allowed()) {
        let times: Vec<u64> = positions.iter().map(|&at| times_us[at]).collect();
        let former = charges.iter().filter_map(|charge| {
            let key = &call.counters[charge.index].key;
            Some((counter_id(key), charge.former?))
        });
        let taken_at = call.taken_at_positions(&positions, &times);
        let taken_at = taken_at.with_former(former.collect());
        let failed = (0..call.len()).filter(|at| !positions.contains(at));
        let partial = PartialDecision {
            decision: decision.map(|decision| Decision::new(decision, taken_at)),
            failed: failed.map(|at| failed_limit(at, &failures)).collect(),
            decided: positions,
        };
        let first = failures.into_iter().next();
        let failure = first.map_or(StoreFailure::TimedOut, |(_, failure)| failure);
        return SplitDecision::Partial(partial, failure);
    }
    // A known refusal stands. The counters of failed parts are reported as unused.
    let mut all: Vec<FoundState<'_>> = Vec::with_capacity(call.len());
    let mut found = positions.iter().zip(found).peekable();
    for (at, counter) in call.counters.iter().enumerate() {
        all.push(match found.next_if(|(index, _)| **index == at) {
            Some((_, found)) => found,
            None => FoundState::new(&counter.quota, State::New, counter.cost, 0),
        });
    }
    let decision = evaluate_found(&mut all, verb);
    SplitDecision::Decided(Decision::new(decision, call.taken_at(&times_us)))
}

/// A part that has neither replied nor failed is too late.
fn failed_limit(at: usize, failures: &[(Part, StoreFailure)]) -> FailedLimit {
    let known = failures.iter().find(|(part, _)| part.indices.contains(&at));
    let kind = known.map_or(StoreErrorKind::Timeout, |(_, failure)| failure.kind());
    FailedLimit { at, kind }
}

impl Part {
    fn new(call: &ScriptCall, indices: Vec<usize>) -> Self {
        let counters = indices.iter().map(|&i| {
            let counter = &call.counters[i];
            counter.with_cost(counter.cost)
        });
        let part = ScriptCall::new(counters, call.operation, call.at_us);
        Part {
            call: Arc::new(part),
            indices,
        }
    }
}

/// `evaluate_found` changes the states.
fn copy_states<'a>(found: &[FoundState<'a>]) -> Vec<FoundState<'a>> {
    let copy = |found: &FoundState<'a>| FoundState {
        state: found.state.clone(),
        ..*found
    };
    found.iter().map(copy).collect()
}
