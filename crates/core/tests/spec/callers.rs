//! Shares, concurrency limits and reservations: golden and random traces against the model, and
//! their properties.

use std::collections::HashMap;

use fastrand::Rng;
use serde_json::Value;
use tallygate_core::{
    Caller, Decision, Entry, MAX_MEMBERS, Quota, Reservation, Room, State, Verb, Weight,
    evaluate_all, evaluate_by, former_hold, restore_hold,
};
use tallygate_testkit::{any, with_each_seed};

use crate::compare_with_model::compare;
use crate::model::callers::{ModelCaller, ModelLimit, ModelRequest, decide_for};

const START: u64 = 1_700_000_000_000_000;
const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
const NAMES: [&str; 5] = ["", "a", "b", "c", "dd"];

/// The limits of a request in the core, with what they remember by id.
struct Limits {
    quotas: Vec<Quota>,
    states: Vec<State>,
    reserved: Vec<HashMap<&'static str, Reservation>>,
    model: Vec<ModelLimit>,
}

impl Limits {
    fn new(quotas: &[Quota]) -> Self {
        Limits {
            quotas: quotas.to_vec(),
            states: vec![State::New; quotas.len()],
            reserved: vec![HashMap::new(); quotas.len()],
            model: quotas.iter().map(ModelLimit::new).collect(),
        }
    }

    fn decide(&mut self, request: &ModelRequest, t: u64) -> Decision {
        let caller = Caller {
            member: number(request.caller.member),
            weight: Weight::new(request.caller.weight.try_into().unwrap()).unwrap(),
            owner: number(request.caller.owner),
            room: Room::Bounded,
        };
        let each = self.quotas.iter().zip(&mut self.states).zip(&self.reserved);
        let mut entries: Vec<Entry<'_>> = each
            .map(|((quota, state), reserved)| Entry {
                caller,
                reservation: reserved.get(request.id).copied(),
                ..Entry::new(quota, state, request.cost.try_into().unwrap())
            })
            .collect();
        let decision = evaluate_all(&mut entries, request.verb, t);
        if request.verb.needs_id() {
            let after: Vec<_> = entries.iter().map(|entry| entry.reservation).collect();
            for (reserved, after) in self.reserved.iter_mut().zip(after) {
                match after {
                    Some(after) => reserved.insert(request.id, after),
                    None => reserved.remove(request.id),
                };
            }
        }
        decision
    }

    /// Decides in both and compares every field.
    fn step(&mut self, request: &ModelRequest, t: u64) -> Result<Decision, String> {
        let decision = self.decide(request, t);
        let (combined, each) = decide_for(&mut self.model, request, t);
        compare(decision.verdict(), &combined).map_err(|e| format!("combined: {e}"))?;
        for (verdict, expected) in decision.verdicts().iter().zip(&each) {
            compare(verdict, expected)?;
        }
        Ok(decision)
    }
}

