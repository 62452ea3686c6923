//! Compares every field of the decisions of the core and of the model.

use std::fmt;

use serde_json::Value;
use tallygate_core::{Decision, Quota, State, Verb, Verdict, evaluate, evaluate_all};

use crate::model::{Answer, Memory, Terms, bind, decide};

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

/// One counter twice.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) state: State,
    pub(crate) memory: Memory,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Pair {
            state: State::New,
            memory: Memory::New,
        }
    }

    /// Asks both and compares.
    pub(crate) fn step(&mut self, quota: &Quota, step: Step) -> Result<Verdict, String> {
        let Step { t, verb, cost } = step;
        let verdict = evaluate(quota, &mut self.state, verb, cost, t);
        let answers = decide(&mut [(Terms::from(quota), &mut self.memory, cost)], verb, t);
        same(&verdict, &answers[0])?;
        self.both_new_or_neither()?;
        Ok(verdict)
    }

    /// The counter's own time, as the model has it.
    pub(crate) fn mark(&self) -> Option<u64> {
        let mark = self.memory.mark()?;
        Some(mark.try_into().unwrap())
    }

    fn both_new_or_neither(&self) -> Result<(), String> {
        if (self.state == State::New) == (self.memory == Memory::New) {
            return Ok(());
        }
        let (state, memory) = (&self.state, &self.memory);
        Err(format!("expected {memory:?}, got {state:?}"))
    }
}

/// Asks both about several counters at once, each with a cost of its own, and compares every
/// verdict and the whole.
pub(crate) fn step_all(
    quotas: &[Quota],
    pairs: &mut [Pair],
    costs: &[u32],
    verb: Verb,
    t: u64,
) -> Result<Decision, String> {
    let (mut states, mut memories) = (Vec::new(), Vec::new());
    for ((quota, pair), &cost) in quotas.iter().zip(pairs.iter_mut()).zip(costs) {
        states.push((quota, &mut pair.state, cost));
        memories.push((Terms::from(quota), &mut pair.memory, cost));
    }
    let decision = evaluate_all(&mut states, verb, t);
    let answers = decide(&mut memories, verb, t);
    for (i, (verdict, answer)) in decision.verdicts().iter().zip(&answers).enumerate() {
        same(verdict, answer).map_err(|e| format!("limit {i}: {e}"))?;
    }
    let (binding, whole) = bind(&answers);
    same(decision.verdict(), &whole).map_err(|e| format!("the whole: {e}"))?;
    if decision.binding() != binding {
        let got = decision.binding();
        return Err(format!("binding: expected {binding}, got {got}"));
    }
    pairs.iter().try_for_each(Pair::both_new_or_neither)?;
    Ok(decision)
}

fn same(verdict: &Verdict, expected: &Answer) -> Result<(), String> {
    let got = Answer {
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
fn the_model_answers_every_golden_trace_too() {
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
        let mut memories = vec![Memory::New; quotas.len()];
        for (i, step) in trace["steps"].as_array().unwrap().iter().enumerate() {
            let place = format!("{} step {i}", trace["id"]);
            let verb = step.get("verb").map_or("check", |v| v.as_str().unwrap());
            let cost = step.get("cost").map_or(1, |c| c.as_u64().unwrap());
            let cost = cost.try_into().unwrap();
            let counters = quotas.iter().zip(&mut memories);
            let mut limits: Vec<_> = counters
                .map(|(quota, memory)| (Terms::from(quota), memory, cost))
                .collect();
            let t = step["t_us"].as_u64().unwrap();
            let answers = decide(&mut limits, verb.parse().unwrap(), t);
            assert_golden(&bind(&answers).1, step, &place);
            for (k, expected) in step.get("quotas").into_iter().flat_map(each).enumerate() {
                assert_golden(&answers[k], expected, &format!("{place} quota {k}"));
            }
        }
    }
}

fn each(list: &Value) -> &Vec<Value> {
    list.as_array().unwrap()
}

fn assert_golden(answer: &Answer, expected: &Value, place: &str) {
    let retry = match answer.retry {
        Some(tallygate_core::Retry::After(us)) => Some(us.get()),
        Some(tallygate_core::Retry::Never) | None => None,
    };
    let figures = serde_json::json!({
        "allowed": answer.retry.is_none(),
        "granted": answer.granted as u64,
        "limit": answer.limit as u64,
        "remaining": answer.remaining as u64,
        "retry_after_us": retry,
        "reset_after_us": answer.reset_after as u64,
        "delay_us": answer.delay as u64,
    });
    for (name, figure) in figures.as_object().unwrap() {
        assert_eq!(figure, &expected[name], "{name} of {place}");
    }
}
