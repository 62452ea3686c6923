//! Compares every field of the decisions of the core and of the model.

use std::fmt;

use serde_json::Value;
use tallygate_core::{Decision, Entry, Quota, State, Verb, Verdict, evaluate, evaluate_all};

use crate::model::{ModelState, ModelVerdict, WideQuota, bind, decide};

/// One request.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) t: u64,
    pub(crate) verb: Verb,
    pub(crate) cost: u32,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n  t={} {} {}", self.t, self.verb, self.cost)
    }
}

/// A counter in the core and in the model.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) state: State,
    pub(crate) model_state: ModelState,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Pair {
            state: State::New,
            model_state: ModelState::New,
        }
    }

    /// Decides a request in both and compares.
    pub(crate) fn step(&mut self, quota: &Quota, step: Step) -> Result<Verdict, String> {
        let Step { t, verb, cost } = step;
        let verdict = evaluate(quota, &mut self.state, verb, cost, t);
        let verdicts = decide(
            &mut [(WideQuota::from(quota), &mut self.model_state, cost)],
            verb,
            t,
        );
        compare(&verdict, &verdicts[0])?;
        self.both_new_or_neither()?;
        Ok(verdict)
    }

    /// The time of the counter in the model.
    pub(crate) fn mark(&self) -> Option<u64> {
        let mark = self.model_state.mark()?;
        Some(mark.try_into().unwrap())
    }

    fn both_new_or_neither(&self) -> Result<(), String> {
        if (self.state == State::New) == (self.model_state == ModelState::New) {
            return Ok(());
        }
        let (state, model_state) = (&self.state, &self.model_state);
        Err(format!("expected {model_state:?}, got {state:?}"))
    }
}

/// Decides a request over several counters with a cost each, and compares every verdict and the
/// combined one.
pub(crate) fn step_all(
    quotas: &[Quota],
    pairs: &mut [Pair],
    costs: &[u32],
    verb: Verb,
    t: u64,
) -> Result<Decision, String> {
    let (mut states, mut model_states) = (Vec::new(), Vec::new());
    for ((quota, pair), &cost) in quotas.iter().zip(pairs.iter_mut()).zip(costs) {
        states.push(Entry::new(quota, &mut pair.state, cost));
        model_states.push((WideQuota::from(quota), &mut pair.model_state, cost));
    }
    let decision = evaluate_all(&mut states, verb, t);
    let verdicts = decide(&mut model_states, verb, t);
    for (i, (verdict, expected)) in decision.verdicts().iter().zip(&verdicts).enumerate() {
        compare(verdict, expected).map_err(|e| format!("limit {i}: {e}"))?;
    }
    let (binding, combined) = bind(&verdicts);
    compare(decision.verdict(), &combined).map_err(|e| format!("combined: {e}"))?;
    if decision.binding() != binding {
        let got = decision.binding();
        return Err(format!("binding: expected {binding}, got {got}"));
    }
    pairs.iter().try_for_each(Pair::both_new_or_neither)?;
    Ok(decision)
}

pub(crate) fn compare(verdict: &Verdict, expected: &ModelVerdict) -> Result<(), String> {
    let got = ModelVerdict {
        retry: verdict.retry(),
        granted: verdict.granted().into(),
        limit: verdict.limit.into(),
        remaining: verdict.remaining.into(),
        reset_after: verdict.reset_after_us.into(),
        delay: verdict.delay_us().into(),
    };
    if got == *expected {
        return Ok(());
    }
    Err(format!("\n  expected {expected:?}\n  got      {got:?}"))
}

#[test]
fn the_model_decides_every_golden_trace_exactly() {
    for line in include_str!("../vectors.jsonl").lines() {
        let trace: Value = serde_json::from_str(line).unwrap();
        let texts: Vec<&Value> = match trace.get("quota") {
            Some(text) => vec![text],
            None => trace["quotas"].as_array().unwrap().iter().collect(),
        };
        let quotas: Vec<Quota> = texts
            .iter()
            .map(|text| text.as_str().unwrap().parse().unwrap())
            .collect();
        let mut model_states = vec![ModelState::New; quotas.len()];
        for (i, step) in trace["steps"].as_array().unwrap().iter().enumerate() {
            let step_name = format!("{} step {i}", trace["id"]);
            let verb = step.get("verb").map_or("check", |v| v.as_str().unwrap());
            let cost = step.get("cost").map_or(1, |c| c.as_u64().unwrap());
            let cost = cost.try_into().unwrap();
            let counters = quotas.iter().zip(&mut model_states);
            let mut limits: Vec<_> = counters
                .map(|(quota, model_state)| (WideQuota::from(quota), model_state, cost))
                .collect();
            let t = step["t_us"].as_u64().unwrap();
            let verdicts = decide(&mut limits, verb.parse().unwrap(), t);
            assert_golden(&bind(&verdicts).1, step, &step_name);
            for (k, expected) in step.get("quotas").into_iter().flat_map(array).enumerate() {
                assert_golden(&verdicts[k], expected, &format!("{step_name} quota {k}"));
            }
        }
    }
}

fn array(list: &Value) -> &Vec<Value> {
    list.as_array().unwrap()
}

fn assert_golden(verdict: &ModelVerdict, expected: &Value, step_name: &str) {
    let retry = match verdict.retry {
        Some(retry) => retry.us(),
        None => None,
    };
    let fields = serde_json::json!({
        "allowed": verdict.retry.is_none(),
        "granted": verdict.granted as u64,
        "limit": verdict.limit as u64,
        "remaining": verdict.remaining as u64,
        "retry_after_us": retry,
        "reset_after_us": verdict.reset_after as u64,
        "delay_us": verdict.delay as u64,
    });
    for (name, value) in fields.as_object().unwrap() {
        assert_eq!(value, &expected[name], "{name} of {step_name}");
    }
}
