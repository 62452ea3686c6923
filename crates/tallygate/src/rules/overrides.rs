//! Lists of clients, and overrides for some of them.

use std::fmt;

use super::{Name, Quotas};
use crate::http::Network;

/// An entry of a list of clients.
#[derive(Clone, Debug, PartialEq)]
pub enum ListEntry {
    /// All clients of a network, whatever the rule's key. It is compared with the full IPv6
    /// address, not with the client's prefix.
    Network(Network),
    /// A key.
    Key(KeyText),
}

/// A key in a list: the text of each part of the rule's key, in order.
///
/// It matches values of the first source of each part only: a client that sends an address in a
/// header is not that address. A text with another number of parts than the rule's key matches no
/// client.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(Vec<String>);

/// What applies to some clients instead of a rule. Takes precedence over the rule's lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The name of the rule, or `None` for all rules.
    pub rule: Option<Name>,
    /// The clients.
    pub client: ListEntry,
    /// What applies to them.
    pub action: OverrideAction,
}

/// What an override does.
#[derive(Clone, Debug, PartialEq)]
pub enum OverrideAction {
    /// Replaces the quotas. Those that have the same name as one of the rule's keep its counts. By
    /// default the name is the algorithm and the period.
    Limits(Quotas),
    /// The rule does not apply.
    Allow,
    /// The request is refused.
    Deny,
}

impl KeyText {
    /// Returns a key with these parts.
    pub fn new(parts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        KeyText(parts.into_iter().map(Into::into).collect())
    }

    /// The number of parts.
    pub fn parts(&self) -> usize {
        self.0.len()
    }

    /// The text of each part, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Debug for KeyText {
    /// Keys are secrets: prints only the number of parts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyText({} parts)", self.0.len())
    }
}
