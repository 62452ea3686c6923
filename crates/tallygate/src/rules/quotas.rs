//! The quotas of a rule or tier, and the names their counters go by. Knows nothing of who is
//! limited.

use std::fmt;

use crate::{MAX_LIMITS, Quota};

use super::Name;

/// One or several quotas that a request has to fit all, told apart by name.
///
/// A counter is known by its key and its limit's name, which is the rule's name, a space, and the
/// quota's: the one given, or the behaviour and the period. So no two rules share a counter, and a
/// changed limit keeps its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas(Vec<(Option<Name>, Quota)>);

/// Quotas that cannot go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotasError {
    /// There is none.
    Empty,
    /// There are more than [`MAX_LIMITS`].
    TooMany {
        /// How many.
        number: usize,
    },
    /// Two have one name, so that they would be one counter.
    SameName {
        /// The name.
        name: String,
        /// Which one has it too, counted from 0.
        index: usize,
    },
}

impl Quotas {
    /// Puts quotas together, each under its name if it was given one.
    ///
    /// # Errors
    /// When there is none, or too many, or two are of one name.
    pub fn new(quotas: Vec<(Option<Name>, Quota)>) -> Result<Self, QuotasError> {
        let number = quotas.len();
        if number == 0 {
            return Err(QuotasError::Empty);
        }
        if number > MAX_LIMITS {
            return Err(QuotasError::TooMany { number });
        }
        let names: Vec<String> = quotas.iter().map(own_name).collect();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                let name = name.clone();
                return Err(QuotasError::SameName { name, index });
            }
        }
        Ok(Quotas(quotas))
    }

    /// The quotas and the names they were given, in order; at least one.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Option<&Name>, &Quota)> {
        self.0.iter().map(|(name, quota)| (name.as_ref(), quota))
    }

    /// How many; at least one.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The quotas under the names that a rule's counters go by.
    pub fn under(&self, rule: &Name) -> impl Iterator<Item = (String, &Quota)> {
        let name = move |named| format!("{rule} {}", own_name(named));
        self.0.iter().map(move |named| (name(named), &named.1))
    }
}

fn own_name((name, quota): &(Option<Name>, Quota)) -> String {
    match name {
        Some(name) => name.to_string(),
        // It has a `/`, which no given name has.
        None => quota.default_name(),
    }
}

impl fmt::Display for QuotasError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuotasError::Empty => f.write_str("no quota at all"),
            QuotasError::TooMany { number } => {
                write!(f, "{number} quotas are above {MAX_LIMITS}")
            }
            QuotasError::SameName { name, .. } => {
                write!(f, "two quotas count as `{name}`; give one a name")
            }
        }
    }
}

impl std::error::Error for QuotasError {}
