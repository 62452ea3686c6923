//! The targets of the Redis store.

use super::callers;
use super::client::{BY_HAND, HASH_TAGS, LEASED, LIMITADOR, UNBATCHED, UNEQUAL};
use super::concurrency::{ConcurrentScenario, Keys, RATE, Servers};
use super::memory::MemoryScenario;
use super::scenario::{Plan, Scenario, Shape};
use super::script::{ARTICLES, TALLYGATE};
use crate::callers::TURNS;
use crate::quota_spec::Algorithm;
use crate::table::{Cell, Table, short};
use crate::target::Target;

/// Evaluates every target of a plan.
pub fn targets(plan: &Plan, table: &Table) -> Vec<Target> {
    let mut targets = Vec::new();
    for algorithm in Algorithm::BASIC {
        let max = match algorithm {
            // The articles' scripts for these do not read the server's clock.
            Algorithm::FixedWindow | Algorithm::SlidingWindowCounter => 1.5,
            Algorithm::SlidingWindowLog
            | Algorithm::TokenBucket
            | Algorithm::LeakyPolicing
            | Algorithm::LeakyShaping => 0.85,
            other => unreachable!("no article has {other:?}"),
        };
        let one = Scenario::single(algorithm);
        targets.push(script_target(table, one, max));
        targets.push(script_target(table, one.with_shape(Shape::Batch), 0.6));
    }
    for scenario in &plan.scenarios {
        if scenario.shape == Shape::MultiLimit {
            let one = scenario.with_shape(Shape::Single).to_string();
            let several = scenario.to_string();
            let (several, one) = ((&*several, TALLYGATE), (&*one, TALLYGATE));
            targets.push(at_most(table, several, one, "its script with 1 limit", 2.3));
        }
    }
    let log = Scenario::single(Algorithm::SlidingWindowLog);
    let (of_100, of_10k) = (log.to_string(), Scenario { log: 10_000, ..log }.to_string());
    let (of_10k, of_100) = ((&*of_10k, TALLYGATE), (&*of_100, TALLYGATE));
    targets.push(at_most(table, of_10k, of_100, "its script at 100", 2.0));

    let [plain, others @ ..] = TURNS;
    let plain = callers::row(&plain);
    for turn in others {
        let of_turn = callers::row(&turn);
        let (of_turn, of_plain) = ((&*of_turn, TALLYGATE), (&*plain, TALLYGATE));
        targets.push(at_most(
            table,
            of_turn,
            of_plain,
            "a plain check",
            turn.max_redis,
        ));
    }

    let bucket = ConcurrentScenario::new(Algorithm::TokenBucket, 64).row(RATE);
    let window = ConcurrentScenario::new(Algorithm::FixedWindow, 64).row(RATE);
    targets.push(at_least(table, &bucket, TALLYGATE, UNBATCHED, 2.0));
    targets.push(at_least(table, &window, TALLYGATE, LIMITADOR, 4.0));
    targets.push(at_least(table, &bucket, UNBATCHED, BY_HAND, 0.9));
    let cluster = |scenario: &&ConcurrentScenario| scenario.servers == Servers::Cluster;
    for scenario in plan.concurrent.iter().filter(cluster) {
        let row = scenario.row(RATE);
        targets.push(at_least(table, &row, HASH_TAGS, TALLYGATE, 1.5));
    }
    let skewed = |keys| {
        let scenario = ConcurrentScenario::new(Algorithm::TokenBucket, 64);
        scenario.with_keys(keys).row(RATE)
    };
    let (hot, zipf) = (skewed(Keys::Hot), skewed(Keys::Zipf));
    targets.push(at_least(table, &hot, TALLYGATE, UNEQUAL, 3.0));
    targets.push(at_least(table, &hot, LEASED, UNEQUAL, 20.0));
    targets.push(at_least(table, &zipf, LEASED, TALLYGATE, 4.0));
    for scenario in &plan.memory {
        match (scenario.algorithm, scenario.entries) {
            (Algorithm::SlidingWindowLog, 1) => {}
            (Algorithm::SlidingWindowLog, _) => targets.push(log_entry_target(table, scenario)),
            (_, _) => targets.push(memory_target(table, scenario)),
        }
    }
    targets
}

