//! How much a rule allows: quotas, the same for all clients or by tier.

use std::borrow::Cow;

use ::http::HeaderName;
use tallygate_core::Quota;

use super::{KeyText, Name, RequestFn};
use crate::error::debug_is_display;
use crate::request::MAX_LIMITS;

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
    /// their tier. If [proxies are named](crate::http::ClientAddress), only theirs counts.
    Header(HeaderName),
    /// Keys, each with its tier.
    Keys(Vec<(KeyText, Name)>),
    /// A function that returns the name of the tier.
    Custom(RequestFn<Option<Cow<'static, str>>>),
}

/// Why tiers are invalid.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
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

debug_is_display!(TiersError);

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

/// Quotas with different names, at least one. A request has to fit all of them.
///
/// A counter is identified by its key and the name of its limit: the name of the rule or
/// [budget](super::Rule::counter_scope), a space, and the quota's name, which by default is its
/// algorithm and period. So rules share no counter without a budget, and a changed limit keeps its
/// counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas(Vec<(Option<Name>, Quota)>);

/// Why quotas cannot be combined.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
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

debug_is_display!(QuotasError);

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

    /// The quotas and the names of their limits in a [scope](super::Rule::counter_scope).
    pub fn under(&self, scope: &Name) -> impl Iterator<Item = (String, &Quota)> {
        let name = move |named| format!("{scope} {}", name_of(named));
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
