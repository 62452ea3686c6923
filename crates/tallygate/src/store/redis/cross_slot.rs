//! One request over counters that no single script can reach: each part is decided by itself, in
//! parallel, and what it took is taken back when another part refuses. Never admits what all the
//! parts together would not; others may see units held for a moment that nobody gets.

use std::sync::Arc;

use futures_util::future::join_all;
use tallygate_core::lua::Operation;
use tallygate_core::{FoundState, Verb, Verdict, evaluate_found};

use super::Inner;
use super::command::{Answer, Call};
use super::error::Trouble;
use super::keys;
use crate::decision::Decision;

/// What the parts are.
#[derive(Clone, Copy)]
pub(super) enum Apart {
    /// The limits of each slot.
    Slots,
    /// Every limit by itself.
    Limits,
}

/// One part: which limits of the request, and what is asked of them.
struct Part {
    places: Vec<usize>,
    call: Arc<Call>,
}

/// What one limit took.
struct Taken {
    place: usize,
    units: u32,
    /// As at which moment.
    taken_us: u64,
}

/// Decides a request in parts. Goes on to the end also if nobody waits any longer: what was taken
/// for nothing is given back.
pub(super) async fn decide(
    inner: &Arc<Inner>,
    call: Arc<Call>,
    verb: Verb,
    apart: Apart,
) -> Result<Decision, Trouble> {
    let inner = Arc::clone(inner);
    let all = tokio::spawn(async move { in_parts(&inner, &call, verb, apart).await });
    all.await.unwrap_or(Err(Trouble::Broken))
}

async fn in_parts(
    inner: &Inner,
    call: &Call,
    verb: Verb,
    apart: Apart,
) -> Result<Decision, Trouble> {
    let (parts, answers): (Vec<Part>, Vec<_>) = ask(inner, call, apart).await.into_iter().unzip();
    let mut failure = None;
    let mut decided = Vec::new();
    for (part, answer) in parts.iter().zip(answers) {
        match answer {
            Ok(answer) => decided.push((part, part.call.found(answer).collect::<Vec<_>>())),
            Err(trouble) => failure = failure.or(Some(trouble)),
        }
    }
    // What each limit took while its part was by itself.
    let mut taken = Vec::new();
    for (part, found) in &decided {
        let moments: Vec<u64> = found.iter().map(FoundState::effective_time_us).collect();
        let alone = evaluate_found(&mut copies(found), verb);
        let units = alone.verdicts().iter().map(Verdict::granted);
        let each = part.places.iter().zip(units).zip(moments);
        taken.extend(each.map(|((&place, units), taken_us)| Taken {
            place,
            units,
            taken_us,
        }));
    }
    let together = failure.map_or_else(|| Ok(evaluate_found(&mut in_order(decided), verb)), Err);
    if matches!(verb, Verb::Check | Verb::Take) {
        let kept = |place: usize| match &together {
            Ok(all) => all.verdicts()[place].granted(),
            Err(_) => 0,
        };
        let back = taken.iter().filter_map(|taken| {
            let units = taken.units.checked_sub(kept(taken.place))?;
            (units > 0).then(|| taken.undo(call, units))
        });
        // A refund that is lost is not repeated: it might give back twice.
        join_all(back.map(|undo| async move { inner.send(undo).await })).await;
    }
    let mut moments = vec![0; call.len()];
    for taken in taken {
        moments[taken.place] = taken.taken_us;
    }
    together.map(|decision| Decision::new(decision, call.taken(&moments)))
}

/// Asks every part, all at once.
async fn ask(inner: &Inner, call: &Call, apart: Apart) -> Vec<(Part, Result<Answer, Trouble>)> {
    let (mut answered, mut halves) = (Vec::new(), Vec::new());
    for (part, answer) in send(inner, parts(call, apart)).await {
        match answer {
            // Not run: its counters are on their way, and each is at one of two servers.
            Err(Trouble::TryAgain) if part.places.len() > 1 => {
                halves.extend(part.places.iter().map(|&i| Part::of(call, vec![i])));
            }
            answer => answered.push((part, answer)),
        }
    }
    if !halves.is_empty() {
        answered.extend(send(inner, halves).await);
    }
    answered
}

async fn send(inner: &Inner, parts: Vec<Part>) -> Vec<(Part, Result<Answer, Trouble>)> {
    let sent = parts.iter().map(|part| inner.send(Arc::clone(&part.call)));
    let answers = join_all(sent).await;
    parts.into_iter().zip(answers).collect()
}

fn parts(call: &Call, apart: Apart) -> Vec<Part> {
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    for (i, limit) in call.limits().iter().enumerate() {
        let group = match apart {
            Apart::Slots => keys::slot(&limit.name).into(),
            Apart::Limits => i,
        };
        match groups.iter_mut().find(|(of, _)| *of == group) {
            Some((_, places)) => places.push(i),
            None => groups.push((group, vec![i])),
        }
    }
    let groups = groups.into_iter();
    groups.map(|(_, places)| Part::of(call, places)).collect()
}

impl Part {
    fn of(call: &Call, places: Vec<usize>) -> Self {
        let limits = places.iter().map(|&i| {
            let limit = &call.limits()[i];
            (limit.name.clone(), limit.quota, limit.cost)
        });
        let part = Call::new(limits, call.ask(), call.at_us());
        Part {
            call: Arc::new(part),
            places,
        }
    }
}

impl Taken {
    /// Takes units back, as of the moment they were taken.
    fn undo(&self, call: &Call, units: u32) -> Arc<Call> {
        let limit = &call.limits()[self.place];
        let limit = std::iter::once((limit.name.clone(), limit.quota, units));
        let ask = Operation::Undo {
            taken_us: self.taken_us,
        };
        Arc::new(Call::new(limit, ask, call.at_us()))
    }
}

/// The counters of all parts, in the request's order.
fn in_order<'a>(decided: Vec<(&Part, Vec<FoundState<'a>>)>) -> Vec<FoundState<'a>> {
    let places = decided
        .iter()
        .flat_map(|(part, _)| part.places.iter().copied());
    let places: Vec<usize> = places.collect();
    let found = decided.into_iter().flat_map(|(_, found)| found);
    let mut all: Vec<(usize, FoundState<'a>)> = places.into_iter().zip(found).collect();
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, found)| found).collect()
}

/// Deciding changes what was found; the parts are decided by themselves, and then together.
fn copies<'a>(found: &[FoundState<'a>]) -> Vec<FoundState<'a>> {
    let copy = |found: &FoundState<'a>| FoundState {
        state: found.state.clone(),
        ..*found
    };
    found.iter().map(copy).collect()
}
