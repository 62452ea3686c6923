//! What the Redis store sets out for.

use super::client::{BY_HAND, LIMITADOR, UNBATCHED};
use super::concurrency::{Flight, RATE};
use super::memory::Question;
use super::scenario::{Plan, Scenario, Shape};
use super::script::{ARTICLES, TALLYGATE};
use crate::setting::Behaviour;
use crate::table::{Cell, Table, short};
use crate::target::Target;

/// Holds every target against the table of that plan.
pub fn targets(plan: &Plan, table: &Table) -> Vec<Target> {
    let mut targets = Vec::new();
    for behaviour in Behaviour::ALL {
        let most = match behaviour {
            // The articles' neither read a clock nor spare the refused.
            Behaviour::FixedWindow | Behaviour::SlidingWindowCounter => 1.5,
            Behaviour::SlidingWindowLog
            | Behaviour::TokenBucket
            | Behaviour::LeakyPolicing
            | Behaviour::LeakyShaping => 0.85,
        };
        let one = Scenario::one_by_one(behaviour);
        targets.push(cheaper(table, one, most));
        targets.push(cheaper(table, one.shaped(Shape::Batches), 0.6));
    }
    for scenario in &plan.scenarios {
        if scenario.shape == Shape::Several {
            let one = scenario.shaped(Shape::OneByOne).to_string();
            let several = scenario.to_string();
            let (ours, one) = ((&*several, TALLYGATE), (&*one, TALLYGATE));
            targets.push(at_most(table, ours, one, "its script with one", 2.3));
        }
    }
    let log = Scenario::one_by_one(Behaviour::SlidingWindowLog);
    let (of_100, of_10k) = (log.to_string(), Scenario { log: 10_000, ..log }.to_string());
    let (of_10k, of_100) = ((&*of_10k, TALLYGATE), (&*of_100, TALLYGATE));
    targets.push(at_most(table, of_10k, of_100, "that at 100", 2.0));

    let flight = |behaviour| Flight {
        behaviour,
        in_flight: 64,
    };
    let bucket = flight(Behaviour::TokenBucket).row(RATE);
    let window = flight(Behaviour::FixedWindow).row(RATE);
    targets.push(at_least(table, &bucket, TALLYGATE, UNBATCHED, 2.0));
    targets.push(at_least(table, &window, TALLYGATE, LIMITADOR, 4.0));
    targets.push(at_least(table, &bucket, UNBATCHED, BY_HAND, 0.9));
    for question in &plan.questions {
        match (question.behaviour, question.entries) {
            (Behaviour::SlidingWindowLog, 1) => {}
            (Behaviour::SlidingWindowLog, _) => targets.push(thrifty(table, question)),
            (_, _) => targets.push(small(table, question)),
        }
    }
    targets
}

/// Tallygate's script against the articles'.
fn cheaper(table: &Table, scenario: Scenario, most: f64) -> Target {
    let row = scenario.to_string();
    at_most(table, (&row, TALLYGATE), (&row, ARTICLES), ARTICLES, most)
}

fn at_most(table: &Table, one: Cell<'_>, other: Cell<'_>, name: &str, most: f64) -> Target {
    Target {
        what: format!("server CPU, {}", one.0),
        measured: table
            .ratio(one, other)
            .map(|times| (format!("{}x {name}", short(times)), times <= most)),
        wanted: format!("at most {most}x"),
    }
}

fn at_least(table: &Table, row: &str, ours: &str, theirs: &str, least: f64) -> Target {
    Target {
        what: format!("{row}, {ours}"),
        measured: table
            .ratio((row, ours), (row, theirs))
            .map(|times| (format!("{}x {theirs}", short(times)), times >= least)),
        wanted: format!("at least {least}x"),
    }
}

fn small(table: &Table, question: &Question) -> Target {
    let row = question.row();
    Target {
        measured: table
            .get((&row, TALLYGATE))
            .map(|bytes| (short(bytes), bytes <= 150.0)),
        what: row,
        wanted: "at most 150".to_owned(),
    }
}

/// What a log's entries add to one that has a single one.
fn thrifty(table: &Table, question: &Question) -> Target {
    let row = question.row();
    let single = Question {
        entries: 1,
        ..*question
    };
    let bytes = table.get((&row, TALLYGATE));
    let constant = table.get((&single.row(), TALLYGATE));
    Target {
        measured: bytes.zip(constant).map(|(bytes, constant)| {
            let entry = (bytes - constant) / (question.entries - 1) as f64;
            (format!("{} an entry", short(entry)), entry <= 12.0)
        }),
        what: row,
        wanted: "at most 12 an entry, and a constant".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Figure;
    use crate::options::Size;

    #[test]
    fn a_target_is_reached_missed_or_not_measured() {
        let mut table = Table::new("µs", [TALLYGATE, UNBATCHED, ARTICLES, LIMITADOR]);
        let log = "memory, sliding-window-log of";
        for (row, contender, value) in [
            ("token-bucket, one by one", TALLYGATE, 4.0),
            ("token-bucket, one by one", ARTICLES, 5.0),
            ("token-bucket, 16 a call", TALLYGATE, 4.0),
            ("token-bucket, 16 a call", ARTICLES, 5.0),
            ("token-bucket, 3 limits in one request", TALLYGATE, 8.0),
            (&format!("{log} 1 entry, bytes a key"), TALLYGATE, 160.0),
            (
                &format!("{log} 100 entries, bytes a key"),
                TALLYGATE,
                1_150.0,
            ),
        ] {
            table.add(Figure {
                row: row.into(),
                contender: contender.into(),
                value,
            });
        }
        let told: Vec<String> = targets(&Plan::of(Size::Quick), &table)
            .iter()
            .map(Target::to_string)
            .collect();
        let tells = |text: &str| assert!(told.iter().any(|told| told == text), "{told:#?}");
        tells(
            "- reached: server CPU, token-bucket, one by one: 0.80x articles' script (target at most 0.85x)",
        );
        tells(
            "- MISSED: server CPU, token-bucket, 16 a call: 0.80x articles' script (target at most 0.6x)",
        );
        tells(
            "- reached: server CPU, token-bucket, 3 limits in one request: 2.0x its script with one (target at most 2.3x)",
        );
        tells(
            "- reached: memory, sliding-window-log of 100 entries, bytes a key: 10 an entry (target at most 12 an entry, and a constant)",
        );
        let row = "token-bucket, 64 in flight, thousand decisions/s, tallygate";
        tells(&format!("- not measured: {row} (target at least 2x)"));
    }
}
