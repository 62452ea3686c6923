//! The targets of the memory store.

use crate::callers::{TURNS, Turn};
use crate::keys::Spread;
use crate::memory::callers;
use crate::memory::contender::{GOVERNOR, TALLYGATE};
use crate::memory::resident_memory::MemoryScenario;
use crate::memory::scenario::{Plan, Scenario};
use crate::memory::timed_run::Shape;
use crate::quota_spec::{Algorithm, Outcome};
use crate::table::{Table, short};
use crate::target::Target;

/// Evaluates every target of a plan.
pub fn targets(plan: &Plan, table: &Table) -> Vec<Target> {
    let many = Scenario {
        keys: plan.target_keys,
        spread: Spread::Uniform,
        outcome: Outcome::Admitted,
        threads: 1,
        shape: Shape::Single,
        algorithm: None,
    };
    let two = Scenario { threads: 2, ..many };
    let batches = Scenario {
        shape: Shape::Batch,
        ..many
    };
    let hot = Scenario { keys: 1, ..many };

    let mut targets = vec![
        speed_target(table, many, 3.0),
        speed_target(table, two, 4.0),
        // governor has no batches: it decides the same requests in single calls.
        speed_target(table, batches, 8.0),
        speed_target(table, hot, 1.0),
    ];
    for algorithm in Algorithm::BASIC {
        let max = match algorithm {
            Algorithm::TokenBucket => continue,
            Algorithm::SlidingWindowLog => 3.0,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowCounter
            | Algorithm::LeakyPolicing
            | Algorithm::LeakyShaping => 1.6,
            Algorithm::SharedTokenBucket
            | Algorithm::SharedLeakyPolicing
            | Algorithm::Concurrent => 3.0,
        };
        targets.push(algorithm_target(table, many, algorithm, max));
    }
    targets.extend(
        plan.memory_scenarios
            .iter()
            .map(|scenario| memory_target(table, scenario)),
    );
    let [plain, others @ ..] = TURNS;
    for turn in others {
        targets.push(callers_target(table, &turn, &plain));
    }
    targets.push(worst_call_target(table, &plan.worst_cpu_row()));
    targets
}

/// Tallygate compared with governor's defaults.
fn speed_target(table: &Table, scenario: Scenario, min: f64) -> Target {
    let row = scenario.to_string();
    let times = table.ratio((&row, GOVERNOR), (&row, TALLYGATE));
    Target {
        what: format!("token bucket, {row}"),
        measured: times.map(|times| (format!("{}x governor", short(times)), times >= min)),
        wanted: format!("{min}x"),
    }
}

/// An algorithm compared with the token bucket.
fn algorithm_target(table: &Table, many: Scenario, algorithm: Algorithm, max: f64) -> Target {
    let with = |algorithm| Scenario {
        algorithm: Some(algorithm),
        ..many
    };
    let row = with(algorithm).to_string();
    let bucket = with(Algorithm::TokenBucket).to_string();
    let times = table.ratio((&row, TALLYGATE), (&bucket, TALLYGATE));
    Target {
        what: row,
        measured: times.map(|times| {
            let text = format!("{}x the token bucket", short(times));
            (text, times <= max)
        }),
        wanted: format!("at most {max}x"),
    }
}

/// Decisions that tell callers apart, compared with a plain check.
fn callers_target(table: &Table, turn: &Turn, plain: &Turn) -> Target {
    let (row, plain) = (callers::row(turn), callers::row(plain));
    let times = table.ratio((&row, TALLYGATE), (&plain, TALLYGATE));
    Target {
        what: row,
        measured: times.map(|times| {
            let text = format!("{}x a plain check", short(times));
            (text, times <= turn.max_memory)
        }),
        wanted: format!("at most {}x", turn.max_memory),
    }
}

/// Bytes per key at full capacity.
fn memory_target(table: &Table, scenario: &MemoryScenario) -> Target {
    let entries = match scenario.algorithm {
        Algorithm::SlidingWindowLog => scenario.entries,
        _ => 0,
    };
    let max = (40 + 12 * entries) as f64;
    Target {
        what: scenario.row(),
        measured: table
            .get((&scenario.row(), TALLYGATE))
            .map(|bytes| (short(bytes), bytes <= max)),
        wanted: format!("at most {max}"),
    }
}

fn worst_call_target(table: &Table, row: &str) -> Target {
    Target {
        what: row.to_owned(),
        measured: table
            .get((row, TALLYGATE))
            .map(|us| (short(us), us < 1_000.0)),
        wanted: "below 1000, at 10M keys".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Measurement;
    use crate::options::Size;

    #[test]
    fn a_target_is_reached_missed_or_not_measured() {
        let plan = Plan::new(Size::Usual);
        let mut table = Table::new("ns", [TALLYGATE, GOVERNOR]);
        for (row, contender, value) in [
            ("1M uniform admitted, 1 thread", TALLYGATE, 100.0),
            ("1M uniform admitted, 1 thread", GOVERNOR, 410.0),
            ("1M uniform admitted, 2 threads", TALLYGATE, 100.0),
            ("1M uniform admitted, 2 threads", GOVERNOR, 390.0),
            (
                "1M uniform admitted, 1 thread, batches of 32",
                TALLYGATE,
                40.0,
            ),
            (
                "1M uniform admitted, 1 thread, batches of 32",
                GOVERNOR,
                400.0,
            ),
        ] {
            table.add(Measurement {
                row: row.into(),
                contender: contender.into(),
                value,
            });
        }
        let lines: Vec<String> = targets(&plan, &table)
            .iter()
            .map(Target::to_string)
            .collect();
        assert_eq!(
            lines[0],
            "- reached: token bucket, 1M uniform admitted, 1 thread: 4.1x governor (target 3x)"
        );
        assert!(lines[1].starts_with("- MISSED"), "{}", lines[1]);
        assert!(lines[2].contains("10x governor"), "{}", lines[2]);
        assert!(lines[3].starts_with("- not measured"), "{}", lines[3]);
    }
}
