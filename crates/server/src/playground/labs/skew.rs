//! Two servers with different clocks share a counter, once by their own clocks and once by the
//! store's.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tallygate::{Algorithm, Quota, Verb};
use tallygate_core::{State, evaluate};

use super::{LabResult, check_range, failed};

const SECOND_US: u64 = 1_000_000;
/// The store's time.
const NOW_US: u64 = 1_000_000 * SECOND_US;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    skew_s: u64,
    limit: u32,
    period_s: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            skew_s: 10,
            limit: 10,
            period_s: 10,
        }
    }
}

pub(super) fn run(settings: &Settings) -> LabResult {
    let &Settings {
        skew_s,
        limit,
        period_s,
    } = settings;
    check_range("skew_s", skew_s, 0..=3_600)?;
    check_range("limit", limit, 1..=100)?;
    check_range("period_s", period_s, 1..=3_600)?;
    let period = Duration::from_secs(period_s);
    // Exact: any excess is due to the clocks.
    let quota = Quota::new(Algorithm::SlidingWindowLog, limit, period).map_err(failed)?;
    let skewed = [NOW_US, NOW_US + skew_s * SECOND_US];
    Ok(json!({
        "quota": quota.to_string(),
        "limit": limit,
        "period_s": period_s,
        "skew_s": skew_s,
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
