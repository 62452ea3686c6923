//! The golden traces: every field of every step, through the public API.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use serde_json::Value;
use tallygate_core::{
    Caller, Decision, Entry, Quota, Reservation, State, Verb, Verdict, Weight, evaluate_all,
};

#[test]
fn every_step_of_every_golden_trace_is_decided_exactly() {
    assert!(decide_all(include_str!("vectors.jsonl")) > 400);
}

#[test]
fn every_step_with_callers_and_reservations_is_decided_exactly() {
    assert!(decide_all(include_str!("vectors_next.jsonl")) > 280);
}

/// Returns the number of steps.
fn decide_all(traces: &str) -> usize {
    let mut steps = 0;
    for line in traces.lines() {
        let trace: Value = serde_json::from_str(line).unwrap();
        let mut limits = quotas(&trace).map(Limit::new).collect::<Vec<_>>();
        for (i, step) in trace["steps"].as_array().unwrap().iter().enumerate() {
            let decision = decide(&mut limits, step);
            let step_name = format!("{} step {i}", trace["id"]);
            compare(decision.verdict(), step, &step_name);
            if let Some(expected) = step.get("quotas") {
                for (k, verdict) in decision.verdicts().iter().enumerate() {
                    compare(verdict, &expected[k], &format!("{step_name} quota {k}"));
                    let text = &expected[k]["quota"];
                    assert_eq!(*text, limits[k].quota.to_string(), "{step_name}");
                }
            }
            steps += 1;
        }
    }
    steps
}

/// The counter of one limit and what it remembers by id.
struct Limit {
    quota: Quota,
    state: State,
    reserved: HashMap<String, Reservation>,
}

impl Limit {
    fn new(quota: Quota) -> Self {
        Limit {
            quota,
            state: State::New,
            reserved: HashMap::new(),
        }
    }
}

fn quotas(trace: &Value) -> impl Iterator<Item = Quota> {
    let texts = match trace.get("quota") {
        Some(quota) => std::slice::from_ref(quota),
        None => trace["quotas"].as_array().unwrap(),
    };
    texts
        .iter()
        .map(|text| text.as_str().unwrap().parse().unwrap())
}

fn decide(limits: &mut [Limit], step: &Value) -> Decision {
    let text = |name: &str| step.get(name).map_or("", |text| text.as_str().unwrap());
    let number = |name: &str| step.get(name).map_or(1, |n| n.as_u64().unwrap());
    let verb: Verb = match text("verb") {
        "" => Verb::Check,
        verb => verb.parse().unwrap(),
    };
    let caller = Caller {
        member: id(text("member")),
        weight: Weight::new(number("weight").try_into().unwrap()).unwrap(),
        owner: id(text("owner")),
        ..Caller::default()
    };
    let mut entries = Vec::new();
    let mut reserved = Vec::new();
    for Limit {
        quota,
        state,
        reserved: ids,
    } in limits
    {
        entries.push(Entry {
            cost: number("cost").try_into().unwrap(),
            caller,
            reservation: ids.get(text("id")).copied(),
            ..Entry::new(quota, state, 0)
        });
        reserved.push(ids);
    }
    let decision = evaluate_all(&mut entries, verb, step["t_us"].as_u64().unwrap());
    for (entry, ids) in entries.iter().zip(reserved) {
        match entry.reservation {
            Some(reservation) => ids.insert(text("id").to_owned(), reservation),
            None => ids.remove(text("id")),
        };
    }
    decision
}

/// A number for a name of a trace.
fn id(name: &str) -> u64 {
    name.bytes().fold(0, |id, byte| id << 8 | u64::from(byte))
}

fn compare(verdict: &Verdict, expected: &Value, step_name: &str) {
    let fields = serde_json::json!({
        "allowed": verdict.allowed(),
        "granted": verdict.granted(),
        "limit": verdict.limit,
        "remaining": verdict.remaining,
        "retry_after_us": verdict.retry_after_us(),
        "reset_after_us": verdict.reset_after_us,
        "delay_us": verdict.delay_us(),
    });
    for (name, value) in fields.as_object().unwrap() {
        assert_eq!(value, &expected[name], "{name} of {step_name}");
    }
}
