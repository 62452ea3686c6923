//! The golden traces: every field of every step, through the public API.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use tallygate_core::{Decision, Quota, State, Verb, Verdict, evaluate_all};

#[test]
fn every_step_of_every_golden_trace_is_decided_exactly() {
    let mut steps = 0;
    for line in include_str!("vectors.jsonl").lines() {
        let trace: Value = serde_json::from_str(line).unwrap();
        let quotas = quotas(&trace);
        let mut states = vec![State::New; quotas.len()];
        for (i, step) in trace["steps"].as_array().unwrap().iter().enumerate() {
            let decision = decide(&quotas, &mut states, step);
            let step_name = format!("{} step {i}", trace["id"]);
            compare(decision.verdict(), step, &step_name);
            if let Some(expected) = step.get("quotas") {
                for (k, verdict) in decision.verdicts().iter().enumerate() {
                    compare(verdict, &expected[k], &format!("{step_name} quota {k}"));
                }
            }
            steps += 1;
        }
    }
    assert!(steps > 400, "only {steps} steps were read");
}

fn quotas(trace: &Value) -> Vec<Quota> {
    let text = |v: &Value| v.as_str().unwrap().parse().unwrap();
    match trace.get("quota") {
        Some(quota) => vec![text(quota)],
        None => trace["quotas"]
            .as_array()
            .unwrap()
            .iter()
            .map(text)
            .collect(),
    }
}

fn decide(quotas: &[Quota], states: &mut [State], step: &Value) -> Decision {
    let verb = match step.get("verb") {
        Some(verb) => verb.as_str().unwrap().parse().unwrap(),
        None => Verb::Check,
    };
    let cost = step.get("cost").map_or(1, |cost| cost.as_u64().unwrap());
    let cost = cost.try_into().unwrap();
    let each = quotas.iter().zip(states);
    let mut limits: Vec<_> = each.map(|(quota, state)| (quota, state, cost)).collect();
    evaluate_all(&mut limits, verb, step["t_us"].as_u64().unwrap())
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
