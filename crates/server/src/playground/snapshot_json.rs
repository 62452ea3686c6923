//! The state of a counter as JSON, for the page to draw.

use std::collections::HashMap;

use serde_json::{Value, json};
use tallygate::store::{CounterState, HoldState};
use tallygate::{Algorithm, Quota};

use super::validate;

/// The newest entries of a log that are sent: all, unless one of them is a charge beyond the limit.
const MAX_LOG_ENTRIES: usize = validate::MAX_LIMIT as usize;

/// `owners` are those of holds, by the ids of the state.
pub(super) fn to_json(quota: &Quota, state: &CounterState, owners: &HashMap<u64, u32>) -> Value {
    let algorithm = quota.algorithm();
    let kind = match algorithm.is_shaping() {
        true => algorithm.behaviour(),
        false => algorithm.name(),
    };
    match state {
        CounterState::Window {
            start_us,
            end_us,
            used,
        } => json!({"kind": kind, "start_us": start_us, "end_us": end_us, "used": used}),
        CounterState::Windows {
            start_us,
            end_us,
            previous,
            current,
        } => json!({
            "kind": kind,
            "start_us": start_us,
            "end_us": end_us,
            "previous": previous,
            "current": current,
        }),
        CounterState::Log { entries } => {
            let used: u64 = entries.iter().map(|(_, units)| units).sum();
            let older = entries.len().saturating_sub(MAX_LOG_ENTRIES);
            let entry = |(t_us, units): &(u64, u64)| json!({"t_us": t_us, "units": units});
            let newest: Vec<Value> = entries[older..].iter().map(entry).collect();
            json!({"kind": kind, "entries": newest, "used": used})
        }
        CounterState::Level { used_milli } => {
            let capacity = quota.capacity();
            let level = match algorithm == Algorithm::TokenBucket {
                // The tokens left; negative in debt.
                true => i128::from(capacity) * 1_000 - i128::from(*used_milli),
                false => i128::from(*used_milli),
            };
            let level = i64::try_from(level).unwrap_or(i64::MIN);
            json!({"kind": kind, "level_milli": level, "capacity": capacity})
        }
        CounterState::Holds { holds } => {
            let used: u32 = holds.iter().map(|hold| hold.units).sum();
            let hold = |hold: &HoldState| {
                let owner = owners.get(&hold.id);
                json!({"owner": owner, "units": hold.units, "until_us": hold.until_us})
            };
            let holds: Vec<Value> = holds.iter().map(hold).collect();
            json!({"kind": kind, "holds": holds, "used": used})
        }
        // `CounterState` is non-exhaustive.
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_shows_the_newest_entries_and_counts_all() {
        let quota: Quota = "sliding-window-log 1000/min".parse().unwrap();
        let entries: Vec<(u64, u64)> = (0..1_200).map(|at| (at, 2)).collect();
        let json = to_json(&quota, &CounterState::Log { entries }, &HashMap::new());
        assert_eq!(json["used"], 2_400);
        assert_eq!(json["entries"].as_array().unwrap().len(), MAX_LOG_ENTRIES);
        assert_eq!(json["entries"][0]["t_us"], 200);
    }
}
