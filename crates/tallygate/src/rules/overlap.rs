//! Whether rules that match the same request have too many limits together.

use super::{Matcher, Quotas, Rule, RuleLimits, RuleSet};
use crate::request::MAX_LIMITS;

/// Pairs of patterns that are compared. Beyond it the check is skipped: a request with too many
/// limits is refused anyway.
const MAX_COMPARISONS: usize = 4_000_000;

impl RuleSet {
    /// The first rule whose limits never fit in a request, whatever the tiers.
    pub(super) fn always_too_many_limits(&self) -> Option<usize> {
        self.too_many_limits(|limits| sizes(limits).min().unwrap_or(0))
    }

    /// The first rule whose limits may not fit in a request, if clients are in the tiers with the
    /// most limits.
    pub fn maybe_too_many_limits(&self) -> Option<usize> {
        self.too_many_limits(|limits| sizes(limits).max().unwrap_or(0))
    }

    fn too_many_limits(&self, size: impl Fn(&RuleLimits) -> usize) -> Option<usize> {
        let enforced = |(_, rule): &(usize, &Rule)| rule.enabled && !rule.shadow;
        let rules: Vec<_> = self.rules.iter().enumerate().filter(enforced).collect();
        let all = rules.iter().map(|(_, rule)| size(&rule.limits));
        if all.sum::<usize>() <= MAX_LIMITS {
            return None;
        }
        let mut comparisons = 0;
        for narrow in rules.iter().flat_map(|(_, rule)| each_path(&rule.matcher)) {
            let mut limits = 0;
            for (index, rule) in &rules {
                comparisons += weight(&rule.matcher) * weight(&narrow);
                if comparisons > MAX_COMPARISONS {
                    return None;
                }
                if !rule.matcher.covers(&narrow) {
                    continue;
                }
                limits += size(&rule.limits);
                if limits > MAX_LIMITS {
                    return Some(*index);
                }
                if rule.stop {
                    break;
                }
            }
        }
        None
    }
}

fn sizes(limits: &RuleLimits) -> impl Iterator<Item = usize> {
    limits.each().into_iter().map(Quotas::len)
}

/// A matcher for each path, which more rules may cover than all paths together.
fn each_path(matcher: &Matcher) -> Vec<Matcher> {
    let mut any_path = matcher.clone();
    let paths = std::mem::take(&mut any_path.paths);
    if paths.is_empty() {
        return vec![any_path];
    }
    let single = |path| Matcher {
        paths: vec![path],
        ..any_path.clone()
    };
    paths.into_iter().map(single).collect()
}

fn weight(matcher: &Matcher) -> usize {
    let Matcher {
        methods,
        hosts,
        paths,
        headers,
        grpc,
        custom: _,
    } = matcher;
    1 + methods.len() + hosts.len() + paths.len() + headers.len() + grpc.len()
}
