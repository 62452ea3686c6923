//! Lists of clients, and what holds for some of them instead of a rule. Knows nothing of how a
//! client is found.

use std::fmt;

use crate::http::Network;

use super::{Name, Quotas};

/// One on a list.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// All clients of a network, whatever the rule's key. An IPv6 address counts in full, however
    /// clients are grouped.
    Network(Network),
    /// A key.
    Key(KeyText),
}

/// A key as it is written in a list: the text of each part of a rule's key, in order.
///
/// It stands for what those parts themselves say, never for what is found in their place (`or`):
/// a client who writes an address into a header is not that address. A list with another number
/// of parts than the rule's key stands for nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(Vec<String>);

/// What holds for some instead of a rule, or of all rules. Goes before the rule's own lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The rule; none: all.
    pub rule: Option<Name>,
    /// For whom.
    pub who: Entry,
    /// What holds.
    pub instead: Instead,
}

/// What holds instead of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Instead {
    /// Other quotas. Those of one name with the rule's, which is one behaviour and period unless
    /// named, keep its counts.
    Limits(Quotas),
    /// The rule does not apply.
    Allow,
    /// The request is turned away.
    Deny,
}

impl KeyText {
    /// A key of parts.
    pub fn new(parts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        KeyText(parts.into_iter().map(Into::into).collect())
    }

    /// How many parts it has.
    pub fn parts(&self) -> usize {
        self.0.len()
    }

    /// The text of each part, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Debug for KeyText {
    /// Keys are secrets: only their number is told.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyText({} parts)", self.0.len())
    }
}
