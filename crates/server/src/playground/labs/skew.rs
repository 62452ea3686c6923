//! Two servers with different clocks share a counter, once by their own clocks and once by the
//! store's.

use std::time::Duration;

use serde_json::{Value, json};
use tallygate::{Algorithm, Quota, Verb};
use tallygate_core::{State, evaluate};

use super::{LabResult, failed};

const SECOND_US: u64 = 1_000_000;
const NOW_US: u64 = 1_000_000 * SECOND_US;

settings! {
    skew_s: 10 in 0..=3_600,
    limit: 10 in 1..=100,
    period_s: 10 in 1..=3_600,
}

pub(super) fn run(json: &[u8]) -> LabResult {
    let settings = Settings::parse(json)?;
    let limit = settings.limit;
    let period = Duration::from_secs(settings.period_s.into());
    // Exact: any excess is due to the clocks.
    let quota = Quota::new(Algorithm::SlidingWindowLog, limit, period).map_err(failed)?;
    let skewed = [NOW_US, NOW_US + u64::from(settings.skew_s) * SECOND_US];
    Ok(json!({
        "quota": quota.to_string(),
        "limit": limit,
        "period_s": settings.period_s,
        "skew_s": settings.skew_s,
        "sent": 2 * limit,
        "application_time": admitted(&quota, skewed),
        "store_time": admitted(&quota, [NOW_US; 2]),
    }))
}

/// How many requests are admitted if each of two servers sends the whole limit at its own time.
fn admitted(quota: &Quota, clocks: [u64; 2]) -> Value {
    let mut state = State::New;
    let servers = clocks.map(|t_us| {
        let allowed = |_: &u32| evaluate(quota, &mut state, Verb::Check, 1, t_us).allowed();
        (0..quota.limit()).filter(allowed).count()
    });
    json!({"admitted": servers[0] + servers[1], "servers": servers})
}
