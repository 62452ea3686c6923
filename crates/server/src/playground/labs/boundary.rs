//! The boundary burst: twice the limit around the end of a window, on supplied time. Knows the
//! traffic; the core decides.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tallygate::{Algorithm, Quota, Verb};
use tallygate_core::{State, evaluate};

use super::{Measured, failed, within};

const PERIOD: Duration = Duration::from_secs(10);
/// Some multiple of the period, which is where windows end.
const BOUNDARY_US: u64 = 1_000_000_000_000;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    limit: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { limit: 10 }
    }
}

pub(super) fn run(settings: &Settings) -> Measured {
    let limit = settings.limit;
    within("limit", limit, 1..=100)?;
    let mut behaviours = Vec::new();
    for algorithm in Algorithm::ALL {
        let quota = Quota::new(algorithm, limit, PERIOD).map_err(failed)?;
        let passes = passes(&quota);
        behaviours.push(json!({
            "behaviour": algorithm.behaviour(),
            "quota": quota.to_string(),
            "sent": 2 * limit,
            "admitted": passes.len(),
            "admitted_in_period": most_in_any(&passes, quota.period_us()),
            "limit": limit,
        }));
    }
    Ok(json!({"limit": limit, "period_s": PERIOD.as_secs(), "behaviours": behaviours}))
}

/// When those that are admitted go ahead: a limit's worth is sent in the last microsecond before a
/// boundary, and another at it.
fn passes(quota: &Quota) -> Vec<u64> {
    let mut state = State::New;
    let mut passes = Vec::new();
    for t_us in [BOUNDARY_US - 1, BOUNDARY_US] {
        for _ in 0..quota.limit() {
            let verdict = evaluate(quota, &mut state, Verb::Check, 1, t_us);
            if verdict.allowed() {
                passes.push(t_us + verdict.delay_us());
            }
        }
    }
    passes.sort_unstable();
    passes
}

/// The most within any one period.
fn most_in_any(passes: &[u64], period_us: u64) -> usize {
    let from = |(first, start): (usize, &u64)| {
        let end = passes.partition_point(|pass| *pass < start + period_us);
        end - first
    };
    passes.iter().enumerate().map(from).max().unwrap_or(0)
}
