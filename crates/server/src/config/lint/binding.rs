//! Limits that can never refuse, or never admit. Knows quotas by their worst cases.

use tallygate_core::Quota;

use super::{
    CONTRADICTORY, Checked, Cost, NEVER_BINDS, NEVER_FITS, Problem, Rule, RulePlaces, quotas,
};
use tallygate::rules::Limits;

/// The most rules that are compared with one another.
const MOST_COMPARED: usize = 1_000;

/// Limits of one rule that a cost can never fit, or that another limit leaves nothing to do.
pub(super) fn within(rule: &Rule, places: &RulePlaces, problems: &mut Vec<Problem>) {
    for (list, spans) in quotas(rule, places) {
        let list: Vec<&Quota> = list.iter().map(|(_, quota)| quota).collect();
        for (number, (quota, span)) in list.iter().zip(spans).enumerate() {
            if let Some(what) = too_dear(&rule.cost, quota.capacity()) {
                let message = format!("{what} is above this limit's capacity and never fits");
                let mut problem = Problem::warning(NEVER_FITS, *span, message);
                if let Some(cost) = places.cost {
                    problem = problem.other(cost, "the cost");
                }
                problems.push(problem.help("such requests are always refused; raise the limit"));
            }
            let stricter = |other: &(usize, &&Quota)| {
                let (index, other) = *other;
                // Of two that are the same, the later one is the one too many.
                index != number
                    && leaves_nothing(other, quota)
                    && (index < number || !leaves_nothing(quota, other))
            };
            if let Some((index, _)) = list.iter().enumerate().find(stricter) {
                let message = "this limit never refuses anybody";
                let problem = Problem::warning(NEVER_BINDS, *span, message);
                let problem = problem.other(spans[index], "this one refuses first");
                problems.push(problem.help("leave it out, or make it stricter"));
            }
        }
    }
}

/// Rules about the same requests of the same clients, of which one leaves the other nothing to do.
pub(super) fn between(checked: &Checked, problems: &mut Vec<Problem>) {
    let rules: Vec<_> = checked.rules().filter(|(rule, _)| !rule.shadow).collect();
    let rules = &rules[..rules.len().min(MOST_COMPARED)];
    for (number, (later, later_places)) in rules.iter().enumerate() {
        for (earlier, earlier_places) in &rules[..number] {
            let alike = earlier.key == later.key
                && earlier.cost == later.cost
                && earlier.counts == later.counts
                && earlier.allow.is_empty()
                && later.allow.is_empty()
                && !earlier.stop;
            let (Limits::Same(a), Limits::Same(b), true) = (&earlier.limits, &later.limits, alike)
            else {
                continue;
            };
            let same = earlier.when == later.when;
            let found = a.iter().enumerate().find_map(|(i, (_, a))| {
                let mut others = b.iter().enumerate();
                others.find_map(|(j, (_, b))| {
                    // The narrower rule's requests count with the wider one too.
                    let later_idle =
                        (same || earlier.when.covers(&later.when)) && leaves_nothing(a, b);
                    let earlier_idle = same && leaves_nothing(b, a);
                    (later_idle || earlier_idle).then_some((i, j, later_idle))
                })
            });
            let Some((i, j, later_idle)) = found else {
                continue;
            };
            let (one, other) = (earlier_places.quotas[0][i], later_places.quotas[0][j]);
            let (idle, busy, idle_name, busy_name) = match later_idle {
                true => (other, one, &later.name, &earlier.name),
                false => (one, other, &earlier.name, &later.name),
            };
            let message = format!("this limit of `{idle_name}` never refuses anybody");
            let what = format!("`{busy_name}` limits the same requests by the same key");
            let problem = Problem::warning(CONTRADICTORY, idle, message).other(busy, what);
            problems.push(problem.help("both rules apply to one request; keep the one you mean"));
        }
    }
}

/// A cost that is certain to come and above a capacity.
fn too_dear(cost: &Cost, capacity: u32) -> Option<&'static str> {
    match cost {
        Cost::Constant(cost) if *cost > capacity => Some("the cost"),
        Cost::Header { least, .. } if *least > capacity => Some("the least cost"),
        Cost::Header { default, .. } if *default > capacity => Some("the default cost"),
        Cost::Method { costs, .. } if costs.iter().any(|(_, cost)| *cost > capacity) => {
            Some("the cost of a method")
        }
        Cost::Method { default, .. } if *default > capacity => Some("the default cost"),
        Cost::Constant(_) | Cost::Header { .. } | Cost::Method { .. } => None,
    }
}

/// Whether one quota, asked about the same requests, always refuses before the other would.
fn leaves_nothing(strict: &Quota, loose: &Quota) -> bool {
    let is_bucket = |quota: &Quota| quota.algorithm().capacity_keyword().is_some();
    let rate = |quota: &Quota| (u128::from(quota.limit()), u128::from(quota.period_us()));
    match (is_bucket(strict), is_bucket(loose)) {
        (_, false) => {
            // An estimate may count what is nearly two periods old.
            let counted = loose.algorithm() == tallygate_core::Algorithm::default();
            let span = loose.period_us() * if counted { 2 } else { 1 };
            let same_kind = strict.algorithm() == loose.algorithm()
                && strict.period_us() == loose.period_us()
                && strict.limit() <= loose.limit();
            same_kind || strict.worst_case(span) <= loose.limit().into()
        }
        (true, true) => {
            let ((a, a_us), (b, b_us)) = (rate(strict), rate(loose));
            // One that delays is not one that refuses.
            strict.algorithm().is_shaping() == loose.algorithm().is_shaping()
                && strict.capacity() <= loose.capacity()
                && a * b_us <= b * a_us
        }
        (false, true) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_leaves_another_nothing_only_where_that_is_certain() {
        for (strict, loose, nothing) in [
            ("100/min", "200/min", true),
            ("200/min", "100/min", false),
            (
                "sliding-window-log 1/s",
                "sliding-window-log 1000/min",
                true,
            ),
            (
                "sliding-window-log 10/s",
                "sliding-window-log 599/min",
                false,
            ),
            (
                "sliding-window-log 10/s",
                "sliding-window-log 600/min",
                true,
            ),
            ("10/s", "fixed-window 100/min", false),
            (
                "token-bucket 10/s burst 5",
                "token-bucket 10/s burst 50",
                true,
            ),
            (
                "token-bucket 10/s burst 50",
                "token-bucket 10/s burst 5",
                false,
            ),
            (
                "token-bucket 1/s burst 50",
                "token-bucket 600/h burst 50",
                false,
            ),
            ("token-bucket 10/s burst 10", "1000000/min", true),
            (
                "leaky-bucket 10/s queue 5",
                "leaky-bucket 10/s burst 50",
                false,
            ),
            ("10000/h", "token-bucket 50/s burst 200", false),
        ] {
            let (one, other) = (strict.parse().unwrap(), loose.parse().unwrap());
            assert_eq!(
                leaves_nothing(&one, &other),
                nothing,
                "{strict} and {loose}"
            );
        }
    }
}
