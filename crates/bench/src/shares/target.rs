//! The targets of fair shares.

use crate::shares::scenario::{Results, Scenario, USED_AT_LEAST, USED_TOLERANCE};
use crate::target::Target;

/// The target of one row: what the table promises, how close it is to the reference model, and the
/// worst case of the limit.
pub fn target(scenario: &Scenario, results: &Results) -> Target {
    let reference = &scenario.reference;
    let (mut measured, mut wanted) = (Vec::new(), Vec::new());
    let mut is_reached = true;
    if let (Some(light), Some(least)) = (results.shared.light, reference.light_at_least) {
        is_reached &= light >= least;
        measured.push(format!("light {light:.2} %"));
        wanted.push(format!("light {least} %"));
    }
    let used = results.shared.used;
    is_reached &= used >= USED_AT_LEAST;
    measured.push(format!("used {used:.1} %"));
    wanted.push(format!("used {USED_AT_LEAST} %"));

    let (mut off, mut most_off) = (Vec::new(), Vec::new());
    let columns = [
        (
            "without",
            results.without,
            reference.without,
            reference.tolerance_without,
        ),
        (
            "shared",
            results.shared,
            reference.shared,
            Some(reference.tolerance_shared),
        ),
    ];
    for (column, measured, reference, tolerance) in columns {
        is_reached &= (measured.used - reference.used).abs() <= USED_TOLERANCE;
        if let (Some(light), Some(expected), Some(tolerance)) =
            (measured.light, reference.light, tolerance)
        {
            let difference = (light - expected).abs();
            is_reached &= difference <= tolerance;
            off.push(format!("{column} {difference:.2}"));
            most_off.push(format!("{column} {tolerance}"));
        }
    }
    if !off.is_empty() {
        measured.push(format!("light off by {}", off.join(", ")));
        wanted.push(format!("off by at most {}", most_off.join(", ")));
    }
    is_reached &= !results.is_above_bound;
    measured.push(match results.is_above_bound {
        true => "above the worst case".to_owned(),
        false => "never above the worst case".to_owned(),
    });
    Target {
        what: scenario.name.to_owned(),
        measured: Some((measured.join("; "), is_reached)),
        wanted: wanted.join("; "),
    }
}
