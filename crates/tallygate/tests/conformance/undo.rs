//! Random traces in which decisions are undone, completely or in part, at any time: every counter
//! then has the state of the oracle.

use tallygate::{Decision, Limit, Quota, Request, Verb};
use tallygate_testkit::{any, with_each_seed};

use super::oracle::{Oracle, difference};
use super::traces::{T0, any_request, later, limits};
use super::{TestStore, UndoStore};

/// A decision that may be undone.
struct Past<'a> {
    request: Request<'a>,
    actual: Decision,
    expected: tallygate_core::Decision,
    /// The effective time of each limit.
    effective_times: Vec<u64>,
}

/// The maximum number of decisions that may be undone.
const MAX_PAST: usize = 6;

/// The indices of some of a request's limits.
fn some(rng: &mut fastrand::Rng, request: &Request<'_>) -> Vec<usize> {
    let all = 0..request.entries().len();
    let chosen: Vec<usize> = all.clone().filter(|_| rng.u8(..3) > 0).collect();
    if chosen.is_empty() {
        all.collect()
    } else {
        chosen
    }
}

/// The request with only these limits.
fn part<'a>(request: &Request<'a>, indices: &[usize]) -> Request<'a> {
    let entry = |i: usize| &request.entries()[i];
    let (first, rest) = indices.split_first().unwrap();
    let part = Request::new(entry(*first).key.clone(), entry(*first).limit);
    let part = part
        .cost(entry(*first).cost())
        .verb(request.requested_verb());
    rest.iter().fold(part, |part, &i| {
        let entry = entry(i);
        let longer = part.and_cost(entry.key.clone(), entry.limit, entry.cost());
        longer.unwrap()
    })
}

/// Time mostly moves forward, and sometimes back by a little.
pub(crate) fn undone_decisions_restore_the_counters<U: UndoStore>(fresh: impl Fn() -> U) {
    let limits = limits();
    with_each_seed(|rng| {
        let mut store = fresh();
        let mut oracle = Oracle::default();
        let mut past: Vec<Past<'_>> = Vec::new();
        let (mut now, mut undone) = (T0, 0);
        for step in 0..store.steps() {
            now = match rng.u8(..20) {
                0 => now - rng.u64(..2_000),
                _ => later(rng, now, past.last().map(|past| &past.actual)),
            };
            let mut request = if !past.is_empty() && rng.u8(..3) == 0 {
                let past = past.swap_remove(rng.usize(..past.len()));
                let indices = some(rng, &past.request);
                let request = part(&past.request, &indices);
                if !is_ambiguous(&store, &oracle, &request, now) {
                    store.undo(&request, &past.actual, now);
                    let units = indices
                        .iter()
                        .map(|&i| past.expected.verdicts()[i].granted());
                    let times = indices.iter().map(|&i| past.effective_times[i]);
                    oracle.undo(&request, times.zip(units), now);
                    undone += 1;
                }
                request.verb(Verb::Peek)
            } else {
                any_request(rng, &limits)
            };
            if is_ambiguous(&store, &oracle, &request, now) {
                // Delete the counters in both.
                request = request.verb(Verb::Reset);
            }
            let effective_times = oracle.effective_times(&request, now);
            let actual = store.decide(&request, now);
            let expected = oracle.decide(&request, now);
            if let Some(difference) = difference(&actual, &expected) {
                panic!("step {step} at {now}: {request:?}\n{difference}");
            }
            if any(rng, &[true, true, actual.allowed()]) {
                past.push(Past {
                    request,
                    actual,
                    expected,
                    effective_times,
                });
            }
            if past.len() > MAX_PAST {
                past.remove(rng.usize(..MAX_PAST));
            }
        }
        assert!(undone * 10 > store.steps(), "only {undone} were undone");
    });
}

/// An undo on a log reaches its newest 256 entries.
pub(crate) fn an_undo_reaches_the_newest_256_entries_of_a_log<U: UndoStore>(fresh: impl Fn() -> U) {
    let limit = Limit::from("sliding-window-log 2000/h".parse::<Quota>().unwrap());
    let mut store = fresh();
    for (depth, reached) in [
        (1, true),
        (255, true),
        (256, true),
        (257, false),
        (258, false),
    ] {
        let request = Request::new(depth.to_string(), &limit).cost(2);
        let decisions: Vec<Decision> = (0..300).map(|i| store.decide(&request, T0 + i)).collect();
        store.undo(&request, &decisions[300 - depth], T0 + 300);
        let peek = store.decide(&request.verb(Verb::Peek), T0 + 300);
        let used = if reached { 598 } else { 600 };
        assert_eq!(2_000 - peek.remaining(), used, "depth {depth}");
    }
}

/// Whether a store may correctly differ from the oracle.
fn is_ambiguous(store: &impl TestStore, oracle: &Oracle, request: &Request<'_>, now: u64) -> bool {
    oracle.may_be_expired(request, now)
        || store.rolls_back() && oracle.was_rolled_back_later(request, now)
}
