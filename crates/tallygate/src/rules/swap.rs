//! Rules that can be replaced while requests are served.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::Rules;
use crate::http::{Head, Plan, Policy};
use crate::limit::Limit;

/// Rules that can be replaced at any time without blocking requests.
///
/// Each request is planned by one version of the rules. Counters belong to the store: a limit that
/// keeps its rule's name, its algorithm and its period keeps every count.
#[derive(Debug)]
pub struct SwappableRules(ArcSwap<Rules>);

impl SwappableRules {
    /// Wraps rules.
    pub fn new(rules: impl Into<Arc<Rules>>) -> Self {
        SwappableRules(ArcSwap::new(rules.into()))
    }

    /// Replaces the rules and returns the previous ones.
    ///
    /// Each of the new [limits](Rules::limits) has to be prepared first by the engine that decides
    /// the plans, or their replicas are not counted.
    pub fn swap(&self, rules: impl Into<Arc<Rules>>) -> Arc<Rules> {
        self.0.swap(rules.into())
    }

    /// The current rules.
    pub fn current(&self) -> Arc<Rules> {
        self.0.load_full()
    }
}

impl Policy for SwappableRules {
    fn plan(&self, head: &Head<'_>) -> Plan {
        self.0.load().plan(head)
    }

    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        Policy::limits(&**self.0.load(), each);
    }
}
