//! The table of one run, as Markdown.

use crate::shares::scenario::{Figures, Results, Scenario};

/// The heads of the columns.
pub const HEAD: &str = "\
| traffic | seconds | seeds | light without | light shared | used without | used shared | rates with shares |
|---|---|---:|---:|---:|---:|---:|---|";

/// One row; in brackets the figures of the reference model.
pub fn line(scenario: &Scenario, seeds: u64, results: &Results) -> String {
    let Figures { light, used } = results.without;
    let reference = &scenario.reference;
    let rates = results
        .rates
        .iter()
        .map(|(name, rate)| format!("{name} {rate:.1}/s"));
    let cells = [
        scenario.name.to_owned(),
        format!("{}-{}", scenario.seconds.0, scenario.seconds.1),
        seeds.to_string(),
        percent(light, reference.without.light, 2),
        percent(results.shared.light, reference.shared.light, 2),
        percent(Some(used), Some(reference.without.used), 1),
        percent(Some(results.shared.used), Some(reference.shared.used), 1),
        rates.collect::<Vec<_>>().join(", "),
    ];
    format!("| {} |", cells.join(" | "))
}

fn percent(measured: Option<f64>, reference: Option<f64>, digits: usize) -> String {
    match (measured, reference) {
        (Some(measured), Some(reference)) => {
            format!("{measured:.digits$} ({reference:.digits$})")
        }
        (Some(measured), None) => format!("{measured:.digits$}"),
        (None, _) => String::new(),
    }
}
