//! The quotas of a rule or tier, and the names of their limits.

use tallygate_core::Quota;

use super::Name;
use crate::request::MAX_LIMITS;

/// Quotas with different names, at least one. A request has to fit all of them.
///
/// A counter is identified by its key and the name of its limit: the rule's name, a space, and the
/// quota's name, which by default is its algorithm and period. So no two rules share a counter, and
/// a changed limit keeps its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas(Vec<(Option<Name>, Quota)>);

/// Why quotas cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotasError {
    /// There is none.
    #[error("no quota at all")]
    Empty,
    /// There are more than [`MAX_LIMITS`].
    #[error("{number} quotas are above {MAX_LIMITS}")]
    TooMany {
        /// Their number.
        number: usize,
    },
    /// Two have the same name, so that they would share a counter.
    #[error("two quotas count as `{name}`; give one a name")]
    SameName {
        /// The name.
        name: String,
        /// The index of the second one.
        index: usize,
    },
}

impl Quotas {
    /// Combines quotas, each with an optional name.
    ///
    /// # Errors
    /// When there is none, there are too many, or two have the same name.
    pub fn new(quotas: Vec<(Option<Name>, Quota)>) -> Result<Self, QuotasError> {
        let number = quotas.len();
        if number == 0 {
            return Err(QuotasError::Empty);
        }
        if number > MAX_LIMITS {
            return Err(QuotasError::TooMany { number });
        }
        let names: Vec<String> = quotas.iter().map(name_of).collect();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                let name = name.clone();
                return Err(QuotasError::SameName { name, index });
            }
        }
        Ok(Quotas(quotas))
    }

    /// The quotas and the names they were given, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Option<&Name>, &Quota)> {
        self.0.iter().map(|(name, quota)| (name.as_ref(), quota))
    }

    /// The number of quotas, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The quotas and the names of their limits under a rule.
    pub fn under(&self, rule: &Name) -> impl Iterator<Item = (String, &Quota)> {
        let name = move |named| format!("{rule} {}", name_of(named));
        self.0.iter().map(move |named| (name(named), &named.1))
    }

    /// Adds a quota. If its default name is in use, it gets a number: `… 2`.
    ///
    /// # Panics
    /// When there are more than [`MAX_LIMITS`].
    pub(super) fn push(&mut self, quota: Quota) {
        let name = quota.default_name();
        let same = self.0.iter().filter(|(_, own)| own.default_name() == name);
        let name = match same.count() {
            0 => None,
            count => Some(Name::unchecked(&format!("{name} {}", count + 1))),
        };
        self.0.push((name, quota));
        assert!(self.0.len() <= MAX_LIMITS, "more than {MAX_LIMITS} quotas");
    }
}

impl From<Quota> for Quotas {
    fn from(quota: Quota) -> Self {
        Quotas(vec![(None, quota)])
    }
}

fn name_of((name, quota): &(Option<Name>, Quota)) -> String {
    match name {
        Some(name) => name.to_string(),
        // It contains a `/`, which no valid name does.
        None => quota.default_name(),
    }
}
