//! The whole limit just before a window boundary and again just after it, with every algorithm.

use std::time::Duration;

use serde_json::json;
use tallygate::{Algorithm, Quota, Verb};
use tallygate_core::{State, evaluate};

use super::{LabResult, failed};
use crate::command::busiest_period::max_per_period;

const PERIOD: Duration = Duration::from_secs(10);
/// A multiple of the period.
const BOUNDARY_US: u64 = 1_000_000_000_000;

settings! {
    limit: 10 in 1..=100,
}

pub(super) fn run(json: &[u8]) -> LabResult {
    let Settings { limit } = Settings::parse(json)?;
    let mut behaviours = Vec::new();
    for algorithm in Algorithm::BASIC {
        let quota = Quota::new(algorithm, limit, PERIOD).map_err(failed)?;
        let admissions = admissions(&quota);
        behaviours.push(json!({
            "behaviour": algorithm.behaviour(),
            "quota": quota.to_string(),
            "sent": 2 * limit,
            "admitted": admissions.len(),
            "admitted_in_period": max_per_period(&admissions, quota.period_us()),
            "limit": limit,
        }));
    }
    Ok(json!({"limit": limit, "period_s": PERIOD.as_secs(), "behaviours": behaviours}))
}

/// When admitted requests proceed, if the whole limit is sent one microsecond before the boundary
/// and again at the boundary; each is one unit.
fn admissions(quota: &Quota) -> Vec<(u64, u64)> {
    let mut state = State::New;
    let mut admissions = Vec::new();
    for t_us in [BOUNDARY_US - 1, BOUNDARY_US] {
        for _ in 0..quota.limit() {
            let verdict = evaluate(quota, &mut state, Verb::Check, 1, t_us);
            if verdict.allowed() {
                admissions.push((t_us + verdict.delay_us(), 1));
            }
        }
    }
    admissions.sort_unstable();
    admissions
}
