//! Requests over counters that one script cannot reach. Each part is decided on its own, in
//! parallel; what a part took is refunded if another part refuses. Never admits more than one
//! atomic decision would, but units may be charged for a moment before they are refunded.

use std::sync::Arc;

use futures_util::future::join_all;
use tallygate_core::lua::Operation;
use tallygate_core::{FoundState, Verb, Verdict, evaluate_found};

use super::Inner;
use super::command::{ScriptCall, ScriptReply};
use super::error::StoreFailure;
use super::keys;
use crate::decision::Decision;

#[derive(Clone, Copy)]
pub(super) enum SplitBy {
    Slot,
    Limit,
}

/// Some of a request's counters, by index, and the call that decides them.
struct Part {
    indices: Vec<usize>,
    call: Arc<ScriptCall>,
}

struct Charge {
    index: usize,
    units: u32,
    taken_us: u64,
}

/// Decides a request in parts. Runs to the end even if the caller stops waiting, so that units
/// charged without effect are refunded.
pub(super) async fn decide(
    inner: &Arc<Inner>,
    call: Arc<ScriptCall>,
    verb: Verb,
    split_by: SplitBy,
) -> Result<Decision, StoreFailure> {
    let inner = Arc::clone(inner);
    let runtime = inner.runtime.handle().clone();
    let task = runtime.spawn(async move { decide_parts(&inner, &call, verb, split_by).await });
    task.await.unwrap_or(Err(StoreFailure::ConnectionLost))
}

async fn decide_parts(
    inner: &Inner,
    call: &ScriptCall,
    verb: Verb,
    split_by: SplitBy,
) -> Result<Decision, StoreFailure> {
    let _provisional = inner.cache().map(|cache| cache.begin_provisional(call));
    let results = send_split(inner, call, split_by).await;
    let (parts, replies): (Vec<Part>, Vec<_>) = results.into_iter().unzip();
    let mut failure = None;
    let mut decided = Vec::new();
    for (part, reply) in parts.iter().zip(replies) {
        match reply {
            Ok(reply) => decided.push((part, part.call.found(reply).collect::<Vec<_>>())),
            Err(other) => failure = failure.or(Some(other)),
        }
    }
    // What each counter was charged by the decision of its own part.
    let mut charges = Vec::new();
    for (part, found) in &decided {
        let times: Vec<u64> = found.iter().map(FoundState::effective_time_us).collect();
        let decision = evaluate_found(&mut copy_states(found), verb);
        let units = decision.verdicts().iter().map(Verdict::granted);
        let counters = part.indices.iter().zip(units).zip(times);
        charges.extend(counters.map(|((&index, units), taken_us)| Charge {
            index,
            units,
            taken_us,
        }));
    }
    let decision = match failure {
        None => Ok(evaluate_found(&mut in_request_order(decided), verb)),
        Some(failure) => Err(failure),
    };
    if matches!(verb, Verb::Check | Verb::Take) {
        let granted = |index: usize| match &decision {
            Ok(decision) => decision.verdicts()[index].granted(),
            Err(_) => 0,
        };
        let refunds = charges.iter().filter_map(|charge| {
            let units = charge.units.checked_sub(granted(charge.index))?;
            let taken_us = charge.taken_us;
            let operation = Operation::Undo { taken_us };
            (units > 0).then(|| {
                let counter = &call.counters[charge.index];
                Arc::new(ScriptCall::single(counter, units, operation, call.at_us))
            })
        });
        // A lost refund is not repeated: it might have run.
        join_all(refunds.map(|undo| inner.send(undo))).await;
    }
    let mut times_us = vec![0; call.len()];
    for charge in charges {
        times_us[charge.index] = charge.taken_us;
    }
    decision.map(|decision| Decision::new(decision, call.taken_at(&times_us)))
}

type PartReply = (Part, Result<ScriptReply, StoreFailure>);

/// Sends all parts in parallel.
async fn send_split(inner: &Inner, call: &ScriptCall, split_by: SplitBy) -> Vec<PartReply> {
    let (mut done, mut split) = (Vec::new(), Vec::new());
    for (part, reply) in send_parts(inner, split_call(call, split_by)).await {
        match reply {
            // Did not run: a slot migration has moved some of its counters.
            Err(StoreFailure::TryAgain) if part.indices.len() > 1 => {
                split.extend(part.indices.iter().map(|&i| Part::new(call, vec![i])));
            }
            reply => done.push((part, reply)),
        }
    }
    if !split.is_empty() {
        done.extend(send_parts(inner, split).await);
    }
    done
}

async fn send_parts(inner: &Inner, parts: Vec<Part>) -> Vec<PartReply> {
    let sent = parts.iter().map(|part| inner.send(Arc::clone(&part.call)));
    let replies = join_all(sent).await;
    parts.into_iter().zip(replies).collect()
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

/// The counters of all parts, in the request's order.
fn in_request_order<'a>(decided: Vec<(&Part, Vec<FoundState<'a>>)>) -> Vec<FoundState<'a>> {
    let mut all: Vec<(usize, FoundState<'a>)> = decided
        .into_iter()
        .flat_map(|(part, found)| part.indices.iter().copied().zip(found))
        .collect();
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, found)| found).collect()
}

/// `evaluate_found` changes the states, and the parts are evaluated twice: alone and together.
fn copy_states<'a>(found: &[FoundState<'a>]) -> Vec<FoundState<'a>> {
    let copy = |found: &FoundState<'a>| FoundState {
        state: found.state.clone(),
        ..*found
    };
    found.iter().map(copy).collect()
}
