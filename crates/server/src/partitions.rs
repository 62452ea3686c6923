//! Divides the memory of this process among the rules, so that keys invented for one rule take no
//! slots of another.

use std::collections::{HashMap, HashSet};

use tallygate::Partition;
use tallygate::rules::{Name, Rule};

/// The partitions of the rules; the rules of a budget have one. Rules that are added by a reload get
/// the partitions of removed rules, or share the common one: the store is divided once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partitions {
    by_owner: HashMap<Owner, Partition>,
    free: Vec<Partition>,
}

/// What a partition belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Rule(Name),
    Budget(Name),
}

impl Owner {
    fn new(rule: &Rule) -> Self {
        match &rule.budget {
            None => Owner::Rule(rule.name.clone()),
            Some(budget) => Owner::Budget(budget.clone()),
        }
    }
}

impl Partitions {
    /// Divides `keys` among the rules: each has its own `keys`, or an equal part of the rest. The
    /// common partition, for checks without a rule, has such a part too. Returns the sizes.
    ///
    /// # Errors
    /// When the rules' own keys do not fit.
    pub(crate) fn divide(rules: &[Rule], keys: usize) -> Result<(Self, Vec<usize>), String> {
        let mut owners = HashSet::new();
        let first_of_owner = |rule: &&Rule| owners.insert(Owner::new(rule));
        let rules: Vec<&Rule> = rules.iter().filter(first_of_owner).collect();
        let own: usize = rules.iter().filter_map(|rule| rule.keys).sum();
        let Some(rest) = keys.checked_sub(own) else {
            return Err(format!(
                "the rules have {own} `keys` of their own, but the memory has {keys}: raise \
                 --memory-keys or `keys` of the store"
            ));
        };
        let sharing = rules.iter().filter(|rule| rule.keys.is_none()).count();
        let equal = (rest / (sharing + 1)).max(1);
        let mut partitions = Partitions::default();
        let mut sizes = Vec::with_capacity(rules.len());
        for (rule, index) in rules.iter().zip(1..=u16::MAX) {
            let partition = Partition::new(index);
            partitions.by_owner.insert(Owner::new(rule), partition);
            sizes.push(rule.keys.unwrap_or(equal));
        }
        Ok((partitions, sizes))
    }

    /// Assigns a partition to every rule. Rules that stay keep theirs, and their counters.
    pub(crate) fn assign(&mut self, rules: &mut [Rule]) {
        let owners: HashSet<Owner> = rules.iter().map(Owner::new).collect();
        let free = &mut self.free;
        self.by_owner.retain(|owner, partition| {
            let stays = owners.contains(owner);
            if !stays {
                free.push(*partition);
            }
            stays
        });
        for rule in rules {
            let owner = Owner::new(rule);
            let known = self.by_owner.get(&owner).copied();
            let partition = known.or_else(|| self.free.pop());
            rule.partition = partition.unwrap_or_default();
            if let Some(partition) = partition {
                self.by_owner.insert(owner, partition);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallygate::Quota;

    fn rules(names: &[(&str, Option<usize>)]) -> Vec<Rule> {
        let rule = |(name, keys): &(&str, Option<usize>)| {
            let mut rule = Rule::new(name, Quota::per_minute(1));
            rule.keys = *keys;
            rule
        };
        names.iter().map(rule).collect()
    }

    #[test]
    fn rules_have_their_own_part_or_an_equal_one() {
        let rules = rules(&[("a", None), ("b", Some(400)), ("c", None)]);
        let (_, sizes) = Partitions::divide(&rules, 1_000).unwrap();
        assert_eq!(sizes, [200, 400, 200]);
        let (_, sizes) = Partitions::divide(&rules, 400).unwrap();
        assert_eq!(sizes, [1, 400, 1]);
        let error = Partitions::divide(&rules, 399).unwrap_err();
        assert!(error.contains("400") && error.contains("399"), "{error}");
    }

    #[test]
    fn the_rules_of_a_budget_have_one_part() {
        let mut rules = rules(&[("a", Some(400)), ("b", Some(400)), ("api", None)]);
        rules[0].budget = Some("api".parse().unwrap());
        rules[1].budget = rules[0].budget.clone();
        let (mut partitions, sizes) = Partitions::divide(&rules, 1_000).unwrap();
        assert_eq!(sizes, [400, 300]);
        partitions.assign(&mut rules);
        let indices = rules.iter().map(|rule| rule.partition.index());
        assert_eq!(indices.collect::<Vec<_>>(), [1, 1, 2]);
    }

    #[test]
    fn a_reload_keeps_partitions_and_reuses_those_of_removed_rules() {
        let mut before = rules(&[("a", None), ("b", None)]);
        let (mut partitions, _) = Partitions::divide(&before, 1_000).unwrap();
        partitions.assign(&mut before);
        let of = |rules: &[Rule]| -> Vec<u16> {
            let indices = rules.iter().map(|rule| rule.partition.index());
            indices.collect()
        };
        assert_eq!(of(&before), [1, 2]);
        let mut after = rules(&[("c", None), ("b", None), ("d", None)]);
        partitions.assign(&mut after);
        assert_eq!(of(&after), [1, 2, 0]);
    }
}
