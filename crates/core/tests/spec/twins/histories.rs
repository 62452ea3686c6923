//! Every short history over tiny quotas, Lua against Rust.

use tallygate_core::{Quota, State, Verb, evaluate};
use tallygate_testkit::resp::Reply;

use super::{Both, Call, Counter, stored};

/// A whole window number for every period below, so that edges are edges.
const BEGIN: u64 = 1_700_000_000_000_000 / 6_000 * 6_000;

/// The next request: how much later (or earlier), what, how much.
type Letter = (i64, Verb, u32);

/// Where a history has come to.
struct Node {
    state: State,
    raw: Reply,
    now: u64,
}

fn explore(text: &str, letters: impl Fn(&Quota) -> Vec<Letter>, length: usize) {
    let quota: Quota = text.parse().unwrap();
    let letters = letters(&quota);
    // A counter for each letter: a round trip tries them all.
    let mut both = Both::new(letters.iter().map(|_| Counter::new(quota)));
    let begin = Node {
        state: State::New,
        raw: Reply::Nil,
        now: BEGIN,
    };
    go_on(&mut both, &letters, length, &begin);
}

fn go_on(both: &mut Both, letters: &[Letter], length: usize, node: &Node) {
    let mut calls = Vec::new();
    for (i, &(dt, verb, cost)) in letters.iter().enumerate() {
        let counter = &mut both.counters[i];
        counter.state = node.state.clone();
        counter.path.clear();
        let restored = match &node.raw {
            Reply::Bulk(raw) => vec![&b"SET"[..], &counter.key, raw],
            _ => vec![&b"DEL"[..], &counter.key],
        };
        both.scripts.connection.send(&restored).unwrap();
        let t = node.now.checked_add_signed(dt).unwrap();
        calls.push(Call::one(i, t, verb, cost));
    }
    for _ in letters {
        both.scripts.receive();
    }
    both.make(&calls);
    if length == 1 {
        return;
    }
    for counter in &both.counters {
        let get = [&b"GET"[..], &counter.key];
        both.scripts.connection.send(&get).unwrap();
    }
    let next: Vec<Node> = calls
        .iter()
        .enumerate()
        .map(|(i, call)| Node {
            state: both.counters[i].state.clone(),
            raw: both.scripts.receive(),
            now: call.t,
        })
        .collect();
    for node in next {
        go_on(both, letters, length - 1, &node);
    }
}

/// Requests that matter, at the edges of the period.
fn few(quota: &Quota) -> Vec<Letter> {
    let span = i64::try_from(quota.span_us()).unwrap();
    let period = i64::try_from(quota.period_us()).unwrap();
    let most = quota.capacity();
    let mut letters = Vec::new();
    for dt in [0, 1, period - 1, -1] {
        letters.push((dt, Verb::Check, 1));
        letters.push((dt, Verb::Refund, 1));
    }
    letters.extend([
        (0, Verb::Charge, most + 1),
        (span, Verb::Charge, most + 1),
        (0, Verb::Take, most),
        (period, Verb::Check, most),
        (-span, Verb::Check, 1),
        (-span - 1, Verb::Refund, 1),
    ]);
    letters
}

/// All verbs and awkward costs.
fn many(quota: &Quota) -> Vec<Letter> {
    let span = i64::try_from(quota.span_us()).unwrap();
    let period = i64::try_from(quota.period_us()).unwrap();
    let most = quota.capacity();
    let mut letters = few(quota);
    for verb in Verb::ALL {
        letters.push((1, verb, 0));
        for dt in [0, 1, period + 1, -1, -period] {
            letters.push((dt, verb, 1));
        }
    }
    for dt in [0, span - 1, span, 2 * period, -span, -span - 1] {
        letters.push((dt, Verb::Take, most + 1));
        letters.push((dt, Verb::Charge, 2 * most + 1));
    }
    letters
}

#[test]
fn every_short_history_on_windows_agrees() {
    for text in ["fixed-window 1/ms", "fixed-window 3/2ms", "2/ms", "3/3ms"] {
        explore(text, few, 4);
        explore(text, many, 2);
    }
}

#[test]
fn every_short_history_on_a_log_agrees() {
    for text in ["sliding-window-log 1/ms", "sliding-window-log 3/2ms"] {
        explore(text, few, 4);
        explore(text, many, 2);
    }
}

#[test]
fn every_short_history_on_buckets_agrees() {
    for text in [
        "token-bucket 3/ms burst 2",
        "gcra 1/3ms burst 1",
        "leaky-bucket 3/2ms burst 3",
        "leaky-bucket 2/3ms queue 1",
    ] {
        explore(text, few, 4);
        explore(text, many, 2);
    }
}

/// What the comparisons rest on: a state is shown the same whoever keeps it.
#[test]
fn a_stored_state_is_shown_as_rust_shows_it() {
    let quota: Quota = "sliding-window-log 5/s".parse().unwrap();
    let (mut scripts, mut state) = (super::Scripts::connect(), State::New);
    let key = super::any_key();
    for t in [7, 9] {
        scripts.decide(&key, &quota, (Verb::Check, 2), Some(t));
        evaluate(&quota, &mut state, Verb::Check, 2, t);
    }
    let raw = scripts.command(&[b"GET", &key[..]]);
    assert_eq!(
        stored::shown(&raw, &quota),
        "Log(until 1000009 {2: 2, 0: 2})"
    );
    assert_eq!(format!("{state:?}"), "Log(until 1000009 {2: 2, 0: 2})");
}
