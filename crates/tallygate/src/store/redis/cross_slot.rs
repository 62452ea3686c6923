//! Requests over counters that one script cannot reach. Each part is decided on its own, in
//! parallel. A part that refuses decides, whatever becomes of the others; what the others took is
//! returned after the answer. Never admits more than one atomic decision would, but units may be
//! charged for a moment before they are returned.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tallygate_core::lua::Operation;
use tallygate_core::{FoundState, State, Verb, Verdict, evaluate_found};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Inner;
use super::command::{ScriptCall, ScriptReply};
use super::error::StoreFailure;
use super::keys;
use crate::decision::Decision;
use crate::store::PartialDecision;

#[derive(Clone, Copy)]
pub(super) enum SplitBy {
    Slot,
    Limit,
}

/// What a cross-slot request is answered.
pub(super) enum SplitDecision {
    Decided(Decision),
    /// A part failed, and no other refuses.
    Partial(PartialDecision, StoreFailure),
    /// Every part failed.
    Failed(StoreFailure),
}

/// Some of a request's counters, by index, and the call that decides them.
#[derive(Clone)]
struct Part {
    indices: Vec<usize>,
    call: Arc<ScriptCall>,
}

/// A part that was decided, with its counters as the script found them.
struct DecidedPart {
    part: Part,
    reply: ScriptReply,
}

struct Charge {
    index: usize,
    units: u32,
    taken_us: u64,
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
    runtime
        .spawn(async move { decide_parts(&task, &call, verb, split_by, deadline, answer).await });
    let lost = || SplitDecision::Failed(StoreFailure::ConnectionLost);
    answered.await.unwrap_or_else(|_| lost())
}

async fn decide_parts(
    inner: &Inner,
    call: &ScriptCall,
    verb: Verb,
    split_by: SplitBy,
    deadline: Option<Duration>,
    answer: oneshot::Sender<SplitDecision>,
) {
    let _provisional = inner.cache().map(|cache| cache.begin_provisional(call));
    let mut pending = FuturesUnordered::new();
    let send = |part: Part| async move {
        let reply = inner.send(Arc::clone(&part.call)).await;
        (part, reply)
    };
    pending.extend(split_call(call, split_by).into_iter().map(send));
    let mut decided: Vec<DecidedPart> = Vec::new();
    let mut failure = None;
    let collect = async {
        while let Some((part, reply)) = pending.next().await {
            match reply {
                Ok(reply) => decided.push(DecidedPart { part, reply }),
                // Did not run: a slot migration has moved some of its counters.
                Err(StoreFailure::TryAgain) if part.indices.len() > 1 => {
                    let singles = part.indices.iter().map(|&i| Part::new(call, vec![i]));
                    pending.extend(singles.map(send));
                }
                Err(other) => failure = failure.take().or(Some(other)),
            }
        }
    };
    let in_time = match deadline {
        Some(deadline) => timeout(deadline, collect).await.is_ok(),
        None => {
            collect.await;
            true
        }
    };
    if !in_time {
        failure = failure.or(Some(StoreFailure::TimedOut));
    }
    let charges = charges(&decided, verb);
    let split = combine(call, verb, &decided, &charges, failure);
    // With a deadline the caller decides the failed limits, and returns what the others took.
    let keeps_charges = deadline.is_some() && matches!(split, SplitDecision::Partial(..));
    let granted: Vec<u32> = match &split {
        SplitDecision::Decided(decision) => {
            let verdicts = decision.verdicts().iter();
            verdicts.map(Verdict::granted).collect()
        }
        SplitDecision::Partial(..) | SplitDecision::Failed(_) => vec![0; call.len()],
    };
    let takes = matches!(verb, Verb::Check | Verb::Take);
    let surplus = |kept: bool| {
        let charges = charges.iter().filter(|_| takes);
        let granted = &granted;
        charges.filter_map(move |charge| {
            let granted = if kept { granted[charge.index] } else { 0 };
            let units = charge.units.checked_sub(granted)?;
            (units > 0).then_some((charge, units))
        })
    };
    if deadline.is_none() {
        // Without a deadline the next request may depend on it, as in a replay.
        take_back(inner, call, surplus(true)).await;
        let _ = answer.send(split);
        return;
    }
    // The answer first, then what has to be returned: everything, if the caller has stopped waiting.
    let received = answer.send(split).is_ok();
    if !(keeps_charges && received) {
        take_back(inner, call, surplus(received)).await;
    }
    if !takes {
        return;
    }
    // The limits of parts that answer too late were decided without them.
    let mut late = Vec::new();
    while let Some((part, reply)) = pending.next().await {
        late.extend(reply.ok().map(|reply| DecidedPart { part, reply }));
    }
    let charges = self::charges(&late, verb);
    let taken = charges.iter().map(|charge| (charge, charge.units));
    take_back(inner, call, taken.filter(|(_, units)| *units > 0)).await;
}

