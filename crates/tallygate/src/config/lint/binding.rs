//! Limits that never refuse, or never admit, a request.

use crate::rules::{Cost, Rule, RuleLimits};
use tallygate_core::{Algorithm, Quota};

use super::{Diagnostics, MAX_COMPARED, RuleSpans, SpannedConfig};

/// Limits of a rule that its cost exceeds, or that another limit makes redundant.
pub(super) fn within_rule(rule: &Rule, spans: &RuleSpans, diagnostics: &mut Diagnostics) {
    for (list, quota_spans) in rule.limits.each().into_iter().zip(&spans.quotas) {
        let list: Vec<&Quota> = list.iter().map(|(_, quota)| quota).collect();
        for (number, (quota, span)) in list.iter().zip(quota_spans).enumerate() {
            // A concurrency limit counts requests, whatever they cost.
            let capacity = match quota.algorithm().is_concurrent() {
                true => u32::MAX,
                false => quota.capacity(),
            };
            if let Some(what) = cost_above(&rule.cost, capacity) {
                let message = format!("{what} is above the capacity of this limit");
                let warning = diagnostics.warning("rules::never-fits", *span, message);
                warning.help("such requests are always refused; raise the limit");
                if let Some(cost) = spans.cost {
                    warning.related(cost, "the cost");
                }
            }
            let stricter = list.iter().enumerate().find(|(index, other)| {
                // Of two equal limits, the second is redundant.
                *index != number
                    && is_redundant(quota, other)
                    && (*index < number || !is_redundant(other, quota))
            });
            if let Some((index, _)) = stricter {
                diagnostics
                    .warning(
                        "rules::never-binds",
                        *span,
                        "this limit never refuses a request",
                    )
                    .related(quota_spans[index], "this limit refuses first")
                    .help("remove it, or make it stricter");
            }
        }
    }
}

/// Rules with the same requests and clients, of which one makes the other redundant.
pub(super) fn between_rules(config: &SpannedConfig, diagnostics: &mut Diagnostics) {
    let rules = config.enabled_rules().filter(|(rule, _)| !rule.shadow);
    let rules: Vec<_> = rules.take(MAX_COMPARED).collect();
    for (number, (later, later_spans)) in rules.iter().enumerate() {
        for (earlier, earlier_spans) in &rules[..number] {
            // A budget counts the requests of other rules too.
            let comparable = earlier.budget.is_none()
                && later.budget.is_none()
                && earlier.key == later.key
                && earlier.cost == later.cost
                && earlier.actual == later.actual
                && earlier.count_if == later.count_if
                && earlier.allow.is_empty()
                && later.allow.is_empty()
                && !earlier.stop;
            let (RuleLimits::Same(a), RuleLimits::Same(b), true) =
                (&earlier.limits, &later.limits, comparable)
            else {
                continue;
            };
            let same = earlier.matcher == later.matcher;
            let covered = same || earlier.matcher.covers(&later.matcher);
            let found = a.iter().enumerate().find_map(|(i, (_, a))| {
                b.iter().enumerate().find_map(|(j, (_, b))| {
                    // Requests of the narrower rule count in the wider one too.
                    let later_redundant = covered && is_redundant(b, a);
                    let earlier_redundant = same && is_redundant(a, b);
                    (later_redundant || earlier_redundant).then_some((i, j, later_redundant))
                })
            });
            let Some((i, j, later_redundant)) = found else {
                continue;
            };
            let first = (&earlier.name, earlier_spans.quotas[0][i]);
            let second = (&later.name, later_spans.quotas[0][j]);
            let ((redundant, span), (binding, other)) = match later_redundant {
                true => (second, first),
                false => (first, second),
            };
            let message = format!("this limit of `{redundant}` never refuses a request");
            let label = format!("`{binding}` limits the same requests by the same key");
            diagnostics
                .warning("rules::contradictory-limits", span, message)
                .related(other, label)
                .help("both rules apply to such requests; keep the intended one");
        }
    }
}

/// A cost that is certain to occur and exceeds a capacity.
fn cost_above(cost: &Cost, capacity: u32) -> Option<&'static str> {
    match cost {
        Cost::Constant(cost) if *cost > capacity => Some("the cost"),
        Cost::Header { min, .. } if *min > capacity => Some("the minimum cost"),
        Cost::FirstOf { sources, .. } if sources.iter().any(|source| source.exceeds(capacity)) => {
            Some("the cost of a text")
        }
        Cost::Method { costs, .. } if costs.iter().any(|(_, cost)| *cost > capacity) => {
            Some("the cost of a method")
        }
        Cost::Path { costs, .. } if costs.iter().any(|(_, cost)| *cost > capacity) => {
            Some("the cost of a path")
        }
        Cost::Header { default, .. }
        | Cost::FirstOf { default, .. }
        | Cost::Method { default, .. }
        | Cost::Path { default, .. }
            if *default > capacity =>
        {
            Some("the default cost")
        }
        Cost::Constant(_)
        | Cost::Header { .. }
        | Cost::FirstOf { .. }
        | Cost::Method { .. }
        | Cost::Path { .. }
        | Cost::Custom(_) => None,
    }
}

/// Returns whether `strict` always refuses before `loose`, for the same requests.
fn is_redundant(loose: &Quota, strict: &Quota) -> bool {
    // Of a shared limit, a member may have less than all; what is in flight has no rate.
    if loose.algorithm().is_shared() {
        return false;
    }
    if loose.algorithm().is_concurrent() || strict.algorithm().is_concurrent() {
        return loose.algorithm() == strict.algorithm() && strict.limit() <= loose.limit();
    }
    let is_bucket = |quota: &Quota| quota.algorithm().capacity_keyword().is_some();
    let rate = |quota: &Quota| (u128::from(quota.limit()), u128::from(quota.period_us()));
    match (is_bucket(strict), is_bucket(loose)) {
        (_, false) => {
            // The sliding window counter may count requests of nearly two periods.
            let periods = match loose.algorithm() == Algorithm::default() {
                true => 2,
                false => 1,
            };
            let same_kind = strict.algorithm() == loose.algorithm()
                && strict.period_us() == loose.period_us()
                && strict.limit() <= loose.limit();
            same_kind || strict.worst_case(periods * loose.period_us()) <= loose.limit().into()
        }
        (true, true) => {
            let ((a, a_us), (b, b_us)) = (rate(strict), rate(loose));
            // A quota that delays does not refuse.
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
    fn a_quota_is_redundant_only_if_that_is_certain() {
        for (strict, loose, expected) in [
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
            ("gcra 10/s burst 5", "gcra 10/s burst 50", true),
            ("gcra 10/s burst 50", "gcra 10/s burst 5", false),
            ("gcra 1/s burst 50", "gcra 600/h burst 50", false),
            ("gcra 10/s burst 10", "1000000/min", true),
            (
                "leaky-bucket 10/s queue 5",
                "leaky-bucket 10/s burst 50",
                false,
            ),
            ("10000/h", "gcra 50/s burst 200", false),
            ("concurrent 5 for 30s", "concurrent 9 for 1min", true),
            ("concurrent 9 for 30s", "concurrent 5 for 1min", false),
            ("1/h", "concurrent 5 for 30s", false),
            ("concurrent 5 for 30s", "1000/h", false),
            ("gcra 10/s burst 20 shared", "gcra 10/s burst 50", true),
            ("gcra 10/s burst 20", "gcra 10/s burst 50 shared", false),
        ] {
            let found = is_redundant(&loose.parse().unwrap(), &strict.parse().unwrap());
            assert_eq!(found, expected, "{strict} and {loose}");
        }
    }
}
