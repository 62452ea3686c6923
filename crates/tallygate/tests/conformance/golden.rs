//! The golden traces: every field of every step, through the public API.

use serde_json::Value;
use tallygate::store::Verdict;
use tallygate::{Decision, Limit, Request, Retry, Verb};

use super::TestStore;

/// Runs every golden trace, each on a fresh store.
pub(crate) fn golden_traces_are_decided_exactly<D: TestStore>(fresh: impl FnMut() -> D) {
    let traces = include_str!("../../../core/tests/vectors.jsonl");
    assert!(run_golden(traces, fresh, nameless_request) > 400);
}

fn nameless_request<'a>(_: &'a Value, limits: &'a [Limit]) -> Request<'a> {
    Request::with_limits("golden", limits).unwrap()
}

/// Returns the number of steps. `request` makes the request of a step, but for its verb and cost.
pub(super) fn run_golden<D: TestStore>(
    traces: &str,
    mut fresh: impl FnMut() -> D,
    request: impl for<'a> Fn(&'a Value, &'a [Limit]) -> Request<'a>,
) -> usize {
    let mut steps = 0;
    for line in traces.lines() {
        let trace: Value = serde_json::from_str(line).unwrap();
        let limits = limits(&trace);
        let mut store = fresh();
        for (i, step) in trace["steps"].as_array().unwrap().iter().enumerate() {
            let verb = step.get("verb").map_or(Verb::Check, verb);
            let cost = step.get("cost").map_or(1, |cost| cost.as_u64().unwrap());
            let request = request(step, &limits)
                .verb(verb)
                .cost(cost.try_into().unwrap());
            let decision = store.decide(&request, step["t_us"].as_u64().unwrap());
            let step_name = format!("{} step {i}", trace["id"]);
            compare(&decision_fields(&decision), step, &step_name);
            assert!(!decision.shared(), "{step_name} was shared");
            if let Some(expected) = step.get("quotas") {
                for (k, verdict) in decision.verdicts().iter().enumerate() {
                    compare(
                        &verdict_fields(verdict),
                        &expected[k],
                        &format!("{step_name} quota {k}"),
                    );
                }
            }
            steps += 1;
        }
    }
    steps
}

fn verb(word: &Value) -> Verb {
    word.as_str().unwrap().parse().unwrap()
}

/// Named by position, as in replay.
fn limits(trace: &Value) -> Vec<Limit> {
    let one = [trace["quota"].clone()];
    let quotas = trace
        .get("quotas")
        .map_or(&one[..], |list| list.as_array().unwrap());
    let limit = |(i, text): (usize, &Value)| {
        Limit::named(i.to_string(), text.as_str().unwrap().parse().unwrap())
    };
    quotas.iter().enumerate().map(limit).collect()
}

fn decision_fields(decision: &Decision) -> Value {
    let retry = decision.retry_after().and_then(Retry::duration);
    serde_json::json!({
        "allowed": decision.allowed(),
        "granted": decision.granted(),
        "limit": decision.limit(),
        "remaining": decision.remaining(),
        "retry_after_us": retry.map(|wait| wait.as_micros() as u64),
        "reset_after_us": decision.reset_after().as_micros() as u64,
        "delay_us": decision.delay().as_micros() as u64,
    })
}

fn verdict_fields(verdict: &Verdict) -> Value {
    serde_json::json!({
        "allowed": verdict.allowed(),
        "granted": verdict.granted(),
        "limit": verdict.limit,
        "remaining": verdict.remaining,
        "retry_after_us": verdict.retry_after_us(),
        "reset_after_us": verdict.reset_after_us,
        "delay_us": verdict.delay_us(),
    })
}

fn compare(fields: &Value, expected: &Value, step_name: &str) {
    for (name, value) in fields.as_object().unwrap() {
        assert_eq!(value, &expected[name], "{name} of {step_name}");
    }
}
