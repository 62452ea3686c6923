//! How much a rule allows: the same for all clients, or by tier.

use std::borrow::Cow;

use ::http::HeaderName;

use super::{KeyText, Name, Quotas, RequestFn};

/// How much a rule allows.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleLimits {
    /// The same for all clients.
    Same(Quotas),
    /// By the client's tier.
    Tiered(Tiers),
}

impl RuleLimits {
    /// The quotas of each tier; without tiers, one list.
    pub(crate) fn each(&self) -> Vec<&Quotas> {
        match self {
            RuleLimits::Same(quotas) => vec![quotas],
            RuleLimits::Tiered(tiers) => tiers.tiers.iter().map(|(_, quotas)| quotas).collect(),
        }
    }
}

/// Tiers, such as free and pro, each with its own quotas.
///
/// Quotas with the same name share a counter: a client that changes its tier keeps the count. By
/// default the name is the algorithm and the period.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiers {
    pub(super) by: TierBy,
    default: Name,
    tiers: Vec<(Name, Quotas)>,
}

/// How the tier of a client is found.
#[derive(Clone, Debug, PartialEq)]
pub enum TierBy {
    /// A header with the name of the tier. The proxy in front has to set it: otherwise clients choose
    /// their tier.
    Header(HeaderName),
    /// Keys, each with its tier.
    Keys(Vec<(KeyText, Name)>),
    /// A function that returns the name of the tier.
    Custom(RequestFn<Option<Cow<'static, str>>>),
}

/// Why tiers are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TiersError {
    /// There is no tier with that name.
    #[error("there is no tier `{name}`")]
    Unknown {
        /// The name.
        name: Name,
    },
    /// There are two with that name.
    #[error("two tiers are named `{name}`")]
    Twice {
        /// The name.
        name: Name,
    },
}

impl Tiers {
    /// Combines tiers. A client without a tier is in the default one.
    ///
    /// # Errors
    /// When two have the same name, or the default one or that of a key does not exist.
    pub fn new(by: TierBy, default: Name, tiers: Vec<(Name, Quotas)>) -> Result<Self, TiersError> {
        let known = |name: &Name| tiers.iter().any(|(tier, _)| tier == name);
        for (index, (name, _)) in tiers.iter().enumerate() {
            if tiers[..index].iter().any(|(tier, _)| tier == name) {
                return Err(TiersError::Twice { name: name.clone() });
            }
        }
        let mut names: Vec<&Name> = match &by {
            TierBy::Header(_) | TierBy::Custom(_) => Vec::new(),
            TierBy::Keys(keys) => keys.iter().map(|(_, tier)| tier).collect(),
        };
        names.push(&default);
        if let Some(name) = names.into_iter().find(|name| !known(name)) {
            return Err(TiersError::Unknown { name: name.clone() });
        }
        Ok(Tiers { by, default, tiers })
    }

    /// How the tier of a client is found.
    pub fn by(&self) -> &TierBy {
        &self.by
    }

    /// The tier of clients without a tier.
    pub fn default_tier(&self) -> &Name {
        &self.default
    }

    /// The tiers and their quotas, in order; at least one.
    pub fn tiers(&self) -> &[(Name, Quotas)] {
        &self.tiers
    }

    /// Returns one tier, without a name, that all clients are in.
    pub(super) fn with_default(quotas: Quotas) -> Self {
        let default = Name::unchecked("");
        Tiers {
            by: TierBy::Custom(RequestFn::new(|_| None)),
            tiers: vec![(default.clone(), quotas)],
            default,
        }
    }

    pub(super) fn set(&mut self, name: Name, quotas: Quotas) {
        match self.tiers.iter_mut().find(|(tier, _)| *tier == name) {
            Some((_, own)) => *own = quotas,
            None => self.tiers.push((name, quotas)),
        }
    }

    pub(super) fn default_quotas(&mut self) -> &mut Quotas {
        let mut tiers = self.tiers.iter_mut();
        let default = tiers.find(|(tier, _)| *tier == self.default);
        &mut default.expect("the default tier exists").1
    }
}
