//! The whole limit just before a window boundary and again just after it, with every algorithm.

use std::time::Duration;

use serde_json::json;
use tallygate::{Algorithm, Quota, Verb};
use tallygate_core::{State, evaluate};

use super::{LabResult, failed};

const PERIOD: Duration = Duration::from_secs(10);
/// A multiple of the period.
const BOUNDARY_US: u64 = 1_000_000_000_000;

settings! {
    limit: u32 = 10 in 1..=100,
}

pub(super) fn run(settings: &Settings) -> LabResult {
    let limit = settings.limit;
    settings.check()?;
    let mut behaviours = Vec::new();
    for algorithm in Algorithm::ALL {
        let quota = Quota::new(algorithm, limit, PERIOD).map_err(failed)?;
        let times = admitted_times(&quota);
        behaviours.push(json!({
            "behaviour": algorithm.behaviour(),
            "quota": quota.to_string(),
            "sent": 2 * limit,
            "admitted": times.len(),
            "admitted_in_period": max_in_any(&times, quota.period_us()),
            "limit": limit,
        }));
    }
    Ok(json!({"limit": limit, "period_s": PERIOD.as_secs(), "behaviours": behaviours}))
}

/// When admitted requests proceed, if the whole limit is sent one microsecond before the boundary
/// and again at the boundary.
fn admitted_times(quota: &Quota) -> Vec<u64> {
    let mut state = State::New;
    let mut times = Vec::new();
    for t_us in [BOUNDARY_US - 1, BOUNDARY_US] {
        for _ in 0..quota.limit() {
            let verdict = evaluate(quota, &mut state, Verb::Check, 1, t_us);
            if verdict.allowed() {
                times.push(t_us + verdict.delay_us());
            }
        }
    }
    times.sort_unstable();
    times
}

fn max_in_any(times: &[u64], period_us: u64) -> usize {
    let from = |(first, start): (usize, &u64)| {
        let end = times.partition_point(|time| *time < start + period_us);
        end - first
    };
    times.iter().enumerate().map(from).max().unwrap_or(0)
}