/// Tallygate's script compared with the articles'.
fn script_target(table: &Table, scenario: Scenario, max: f64) -> Target {
    let row = scenario.to_string();
    at_most(table, (&row, TALLYGATE), (&row, ARTICLES), ARTICLES, max)
}

fn at_most(table: &Table, one: Cell<'_>, other: Cell<'_>, name: &str, max: f64) -> Target {
    Target {
        what: format!("server CPU, {}", one.0),
        measured: table
            .ratio(one, other)
            .map(|times| (format!("{}x {name}", short(times)), times <= max)),
        wanted: format!("at most {max}x"),
    }
}

fn at_least(table: &Table, row: &str, contender: &str, peer: &str, min: f64) -> Target {
    Target {
        what: format!("{row}, {contender}"),
        measured: table
            .ratio((row, contender), (row, peer))
            .map(|times| (format!("{}x {peer}", short(times)), times >= min)),
        wanted: format!("at least {min}x"),
    }
}

fn memory_target(table: &Table, scenario: &MemoryScenario) -> Target {
    let row = scenario.row();
    Target {
        measured: table
            .get((&row, TALLYGATE))
            .map(|bytes| (short(bytes), bytes <= 150.0)),
        what: row,
        wanted: "at most 150".to_owned(),
    }
}

/// The bytes of each further entry of a log.
fn log_entry_target(table: &Table, scenario: &MemoryScenario) -> Target {
    let row = scenario.row();
    let single = MemoryScenario {
        entries: 1,
        ..*scenario
    };
    let bytes = table.get((&row, TALLYGATE));
    let constant = table.get((&single.row(), TALLYGATE));
    Target {
        measured: bytes.zip(constant).map(|(bytes, constant)| {
            let entry = (bytes - constant) / (scenario.entries - 1) as f64;
            (format!("{} per entry", short(entry)), entry <= 12.0)
        }),
        what: row,
        wanted: "at most 12 per entry plus a constant".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Measurement;
    use crate::options::Size;

    #[test]
    fn a_target_is_reached_missed_or_not_measured() {
        let mut table = Table::new("µs", [TALLYGATE, UNBATCHED, ARTICLES, LIMITADOR]);
        let log = "memory, sliding-window-log of";
        for (row, contender, value) in [
            ("token-bucket, 1 per call", TALLYGATE, 4.0),
            ("token-bucket, 1 per call", ARTICLES, 5.0),
            ("token-bucket, 16 per call", TALLYGATE, 4.0),
            ("token-bucket, 16 per call", ARTICLES, 5.0),
            ("token-bucket, 3 limits per request", TALLYGATE, 8.0),
            (&format!("{log} 1 entry, bytes per key"), TALLYGATE, 160.0),
            (
                &format!("{log} 100 entries, bytes per key"),
                TALLYGATE,
                1_150.0,
            ),
        ] {
            table.add(Measurement {
                row: row.into(),
                contender: contender.into(),
                value,
            });
        }
        let lines: Vec<String> = targets(&Plan::new(Size::Quick), &table)
            .iter()
            .map(Target::to_string)
            .collect();
        let has = |text: &str| assert!(lines.iter().any(|line| line == text), "{lines:#?}");
        has(
            "- reached: server CPU, token-bucket, 1 per call: 0.80x articles' script (target at most 0.85x)",
        );
        has(
            "- MISSED: server CPU, token-bucket, 16 per call: 0.80x articles' script (target at most 0.6x)",
        );
        has(
            "- reached: server CPU, token-bucket, 3 limits per request: 2.0x its script with 1 limit (target at most 2.3x)",
        );
        has(
            "- reached: memory, sliding-window-log of 100 entries, bytes per key: 10 per entry (target at most 12 per entry plus a constant)",
        );
        let row = "token-bucket, 64 in flight, thousand decisions/s, tallygate";
        has(&format!("- not measured: {row} (target at least 2x)"));
    }
}
