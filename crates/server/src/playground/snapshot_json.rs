//! A counter's state as a page draws it. Knows views; decides nothing.

use serde_json::{Value, json};
use tallygate::{Algorithm, CounterState, Quota};

/// The most entries of a log that are shown: the newest.
const MOST_ENTRIES: usize = 200;

/// The state of one card.
pub(super) fn state(quota: &Quota, view: &CounterState) -> Value {
    let algorithm = quota.algorithm();
    let kind = match algorithm.is_shaping() {
        true => algorithm.behaviour(),
        false => algorithm.name(),
    };
    match view {
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
            let older = entries.len().saturating_sub(MOST_ENTRIES);
            let entry = |(t_us, units): &(u64, u64)| json!({"t_us": t_us, "units": units});
            let shown: Vec<Value> = entries[older..].iter().map(entry).collect();
            json!({"kind": kind, "entries": shown, "used": used})
        }
        CounterState::Level { used_milli } => {
            let capacity = quota.capacity();
            let level = match algorithm == Algorithm::TokenBucket {
                // What is not used; below 0 in debt.
                true => i128::from(capacity) * 1_000 - i128::from(*used_milli),
                false => i128::from(*used_milli),
            };
            let level = i64::try_from(level).unwrap_or(i64::MIN);
            json!({"kind": kind, "level_milli": level, "capacity": capacity})
        }
        // A view of a later version of the library.
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_bucket_shows_what_is_left_and_the_others_what_is_used() {
        let level = |text: &str, used_milli| {
            let quota: Quota = text.parse().unwrap();
            let shown = state(&quota, &CounterState::Level { used_milli });
            (
                shown["kind"].as_str().unwrap().to_owned(),
                shown["level_milli"].as_i64(),
            )
        };
        let bucket = "token-bucket 10/s burst 5";
        assert_eq!(level(bucket, 1_500), ("token-bucket".into(), Some(3_500)));
        assert_eq!(level(bucket, 7_000), ("token-bucket".into(), Some(-2_000)));
        let policing = "leaky-bucket 10/s burst 5";
        assert_eq!(level(policing, 1_500), ("leaky-bucket".into(), Some(1_500)));
        let shaping = "leaky-bucket 10/s queue 5";
        let kind = "leaky-bucket-shaping".to_owned();
        assert_eq!(level(shaping, 1_500), (kind, Some(1_500)));
    }

    #[test]
    fn of_a_long_log_the_newest_are_shown_and_all_are_counted() {
        let quota: Quota = "sliding-window-log 1000/min".parse().unwrap();
        let entries: Vec<(u64, u64)> = (0..1_000).map(|at| (at, 2)).collect();
        let shown = state(&quota, &CounterState::Log { entries });
        assert_eq!(shown["used"], 2_000);
        assert_eq!(shown["entries"].as_array().unwrap().len(), MOST_ENTRIES);
        assert_eq!(shown["entries"][0]["t_us"], 800);
    }
}
