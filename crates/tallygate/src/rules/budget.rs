//! Budgets: counters that several rules spend.

use super::{Name, Part, Rule, RuleLimits, Share, Source, TierBy};

impl Rule {
    /// Makes the rule spend a budget: all rules with this budget, in every service with the same
    /// store and namespace, share counters. They have the same key and the same quotas. A request
    /// that several of them match is charged the sum of their costs.
    ///
    /// A rule in shadow mode spends a budget of its own, so that it refuses nobody's requests.
    ///
    /// ```
    /// use tallygate::Quota;
    /// use tallygate::rules::{Rule, RuleSet, Rules};
    ///
    /// let spends = |name| {
    ///     Rule::new(name, Quota::per_minute(100)).by_header("x-api-key").budget("api")
    /// };
    /// let read = spends("read").when(|head| !head.uri().path().starts_with("/search"));
    /// let search = spends("search").when(|head| head.uri().path() == "/search").cost(|_| 5);
    /// let rules = Rules::new(RuleSet::from([read, search]))?;
    /// # Ok::<(), tallygate::rules::RuleSetError>(())
    /// ```
    #[must_use]
    pub fn budget(mut self, name: impl AsRef<str>) -> Self {
        self.budget = Some(Name::unchecked(name.as_ref()));
        self
    }

    /// The first part of the names of the rule's counters: the rule's name, or `budget:` and the name
    /// of its budget. No rule of a file has such a name.
    pub fn counter_scope(&self) -> Name {
        match &self.budget {
            None => self.name.clone(),
            // Requests that a shadow rule counts must not be missing to others.
            Some(budget) if self.shadow => Name::unchecked(&format!("shadow-budget:{budget}")),
            Some(budget) => Name::unchecked(&format!("budget:{budget}")),
        }
    }

    /// Whether both rules spend one budget.
    pub fn same_budget(&self, other: &Rule) -> bool {
        self.budget.is_some() && self.budget == other.budget
    }

    /// Whether the counters of both rules are the same.
    pub(super) fn shares_counters_with(&self, other: &Rule) -> bool {
        self.same_budget(other) && self.shadow == other.shadow
    }

    /// Whether the key and the limits are the same, as far as they are no functions.
    pub(super) fn same_key_and_limits(&self, other: &Rule) -> bool {
        let mut parts = self.key.iter().zip(&other.key);
        self.key.len() == other.key.len()
            && parts.all(|(own, other)| same_sources(own, other))
            && same_limits(&self.limits, &other.limits)
            && same_share(self.share.as_ref(), other.share.as_ref())
    }
}

fn same_share(share: Option<&Share>, other: Option<&Share>) -> bool {
    match (share, other) {
        (None, None) => true,
        (Some(share), Some(other)) => {
            let mut parts = share.by.iter().zip(&other.by);
            share.by.len() == other.by.len()
                && parts.all(|(own, other)| same_sources(own, other))
                && share.weights == other.weights
                && share.default == other.default
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn same_sources(part: &Part, other: &Part) -> bool {
    let same = |(own, other): (&Source, &Source)| match (own, other) {
        (Source::Custom(_), Source::Custom(_)) => true,
        (own, other) => own == other,
    };
    part.sources().count() == other.sources().count()
        && part.sources().zip(other.sources()).all(same)
}

fn same_limits(limits: &RuleLimits, other: &RuleLimits) -> bool {
    match (limits, other) {
        (RuleLimits::Tiered(own), RuleLimits::Tiered(other)) => {
            let same_by = match (own.by(), other.by()) {
                (TierBy::Custom(_), TierBy::Custom(_)) => true,
                (own, other) => own == other,
            };
            same_by && own.default_tier() == other.default_tier() && own.tiers() == other.tiers()
        }
        (own, other) => own == other,
    }
}
