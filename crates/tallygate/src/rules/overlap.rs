//! Rules that are bound to meet in one request, and whether it has room for their limits. Knows
//! which matches cover others; knows nothing of requests.

use crate::MAX_LIMITS;

use super::{Limits, Match, Quotas, Rule, RuleSet};

/// How many patterns are compared with one another at most: it takes time, and a request without
/// room is stopped all the same.
const MOST_COMPARED: usize = 4_000_000;

impl RuleSet {
    /// The first rule that no request it is about has room for, whatever tier a client is in.
    pub(super) fn without_room(&self) -> Option<usize> {
        self.crowded(|limits| sizes(limits).min().unwrap_or(0))
    }

    /// The first rule that a request may have no room for, if clients are in the tiers with the
    /// most limits.
    pub fn short_of_room(&self) -> Option<usize> {
        self.crowded(|limits| sizes(limits).max().unwrap_or(0))
    }

    fn crowded(&self, size: impl Fn(&Limits) -> usize) -> Option<usize> {
        let enforced = |(_, rule): &(usize, &Rule)| rule.enabled && !rule.shadow;
        let rules: Vec<_> = self.rules.iter().enumerate().filter(enforced).collect();
        let all = rules.iter().map(|(_, rule)| size(&rule.limits));
        if all.sum::<usize>() <= MAX_LIMITS {
            return None;
        }
        let mut compared = 0;
        for narrow in rules.iter().flat_map(|(_, rule)| each_path(&rule.when)) {
            let mut limits = 0;
            for (number, rule) in &rules {
                compared += weight(&rule.when) * weight(&narrow);
                if compared > MOST_COMPARED {
                    return None;
                }
                if !rule.when.covers(&narrow) {
                    continue;
                }
                limits += size(&rule.limits);
                if limits > MAX_LIMITS {
                    return Some(*number);
                }
                if rule.stop {
                    break;
                }
            }
        }
        None
    }
}

fn sizes(limits: &Limits) -> impl Iterator<Item = usize> {
    let lists: Vec<&Quotas> = match limits {
        Limits::Same(quotas) => vec![quotas],
        Limits::Tiered(tiers) => tiers.tiers().iter().map(|(_, quotas)| quotas).collect(),
    };
    lists.into_iter().map(Quotas::len)
}

/// A match for each path of one, which more may cover than all of them together.
fn each_path(when: &Match) -> Vec<Match> {
    if when.paths.is_empty() {
        return vec![when.clone()];
    }
    let alone = |path| Match {
        methods: when.methods.clone(),
        hosts: when.hosts.clone(),
        paths: vec![path],
        headers: when.headers.clone(),
        grpc: when.grpc.clone(),
    };
    when.paths.iter().cloned().map(alone).collect()
}

fn weight(when: &Match) -> usize {
    let Match {
        methods,
        hosts,
        paths,
        headers,
        grpc,
    } = when;
    1 + methods.len() + hosts.len() + paths.len() + headers.len() + grpc.len()
}
