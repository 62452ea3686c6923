//! The golden traces, decided by the scripts.

use std::collections::HashSet;

use serde_json::{Value, json};
use tallygate_core::Verdict;
use tallygate_core::lua::Operation;

use super::{Call, Request, RustAndLua, Who};

#[test]
fn every_step_of_every_golden_trace_is_decided_exactly() {
    let mut steps = 0;
    for line in include_str!("../../../vectors_next.jsonl").lines() {
        let trace: Value = serde_json::from_str(line).unwrap();
        let texts = match trace.get("quota") {
            Some(quota) => std::slice::from_ref(quota),
            None => trace["quotas"].as_array().unwrap(),
        };
        let quotas = texts
            .iter()
            .map(|text| text.as_str().unwrap().parse().unwrap());
        let mut both = RustAndLua::new(quotas);
        let keys: HashSet<&Value> = steps_of(&trace).iter().map(|step| &step["key"]).collect();
        assert!(keys.len() <= 1, "{}", trace["id"]);
        for (i, step) in steps_of(&trace).iter().enumerate() {
            let name = format!("{} step {i}", trace["id"]);
            let decision = both
                .run(&call(step, both.counters.len()))
                .remove(0)
                .unwrap();
            compare(decision.verdict(), step, &name);
            let expected = step.get("quotas").and_then(Value::as_array);
            for (verdict, expected) in decision
                .verdicts()
                .iter()
                .zip(expected.into_iter().flatten())
            {
                compare(verdict, expected, &name);
            }
            steps += 1;
        }
    }
    assert!(steps > 280, "only {steps} steps were read");
}

fn steps_of(trace: &Value) -> &[Value] {
    trace["steps"].as_array().unwrap()
}

fn call(step: &Value, limits: usize) -> Call {
    let text = |name: &str| -> &'static [u8] {
        let text = step.get(name).map_or("", |text| text.as_str().unwrap());
        // A few short names in all.
        text.as_bytes().to_vec().leak()
    };
    let number = |name: &str| step.get(name).map_or(1, |n| n.as_u64().unwrap());
    let cost = number("cost").try_into().unwrap();
    let verb = step
        .get("verb")
        .map_or("check", |verb| verb.as_str().unwrap());
    let request = Request {
        operation: Operation::Verb(verb.parse().unwrap()),
        limits: (0..limits).map(|at| (at, cost)).collect(),
        who: Who {
            member: text("member"),
            weight: number("weight").try_into().unwrap(),
            has_place: false,
            // A name must not be empty.
            owner: [b"o", text("owner")].concat().leak(),
            id: text("id"),
        },
    };
    Call {
        t: step["t_us"].as_u64().unwrap(),
        requests: vec![request],
    }
}

fn compare(verdict: &Verdict, expected: &Value, step_name: &str) {
    let actual = json!([
        verdict.allowed(),
        verdict.granted(),
        verdict.limit,
        verdict.remaining,
        verdict.retry_after_us(),
        verdict.reset_after_us,
        verdict.delay_us(),
    ]);
    let names = [
        "allowed",
        "granted",
        "limit",
        "remaining",
        "retry_after_us",
        "reset_after_us",
        "delay_us",
    ];
    let expected: Vec<&Value> = names.iter().map(|name| &expected[name]).collect();
    assert_eq!(actual, json!(expected), "{step_name}");
}
