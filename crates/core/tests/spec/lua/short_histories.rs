//! Every short history over tiny quotas, Lua against Rust.

use tallygate_core::{Quota, State, Verb, evaluate};
use tallygate_testkit::resp::Reply;

use super::{Call, Counter, RustAndLua, stored_state};

/// A window boundary of every period below.
const START: u64 = 1_700_000_000_000_000 / 6_000 * 6_000;

/// A request: the time since the one before (may be negative), the verb and the cost.
type RelativeStep = (i64, Verb, u32);

/// The end of a history.
struct Node {
    state: State,
    raw: Reply,
    now: u64,
}

fn explore(text: &str, steps: impl Fn(&Quota) -> Vec<RelativeStep>, length: usize) {
    let quota: Quota = text.parse().unwrap();
    let steps = steps(&quota);
    // One counter per step, so that one round trip tries all.
    let mut both = RustAndLua::new(steps.iter().map(|_| Counter::new(quota)));
    let start = Node {
        state: State::New,
        raw: Reply::Nil,
        now: START,
    };
    explore_from(&mut both, &steps, length, &start);
}

fn explore_from(both: &mut RustAndLua, steps: &[RelativeStep], length: usize, node: &Node) {
    let mut calls = Vec::new();
    for (i, &(dt, verb, cost)) in steps.iter().enumerate() {
        let counter = &mut both.counters[i];
        counter.state = node.state.clone();
        counter.path.clear();
        let restored = match &node.raw {
            Reply::Bulk(raw) => vec![&b"SET"[..], &counter.key, raw],
            _ => vec![&b"DEL"[..], &counter.key],
        };
        both.scripts.connection.send(&restored).unwrap();
        let t = node.now.checked_add_signed(dt).unwrap();
        calls.push(Call::single(i, t, verb, cost));
    }
    for _ in steps {
        both.scripts.receive();
    }
    both.run(&calls);
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
        explore_from(both, steps, length - 1, &node);
    }
}

/// Requests at the boundaries of the period.
fn boundary_steps(quota: &Quota) -> Vec<RelativeStep> {
    let span = i64::try_from(quota.span_us()).unwrap();
    let period = i64::try_from(quota.period_us()).unwrap();
    let capacity = quota.capacity();
    let mut steps = Vec::new();
    for dt in [0, 1, period - 1, -1] {
        steps.push((dt, Verb::Check, 1));
        steps.push((dt, Verb::Refund, 1));
    }
    steps.extend([
        (0, Verb::Charge, capacity + 1),
        (span, Verb::Charge, capacity + 1),
        (0, Verb::Take, capacity),
        (period, Verb::Check, capacity),
        (-span, Verb::Check, 1),
        (-span - 1, Verb::Refund, 1),
    ]);
    steps
}

/// All verbs and more costs.
fn all_steps(quota: &Quota) -> Vec<RelativeStep> {
    let span = i64::try_from(quota.span_us()).unwrap();
    let period = i64::try_from(quota.period_us()).unwrap();
    let capacity = quota.capacity();
    let mut steps = boundary_steps(quota);
    for verb in Verb::BASIC {
        steps.push((1, verb, 0));
        for dt in [0, 1, period + 1, -1, -period] {
            steps.push((dt, verb, 1));
        }
    }
    for dt in [0, span - 1, span, 2 * period, -span, -span - 1] {
        steps.push((dt, Verb::Take, capacity + 1));
        steps.push((dt, Verb::Charge, 2 * capacity + 1));
    }
    steps
}

#[test]
fn every_short_history_on_windows_agrees() {
    for text in ["fixed-window 1/ms", "fixed-window 3/2ms", "2/ms", "3/3ms"] {
        explore(text, boundary_steps, 4);
        explore(text, all_steps, 2);
    }
}

#[test]
fn every_short_history_on_a_log_agrees() {
    for text in ["sliding-window-log 1/ms", "sliding-window-log 3/2ms"] {
        explore(text, boundary_steps, 4);
        explore(text, all_steps, 2);
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
        explore(text, boundary_steps, 4);
        explore(text, all_steps, 2);
    }
}

/// The comparisons rely on this.
#[test]
fn a_stored_state_is_formatted_like_the_rust_state() {
    let quota: Quota = "sliding-window-log 5/s".parse().unwrap();
    let (mut scripts, mut state) = (super::Scripts::connect(), State::New);
    let key = super::unique_key();
    for t in [7, 9] {
        scripts.decide(&key, &quota, (Verb::Check, 2), Some(t));
        evaluate(&quota, &mut state, Verb::Check, 2, t);
    }
    let raw = scripts.command(&[b"GET", &key[..]]);
    assert_eq!(
        stored_state::format(&raw, &quota),
        "Log(until 1000009 {2: 2, 0: 2})"
    );
    assert_eq!(format!("{state:?}"), "Log(until 1000009 {2: 2, 0: 2})");
}
