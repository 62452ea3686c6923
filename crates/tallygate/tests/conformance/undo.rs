//! Random traces in which decisions are undone, whole or in part, soon or late: every counter is
//! then as the plain arithmetic has it.

use tallygate::{Decision, Request, Verb};
use tallygate_testkit::{any, with_each_seed};

use super::oracle::{Oracle, difference};
use super::traces::{T0, any_request, later, limits};
use super::{Decides, Undoes};

/// A decision that may be undone.
struct Past<'a> {
    request: Request<'a>,
    given: Decision,
    right: tallygate_core::Decision,
    /// When each limit was taken from.
    moments: Vec<u64>,
}

/// How many decisions are remembered.
const REMEMBERED: usize = 6;

/// Some of a request's limits, by their places.
fn some(rng: &mut fastrand::Rng, request: &Request<'_>) -> Vec<usize> {
    let all = 0..request.entries().len();
    let chosen: Vec<usize> = all.clone().filter(|_| rng.u8(..3) > 0).collect();
    if chosen.is_empty() {
        all.collect()
    } else {
        chosen
    }
}

/// The request with those limits only.
fn part<'a>(request: &Request<'a>, places: &[usize]) -> Request<'a> {
    let asked = |place: usize| &request.entries()[place];
    let (first, rest) = places.split_first().unwrap();
    let part = Request::new(asked(*first).key.clone(), asked(*first).limit);
    let part = part
        .cost(asked(*first).cost())
        .verb(request.requested_verb());
    rest.iter().fold(part, |part, &place| {
        let asked = asked(place);
        let longer = part.and_cost(asked.key.clone(), asked.limit, asked.cost());
        longer.unwrap()
    })
}

/// Time goes forward, mostly, and back by a little now and then.
pub(crate) fn undone_decisions_leave_what_they_should<U: Undoes>(fresh: impl Fn() -> U) {
    let limits = limits();
    with_each_seed(|rng| {
        let mut store = fresh();
        let mut oracle = Oracle::default();
        let mut past: Vec<Past<'_>> = Vec::new();
        let (mut now, mut undone) = (T0, 0);
        for step in 0..store.steps() {
            now = match rng.u8(..20) {
                0 => now - rng.u64(..2_000),
                _ => later(rng, now, past.last().map(|past| &past.given)),
            };
            let mut request = if !past.is_empty() && rng.u8(..3) == 0 {
                let past = past.swap_remove(rng.usize(..past.len()));
                let places = some(rng, &past.request);
                let request = part(&past.request, &places);
                if !open(&store, &oracle, &request, now) {
                    store.undo(&request, &past.given, now);
                    let units = places.iter().map(|&i| past.right.verdicts()[i].granted());
                    let moments = places.iter().map(|&i| past.moments[i]);
                    oracle.undo(&request, moments.zip(units), now);
                    undone += 1;
                }
                request.verb(Verb::Peek)
            } else {
                any_request(rng, &limits)
            };
            if open(&store, &oracle, &request, now) {
                // Forgotten for good, in both.
                request = request.verb(Verb::Reset);
            }
            let moments = oracle.moments(&request, now);
            let given = store.decide(&request, now);
            let right = oracle.decide(&request, now);
            if let Some(difference) = difference(&given, &right) {
                panic!("step {step} at {now}: {request:?}\n{difference}");
            }
            if any(rng, &[true, true, given.allowed()]) {
                past.push(Past {
                    request,
                    given,
                    right,
                    moments,
                });
            }
            if past.len() > REMEMBERED {
                past.remove(rng.usize(..REMEMBERED));
            }
        }
        assert!(undone * 10 > store.steps(), "only {undone} were undone");
    });
}

/// Whether both a store that has forgotten and one that has not are right.
fn open(store: &impl Decides, oracle: &Oracle, request: &Request<'_>, now: u64) -> bool {
    oracle.is_open(request, now) || store.gives_back() && oracle.was_spared_later(request, now)
}
