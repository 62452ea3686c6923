//! How much is allowed: the same for all, or by tier. Knows nothing of requests.

use std::fmt;

use http::HeaderName;

use super::{KeyText, Name, Quotas};

/// How much a rule allows.
#[derive(Clone, Debug, PartialEq)]
pub enum Limits {
    /// The same for all.
    Same(Quotas),
    /// As much as the client's tier has.
    Tiered(Tiers),
}

/// Tiers, such as free and pro, each with its own quotas.
///
/// Where two tiers have a quota of one name, which is one behaviour and period unless named, a
/// client who moves from one to the other keeps the count.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiers {
    by: TierBy,
    default: Name,
    tiers: Vec<(Name, Quotas)>,
}

/// What says which tier a client is in.
#[derive(Clone, Debug, PartialEq)]
pub enum TierBy {
    /// A header with the tier's name, which whoever is in front of us has to write: a client's own
    /// word would be its own choice.
    Header(HeaderName),
    /// Lists of keys, each with the tier they are in.
    Keys(Vec<(KeyText, Name)>),
}

/// Tiers that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TiersError {
    /// There is no tier of that name.
    Unknown {
        /// The name.
        name: Name,
    },
    /// There are two of that name.
    Twice {
        /// The name.
        name: Name,
    },
}

impl Tiers {
    /// Puts tiers together; whoever is in none of them is in the default one.
    ///
    /// # Errors
    /// When two have one name, or the default one or that of a list is not among them.
    pub fn new(by: TierBy, default: Name, tiers: Vec<(Name, Quotas)>) -> Result<Self, TiersError> {
        let known = |name: &Name| tiers.iter().any(|(tier, _)| tier == name);
        for (index, (name, _)) in tiers.iter().enumerate() {
            if tiers[..index].iter().any(|(tier, _)| tier == name) {
                return Err(TiersError::Twice { name: name.clone() });
            }
        }
        let listed: Vec<&Name> = match &by {
            TierBy::Header(_) => Vec::new(),
            TierBy::Keys(keys) => keys.iter().map(|(_, tier)| tier).collect(),
        };
        if let Some(name) = listed
            .into_iter()
            .chain([&default])
            .find(|name| !known(name))
        {
            return Err(TiersError::Unknown { name: name.clone() });
        }
        Ok(Tiers { by, default, tiers })
    }

    /// What says which tier a client is in.
    pub fn by(&self) -> &TierBy {
        &self.by
    }

    /// The tier of those who are in no other.
    pub fn default_tier(&self) -> &Name {
        &self.default
    }

    /// The tiers and their quotas, in order; at least one.
    pub fn tiers(&self) -> &[(Name, Quotas)] {
        &self.tiers
    }
}

impl fmt::Display for TiersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TiersError::Unknown { name } => write!(f, "there is no tier `{name}`"),
            TiersError::Twice { name } => write!(f, "two tiers are called `{name}`"),
        }
    }
}

impl std::error::Error for TiersError {}