/// Returns units to counters. A lost call is not repeated: it might have run.
async fn take_back<'c>(
    inner: &Inner,
    call: &ScriptCall,
    charges: impl Iterator<Item = (&'c Charge, u32)>,
) {
    let undos = charges.map(|(charge, units)| {
        let operation = Operation::Undo {
            taken_us: charge.taken_us,
        };
        let counter = &call.counters[charge.index];
        Arc::new(ScriptCall::single(counter, units, operation, call.at_us))
    });
    join_all(undos.map(|undo| inner.send(undo))).await;
}

/// What each counter was charged by the decision of its own part.
fn charges(decided: &[DecidedPart], verb: Verb) -> Vec<Charge> {
    let mut charges = Vec::new();
    for DecidedPart { part, reply } in decided {
        let mut found: Vec<FoundState<'_>> = part.call.found(reply.clone()).collect();
        let times: Vec<u64> = found.iter().map(FoundState::effective_time_us).collect();
        let decision = evaluate_found(&mut found, verb);
        let units = decision.verdicts().iter().map(Verdict::granted);
        let counters = part.indices.iter().zip(units).zip(times);
        charges.extend(counters.map(|((&index, units), taken_us)| Charge {
            index,
            units,
            taken_us,
        }));
    }
    charges
}

/// Combines the parts that were decided.
fn combine(
    call: &ScriptCall,
    verb: Verb,
    decided: &[DecidedPart],
    charges: &[Charge],
    failure: Option<StoreFailure>,
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
    let Some(failure) = failure else {
        let decision = evaluate_found(&mut found, verb);
        return SplitDecision::Decided(Decision::new(decision, call.taken_at(&times_us)));
    };
    if found.is_empty() {
        return SplitDecision::Failed(failure);
    }
    let decision = evaluate_found(&mut copy_states(&found), verb);
    if decision.verdict().allowed() {
        let times: Vec<u64> = positions.iter().map(|&at| times_us[at]).collect();
        let taken_at = call.taken_at_positions(&positions, &times);
        let failed = (0..call.len())
            .filter(|at| !positions.contains(at))
            .collect();
        let partial = PartialDecision {
            decision: Decision::new(decision, taken_at),
            decided: positions,
            failed,
        };
        return SplitDecision::Partial(partial, failure);
    }
    // A known refusal stands. The counters of failed parts are reported as unused.
    let mut all: Vec<FoundState<'_>> = Vec::with_capacity(call.len());
    let mut found = positions.iter().zip(found).peekable();
    for (at, counter) in call.counters.iter().enumerate() {
        all.push(match found.next_if(|(index, _)| **index == at) {
            Some((_, found)) => found,
            None => FoundState {
                quota: &counter.quota,
                state: State::New,
                cost: counter.cost,
                now_us: 0,
            },
        });
    }
    let decision = evaluate_found(&mut all, verb);
    SplitDecision::Decided(Decision::new(decision, call.taken_at(&times_us)))
}

fn split_call(call: &ScriptCall, split_by: SplitBy) -> Vec<Part> {
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    for (i, counter) in call.counters.iter().enumerate() {
        let group = match split_by {
            SplitBy::Slot => keys::slot(&counter.key).into(),
            SplitBy::Limit => i,
        };
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, indices)) => indices.push(i),
            None => groups.push((group, vec![i])),
        }
    }
    let part = |(_, indices)| Part::new(call, indices);
    groups.into_iter().map(part).collect()
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
