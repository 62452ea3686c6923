//! Rules that can be swapped while requests come in. Knows nothing of where new ones come from.

use std::sync::Arc;

use crate::Limit;
use crate::http::{Head, Plan, Policy};
use arc_swap::ArcSwap;

use super::Rules;

/// The rules in force, which others can take the place of at any time.
///
/// A request is planned by the old rules or by the new ones, never by some of each, and nobody
/// waits. Counters belong to the store: a limit that keeps its rule's name, its behaviour and its
/// period keeps every count.
#[derive(Debug)]
pub struct Live(ArcSwap<Rules>);

impl Live {
    /// Puts rules in force.
    pub fn new(rules: impl Into<Arc<Rules>>) -> Self {
        Live(ArcSwap::new(rules.into()))
    }

    /// Puts other rules in force and gives back those that were.
    ///
    /// Whoever asks a limiter with its plans has to [prepare](crate::Limiter::prepare) each of
    /// the new [limits](Rules::limits) first, or their replicas are not counted.
    pub fn swap(&self, rules: impl Into<Arc<Rules>>) -> Arc<Rules> {
        self.0.swap(rules.into())
    }

    /// The rules in force.
    pub fn current(&self) -> Arc<Rules> {
        self.0.load_full()
    }
}

impl Policy for Live {
    fn plan(&self, head: &Head<'_>) -> Plan {
        self.0.load().plan(head)
    }

    /// Names the limits of the rules in force now; rules that come later have their own.
    fn limits(&self, each: &mut dyn FnMut(&Limit)) {
        Policy::limits(&**self.0.load(), each);
    }
}
