//! Rules that no request can come to. Knows which matches cover others.

use super::{Checked, NEVER_REACHED, Problem};
use tallygate::rules::{Instead, Missing, Override, Rule};

/// Rules behind one that says `stop` and is about all their requests.
pub(super) fn never_reached(checked: &Checked, problems: &mut Vec<Problem>) {
    let rules: Vec<_> = checked.rules().collect();
    for (number, (rule, places)) in rules.iter().enumerate() {
        let stops = |earlier: &&(&Rule, _)| {
            always_stops(earlier.0, &checked.set.overrides) && earlier.0.when.covers(&rule.when)
        };
        // Only the first few thousand are compared with one another: it takes time.
        let Some((earlier, earlier_places)) = rules[..number].iter().take(1_000).find(stops) else {
            continue;
        };
        let message = format!("no request comes to `{}`", rule.name);
        let what = format!(
            "`{}` is about all its requests and says `stop`",
            earlier.name
        );
        let problem = Problem::warning(NEVER_REACHED, places.name, message);
        let problem = problem.other(earlier_places.name, what);
        problems.push(problem.help("put it first, or leave `stop` out"));
    }
}

/// Whether a rule ends the walk for every request it is about: it does not where it does not apply.
fn always_stops(rule: &Rule, overrides: &[Override]) -> bool {
    let allows = |other: &Override| {
        let named = other.rule.as_ref().is_none_or(|name| *name == rule.name);
        named && matches!(other.instead, Instead::Allow)
    };
    rule.stop
        && !rule.shadow
        && rule.allow.is_empty()
        && (rule.on_missing != Missing::Pass || rule.key.is_empty())
        && !overrides.iter().any(allows)
}