fn number(name: &str) -> u64 {
    name.bytes().fold(0, |n, byte| n << 8 | u64::from(byte))
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

#[test]
fn the_model_decides_every_golden_trace_of_callers_exactly() {
    let mut steps = 0;
    for line in include_str!("../vectors_next.jsonl").lines() {
        let trace: Value = serde_json::from_str(line).unwrap();
        let texts = match trace.get("quota") {
            Some(text) => std::slice::from_ref(text),
            None => trace["quotas"].as_array().unwrap(),
        };
        let quotas: Vec<Quota> = texts
            .iter()
            .map(|text| quota(text.as_str().unwrap()))
            .collect();
        let mut limits = Limits::new(&quotas);
        for (i, step) in trace["steps"].as_array().unwrap().iter().enumerate() {
            // Leaked: the model's names live as long as the test.
            let text = |name: &str| {
                let text = step.get(name).map_or("", |text| text.as_str().unwrap());
                &*Box::leak(text.to_owned().into_boxed_str())
            };
            let units = |name: &str| step.get(name).map_or(1, |n| n.as_u64().unwrap().into());
            let request = ModelRequest {
                verb: match text("verb") {
                    "" => Verb::Check,
                    verb => verb.parse().unwrap(),
                },
                cost: units("cost"),
                caller: ModelCaller {
                    member: text("member"),
                    weight: units("weight"),
                    owner: text("owner"),
                },
                id: text("id"),
            };
            let decided = limits.step(&request, step["t_us"].as_u64().unwrap());
            decided.unwrap_or_else(|e| panic!("{} step {i}: {e}", trace["id"]));
            steps += 1;
        }
    }
    assert!(steps > 280);
}

fn any_quota(rng: &mut Rng) -> Quota {
    loop {
        let (limit, burst) = (
            any(rng, &[1, 3, 7, 10, 100, 999_999_937]),
            any(rng, &[4, 5, 9, 16, 1_000]),
        );
        let period = any(rng, &["s", "min", "250ms", "7ms", "h", "d"]);
        let text = match rng.u8(..12) {
            0..5 => {
                let least = any(rng, &[1, burst / 4, burst / 5 + 1]);
                let bucket = any(rng, &["token-bucket", "leaky-bucket"]);
                format!("{bucket} {limit}/{period} burst {burst} shared {least}")
            }
            5..8 => {
                let hold = any(rng, &["1s", "30s", "1min", "24h"]);
                format!("concurrent {} for {hold}", any(rng, &[1, 2, 3, 10, 10_000]))
            }
            8 => format!("fixed-window {burst}/{period}"),
            9 => format!("sliding-window-log {burst}/{period}"),
            10 => format!("{burst}/{period}"),
            _ => {
                let keyword = any(rng, &["burst", "queue"]);
                format!("leaky-bucket {limit}/{period} {keyword} {burst}")
            }
        };
        // Some full drains are too long to be shared, and some units too many.
        if let Ok(quota) = text.parse() {
            return quota;
        }
    }
}

fn any_request(rng: &mut Rng, quotas: &[Quota]) -> ModelRequest {
    let capacity = quotas[rng.usize(..quotas.len())].capacity();
    let costs = [
        0,
        1,
        1,
        1,
        2,
        3,
        capacity / 4,
        capacity / 2,
        capacity,
        capacity + 1,
    ];
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
    ModelRequest {
        verb: match verb {
            Verb::Reset if rng.u8(..4) > 0 => Verb::Renew,
            verb => verb,
        },
        cost: any(rng, &costs).into(),
        caller: ModelCaller {
            member: any(rng, &NAMES),
            weight: any(rng, &[1, 1, 1, 4, 1_000]),
            owner: any(rng, &NAMES),
        },
        id: any(rng, &NAMES),
    }
}

/// Mostly forward by a little, sometimes around a span, an epoch or an hour, sometimes back.
fn any_time(rng: &mut Rng, quotas: &[Quota], t: u64) -> u64 {
    let span = quotas[rng.usize(..quotas.len())].span_us();
    let forward = [
        0,
        0,
        1,
        2,
        span / 100,
        span / 10,
        span / 3,
        span - 1,
        span,
        span + 1,
        HOUR,
    ];
    let back = [1, span / 2, span, span + 1];
    match rng.u8(..10) {
        0 => t.saturating_sub(any(rng, &back)),
        1 => t.saturating_sub(rng.u64(..=span / 10)),
        2 => t + rng.u64(..=2 * span),
        _ => t + any(rng, &forward),
    }
}

#[test]
fn random_traces_of_callers_are_decided_as_by_the_model() {
    with_each_seed(|rng| {
        for _ in 0..150 {
            let quotas: Vec<Quota> = (0..any(rng, &[1, 1, 1, 2, 3]))
                .map(|_| any_quota(rng))
                .collect();
            let mut limits = Limits::new(&quotas);
            let mut t = START;
            let mut steps = Vec::new();
            for _ in 0..60 {
                t = any_time(rng, &quotas, t);
                let request = any_request(rng, &quotas);
                steps.push((t, request));
                if let Err(difference) = limits.step(&request, t) {
                    let quotas: Vec<String> = quotas.iter().map(Quota::to_string).collect();
                    panic!("{quotas:?}\n{steps:#?}\n{difference}");
                }
            }
        }
    });
}

fn by(member: u64, weight: u32) -> Caller {
    Caller {
        member,
        weight: Weight::new(weight).unwrap(),
        ..Caller::NONE
    }
}

/// Whatever members do: the root's worst case holds.
#[test]
fn a_shared_bucket_admits_no_more_than_an_unshared_one_could() {
    with_each_seed(|rng| {
        let shared = quota("token-bucket 50/s burst 100 shared 4");
        let mut state = State::New;
        let mut bound = State::New;
        let unshared = quota("leaky-bucket 50/s burst 100");
        let mut t = START;
        for _ in 0..5_000 {
            t += rng.u64(..40_000);
            let caller = by(rng.u64(..30), any(rng, &[1, 1, 4, 1_000]));
            let cost = any(rng, &[1, 1, 1, 5, 30]);
            let verb = any(rng, &[Verb::Check, Verb::Take]);
            let granted = evaluate_by(&shared, &mut state, &caller, verb, cost, t).granted();
            if granted > 0 {
                let fits = evaluate_by(
                    &unshared,
                    &mut bound,
                    &Caller::NONE,
                    Verb::Check,
                    granted,
                    t,
                );
                assert!(fits.allowed(), "{granted} more at {t}");
            }
        }
    });
}

/// Exact: it fits after the retry, and not a microsecond earlier.
#[test]
fn the_retry_of_a_member_is_least_and_enough() {
    with_each_seed(|rng| {
        let mut refused = 0;
        let quota = quota("token-bucket 7/s burst 40 shared 4");
        let mut state = State::New;
        let mut t = START;
        for _ in 0..2_000 {
            t += rng.u64(..300_000);
            let caller = by(rng.u64(..6), any(rng, &[1, 1, 3]));
            let cost = rng.u32(1..=40);
            let verdict = evaluate_by(&quota, &mut state, &caller, Verb::Check, cost, t);
            let Some(wait) = verdict.retry_after_us() else {
                continue;
            };
            refused += 1;
            for (at, fits) in [(t + wait - 1, false), (t + wait, true)] {
                let peek = evaluate_by(&quota, &mut state.clone(), &caller, Verb::Peek, cost, at);
                assert_eq!(peek.allowed(), fits, "{cost} at {at}");
            }
        }
        assert!(refused > 500, "{refused}");
    });
}

#[test]
fn members_beyond_the_bound_of_an_epoch_only_borrow_unless_they_are_named() {
    let quota = quota("token-bucket 100000/s burst 100000 shared 1");
    let mut state = State::New;
    for member in 0..u64::from(MAX_MEMBERS) {
        assert!(evaluate_by(&quota, &mut state, &by(member, 1), Verb::Check, 1, START).allowed());
    }
    let peek = |state: &State, caller: &Caller| {
        evaluate_by(&quota, &mut state.clone(), caller, Verb::Peek, 0, START).remaining
    };
    let late = by(1 << 40, 1);
    let named = Caller {
        room: Room::Always,
        ..late
    };
    assert_eq!(peek(&state, &late), 90_000 - 25_000);
    evaluate_by(&quota, &mut state, &late, Verb::Check, 60_000, START);
    assert_eq!(state.callers(), 10_000);
    // Of the remaining 30,000, only what is above the reserve.
    assert_eq!(peek(&state, &late), 5_000);
    assert_eq!(peek(&state, &by(1, 1)), 5_000);
    evaluate_by(&quota, &mut state, &named, Verb::Check, 1, START);
    assert_eq!(state.callers(), 10_001);
}

#[test]
fn without_room_a_new_member_only_borrows_and_a_new_owner_is_refused() {
    let full = |caller: Caller| Caller {
        room: Room::Full,
        ..caller
    };
    let shared = quota("token-bucket 10/s burst 16 shared 4");
    let mut state = State::New;
    evaluate_by(&shared, &mut state, &by(1, 1), Verb::Check, 1, START);
    let newcomer = evaluate_by(&shared, &mut state, &full(by(2, 1)), Verb::Take, 16, START);
    assert_eq!((newcomer.granted(), state.callers()), (11, 1));

    let concurrent = quota("concurrent 3 for 30s");
    let owner = |owner| Caller {
        owner,
        ..Caller::NONE
    };
    let mut state = State::New;
    evaluate_by(&concurrent, &mut state, &owner(1), Verb::Check, 1, START);
    let mut check =
        |caller: Caller, t| evaluate_by(&concurrent, &mut state, &caller, Verb::Check, 1, t);
    assert!(check(full(owner(1)), START + SECOND).allowed());
    let refused = check(full(owner(2)), START + 2 * SECOND);
    assert_eq!(refused.retry_after_us(), Some(29 * SECOND));
    assert_eq!(refused.remaining, 2);
}

#[test]
fn a_changed_limit_forgets_the_members_and_keeps_the_used_units() {
    let before = quota("token-bucket 10/s burst 16 shared 4");
    let after = quota("token-bucket 20/s burst 16 shared 4");
    let mut state = State::New;
    for member in 1..=3 {
        evaluate_by(&before, &mut state, &by(member, 1), Verb::Check, 2, START);
    }
    // Alone again, with 10 of 16 left.
    let peek = evaluate_by(&after, &mut state, &by(9, 1), Verb::Peek, 10, START);
    assert!(peek.allowed());
    assert_eq!(peek.remaining, 10);
    evaluate_by(&after, &mut state, &by(9, 1), Verb::Check, 1, START);
    assert_eq!(state.callers(), 1);
}

#[test]
fn thousands_of_owners_hold_renew_and_release_in_any_order() {
    with_each_seed(|rng| {
        let quota = quota("concurrent 10000 for 30s");
        let mut state = State::New;
        let mut expected: HashMap<u64, (u32, u64)> = HashMap::new();
        let mut t = START;
        for _ in 0..20_000 {
            t += rng.u64(..10_000);
            let owner = rng.u64(..2_000);
            let caller = Caller {
                owner,
                ..Caller::NONE
            };
            let verb = any(rng, &[Verb::Check, Verb::Check, Verb::Renew, Verb::Release]);
            expected.retain(|_, (_, until)| *until > t);
            let units = rng.u32(1..4);
            let verdict = evaluate_by(&quota, &mut state, &caller, verb, units, t);
            let until = t + 30 * SECOND;
            let held = expected.get(&owner).copied();
            match verb {
                Verb::Check => {
                    expected.insert(owner, (units, until));
                }
                Verb::Renew => {
                    assert_eq!(verdict.allowed(), held.is_some());
                    if let Some((units, _)) = held {
                        assert_eq!(verdict.granted(), units);
                        expected.insert(owner, (units, until));
                    }
                }
                _ => {
                    expected.remove(&owner);
                }
            }
            let held: u32 = expected.values().map(|(units, _)| units).sum();
            assert_eq!(verdict.remaining, 10_000 - held);
            let last = expected.values().map(|(_, until)| until - t).max();
            assert_eq!(verdict.reset_after_us, last.unwrap_or(0));
        }
    });
}

#[test]
fn a_hold_that_is_taken_back_is_what_it_was_before() {
    let quota = quota("concurrent 10 for 30s");
    let owner = |owner| Caller {
        owner,
        ..Caller::NONE
    };
    let mut state = State::New;
    evaluate_by(&quota, &mut state, &owner(1), Verb::Check, 2, START);
    evaluate_by(
        &quota,
        &mut state,
        &owner(2),
        Verb::Check,
        3,
        START + SECOND,
    );
    let (before, t) = (state.clone(), START + 2 * SECOND);
    for (caller, verb) in [
        (owner(1), Verb::Check),
        (owner(2), Verb::Renew),
        (owner(3), Verb::Check),
    ] {
        let former = former_hold(&quota, &state, &caller, t);
        evaluate_by(&quota, &mut state, &caller, verb, 5, t);
        assert_ne!(state, before);
        assert!(restore_hold(&mut state, &caller, former));
        assert_eq!(state, before);
        assert!(
            !restore_hold(&mut state, &caller, former),
            "nothing is left to restore"
        );
    }
    // In the order of the ends again: the next to end is the first.
    let refused = evaluate_by(&quota, &mut state, &owner(4), Verb::Check, 6, t);
    assert_eq!(refused.retry_after_us(), Some(28 * SECOND));
}
