//! What the memory store sets out for.

use crate::keys::Spread;
use crate::memory::contender::{GOVERNOR, TALLYGATE};
use crate::memory::lane::Shape;
use crate::memory::resident::Question;
use crate::memory::scenario::{Plan, Scenario};
use crate::setting::{Behaviour, Outcome};
use crate::table::{Table, short};
use crate::target::Target;

/// Holds every target against the table of that plan.
pub fn targets(plan: &Plan, table: &Table) -> Vec<Target> {
    let many = Scenario {
        keys: plan.many,
        spread: Spread::Uniform,
        outcome: Outcome::Admitted,
        threads: 1,
        shape: Shape::OneByOne,
        behaviour: None,
    };
    let two = Scenario { threads: 2, ..many };
    let batches = Scenario {
        shape: Shape::Batches,
        ..many
    };
    let hot = Scenario { keys: 1, ..many };

    let mut targets = vec![
        faster(table, many, 3.0),
        faster(table, two, 4.0),
        // governor has no batches: it decides the same requests one by one, in turns with us.
        faster(table, batches, 8.0),
        faster(table, hot, 1.0),
    ];
    for behaviour in Behaviour::ALL {
        let most = match behaviour {
            Behaviour::TokenBucket => continue,
            Behaviour::SlidingWindowLog => 3.0,
            Behaviour::FixedWindow
            | Behaviour::SlidingWindowCounter
            | Behaviour::LeakyPolicing
            | Behaviour::LeakyShaping => 1.6,
        };
        targets.push(no_dearer(table, many, behaviour, most));
    }
    targets.extend(plan.questions.iter().map(|ask| small(table, ask)));
    targets.push(without_pause(table, &plan.worst_cpu_row()));
    targets
}

/// Tallygate against governor as it comes, in one scenario.
fn faster(table: &Table, scenario: Scenario, least: f64) -> Target {
    let row = scenario.to_string();
    let times = table.ratio((&row, GOVERNOR), (&row, TALLYGATE));
    Target {
        what: format!("token bucket, {row}"),
        measured: times.map(|times| (format!("{}x governor", short(times)), times >= least)),
        wanted: format!("{least}x"),
    }
}

/// A behaviour against the token bucket.
fn no_dearer(table: &Table, many: Scenario, behaviour: Behaviour, most: f64) -> Target {
    let with = |behaviour| Scenario {
        behaviour: Some(behaviour),
        ..many
    };
    let row = with(behaviour).to_string();
    let bucket = with(Behaviour::TokenBucket).to_string();
    let times = table.ratio((&row, TALLYGATE), (&bucket, TALLYGATE));
    Target {
        what: row,
        measured: times.map(|times| {
            let text = format!("{}x the token bucket", short(times));
            (text, times <= most)
        }),
        wanted: format!("at most {most}x"),
    }
}

/// Bytes a key at a full capacity.
fn small(table: &Table, question: &Question) -> Target {
    let entries = match question.behaviour {
        Behaviour::SlidingWindowLog => question.entries,
        Behaviour::FixedWindow
        | Behaviour::SlidingWindowCounter
        | Behaviour::TokenBucket
        | Behaviour::LeakyPolicing
        | Behaviour::LeakyShaping => 0,
    };
    let most = (40 + 12 * entries) as f64;
    Target {
        what: question.row(),
        measured: table
            .get((&question.row(), TALLYGATE))
            .map(|bytes| (short(bytes), bytes <= most)),
        wanted: format!("at most {most}"),
    }
}

fn without_pause(table: &Table, row: &str) -> Target {
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
    use crate::figure::Figure;
    use crate::options::Size;

    #[test]
    fn a_target_is_reached_missed_or_not_measured() {
        let plan = Plan::of(Size::Usual);
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
            table.add(Figure {
                row: row.into(),
                contender: contender.into(),
                value,
            });
        }
        let told: Vec<String> = targets(&plan, &table)
            .iter()
            .map(Target::to_string)
            .collect();
        assert_eq!(
            told[0],
            "- reached: token bucket, 1M uniform admitted, 1 thread: 4.1x governor (target 3x)"
        );
        assert!(told[1].starts_with("- MISSED"), "{}", told[1]);
        assert!(told[2].contains("10x governor"), "{}", told[2]);
        assert!(told[3].starts_with("- not measured"), "{}", told[3]);
    }
}
