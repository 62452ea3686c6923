//! Requests of members and owners, and reservations: golden and random traces.

use serde_json::Value;
use tallygate::{Decision, Key, Limit, Member, Request, RequestEntry, Verb, Weight};
use tallygate_testkit::{any, with_each_seed};

use super::TestStore;
use super::golden::run_golden;
use super::traces::{T0, later, run};

/// Those of every kind; no two with the same behaviour and period.
const QUOTAS: [&str; 14] = [
    "token-bucket 10/s burst 16 shared 4",
    "token-bucket 1000/ms burst 100 shared 5",
    "token-bucket 7/min burst 9 shared 2",
    "leaky-bucket 3/7ms burst 4 shared 1",
    "leaky-bucket 100/s burst 1000 shared 9",
    "concurrent 3 for 1s",
    "concurrent 10 for 2s500ms",
    "concurrent 10000 for 1min",
    "fixed-window 3/ms",
    "sliding-window-log 40/s",
    "7/min",
    "token-bucket 5/ms burst 3",
    "leaky-bucket 10/h burst 30",
    "leaky-bucket 3/ms queue 5",
];
const COSTS: [u32; 10] = [0, 1, 1, 1, 1, 2, 3, 4, 9, 20];
const KEYS: [&str; 4] = ["a", "b", "c", ""];
const NAMES: [&str; 6] = ["", "acme", "b", "c", "d", "e"];
const WEIGHTS: [u32; 6] = [1, 1, 1, 2, 4, 1_000];

/// Runs every golden trace of shares, concurrency limits and reservations.
pub(crate) fn golden_traces_of_callers_are_decided_exactly<D: TestStore>(fresh: impl FnMut() -> D) {
    let traces = include_str!("../../../core/tests/vectors_next.jsonl");
    assert!(run_golden(traces, fresh, golden_request) > 280);
}

fn golden_request<'a>(step: &'a Value, limits: &'a [Limit]) -> Request<'a> {
    let text = |name: &str| step.get(name).map(|text| text.as_str().unwrap());
    let weight = step.get("weight").map_or(1, |w| w.as_u64().unwrap());
    let weight = Weight::new(weight.try_into().unwrap()).unwrap();
    let mut request = Request::with_limits("golden", limits).unwrap();
    // As in replay, they are empty if they are not given.
    request = request.member(Member::new(text("member").unwrap_or_default()).weight(weight));
    request = request.owner(text("owner").unwrap_or_default());
    match text("id") {
        Some(id) => request.id(id),
        None => request,
    }
}

fn limits() -> Vec<Limit> {
    let each = QUOTAS.iter();
    each.map(|text| Limit::from(text.parse::<tallygate::Quota>().unwrap()))
        .collect()
}

fn any_member(rng: &mut fastrand::Rng) -> Member<'static> {
    let name = any(rng, &NAMES);
    let weight = Weight::new(any(rng, &WEIGHTS)).unwrap();
    let member = match rng.u8(..4) {
        0 => Member::new(Key::from_parts([name, "part"])),
        1 => Member::new(Key::secret(name)),
        _ => Member::new(name),
    };
    match rng.u8(..8) {
        0 => member.pinned(),
        _ => member.weight(weight),
    }
}

/// A request with one to three limits. Some have their own costs and members.
///
/// With `one_key` all limits are of one key: taking back a part of a share leaves its epoch behind.
fn any_request<'a>(rng: &mut fastrand::Rng, limits: &'a [Limit], one_key: bool) -> Request<'a> {
    let key = one_key.then(|| any(rng, &KEYS));
    let entry = |rng: &mut fastrand::Rng| {
        let key = key.unwrap_or_else(|| any(rng, &KEYS));
        let entry = RequestEntry::new(key, &limits[rng.usize(..limits.len())]);
        let entry = match rng.u8(..6) {
            0 => entry.with_cost(any(rng, &COSTS)),
            _ => entry,
        };
        match rng.u8(..6) {
            0 => entry.with_member(any_member(rng)),
            _ => entry,
        }
    };
    let mut request = Request::from_entry(entry(rng));
    for _ in 0..any(rng, &[0, 0, 0, 1, 1, 2]) {
        // A request cannot contain the same counter twice.
        request = request.clone().and_entry(entry(rng)).unwrap_or(request);
    }
    if rng.u8(..8) > 0 {
        request = request.member(any_member(rng));
    }
    if rng.u8(..8) > 0 {
        request = request.owner(any(rng, &NAMES));
    }
    let verbs = [
        Verb::Check,
        Verb::Check,
        Verb::Take,
        Verb::Reserve,
        Verb::Settle,
    ];
    let verb = match rng.u8(..3) {
        0 => any(rng, &Verb::ALL),
        _ => any(rng, &verbs),
    };
    // Few resets: they would keep traces short.
    let verb = match verb {
        Verb::Reset if rng.u8(..4) > 0 => Verb::Release,
        verb => verb,
    };
    if verb.needs_id() && rng.u8(..16) > 0 {
        request = request.id(any(rng, &NAMES));
    }
    request.verb(verb).cost(any(rng, &COSTS))
}

/// Time moves forward, by up to hours, so that epochs turn and reservations are forgotten.
pub(crate) fn random_traces_of_callers_are_decided_exactly<D: TestStore>(fresh: impl Fn() -> D) {
    let limits = limits();
    with_each_seed(|rng| {
        let mut store = fresh();
        let one_key = store.rolls_back();
        let next = |last: Option<&Decision>, now| {
            let now = match rng.u16(..400) {
                0 => now + rng.u64(..7_200_000_000),
                1..4 => now + rng.u64(..60_000_000),
                _ => later(rng, now, last),
            };
            (any_request(rng, &limits, one_key), now)
        };
        let steps = store.steps();
        run(&mut store, steps, next);
    });
}

/// Time steps back too.
pub(crate) fn clock_steps_back_for_callers_are_decided_exactly<D: TestStore>(
    fresh: impl Fn() -> D,
) {
    let limits = limits();
    with_each_seed(|rng| {
        let mut store = fresh();
        let one_key = store.rolls_back();
        let next = |last: Option<&Decision>, now: u64| {
            let request = any_request(rng, &limits, one_key);
            let span = request.entries()[0].limit.quota().span_us();
            let now = match rng.u32(..100) {
                0..6 => now - 1,
                6..10 => now - rng.u64(..2_000),
                10..12 if span < 10_000_000 => now - span,
                12..14 if span < 10_000_000 => now - span - 1,
                14 => now - 20_000_000,
                _ => later(rng, now, last),
            };
            (request, now.max(T0 / 2))
        };
        let steps = store.steps();
        run(&mut store, steps, next);
    });
}
