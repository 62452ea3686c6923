//! How a rule's shared limits are divided: which requests are of which member, and what each weighs.

use std::collections::HashMap;

use tallygate_core::Weight;

use super::extract::{extract, listed_key};
use super::matcher::Route;
use super::request_view::RequestView;
use super::{KeyText, Part, Source};
use crate::http::ClientAddress;
use crate::key::Key;
use crate::request::Member;

/// How a rule's limits that are `shared`, such as `token-bucket 100/s burst 100 shared`, are divided
/// among members. Other limits of the rule ignore it.
///
/// ```
/// use tallygate::rules::{Rule, Share};
/// use tallygate::{Quota, Weight};
///
/// let share = Share::by_header("x-tenant").weight("acme", Weight::new(4)?);
/// let tenants = Rule::new("tenants", Quota::token_bucket(100).per_second().shared(4)).share(share);
/// # Ok::<(), tallygate::WeightError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// What members are told apart by. Requests that lack the same parts are one member.
    pub by: Vec<Part>,
    /// Members with a weight of their own, which always have a place.
    pub weights: Vec<(KeyText, Weight)>,
    /// The weight of all other members.
    pub default: Weight,
}

impl Share {
    /// Tells members apart by parts of the request; all have the same weight.
    pub fn by(parts: impl IntoIterator<Item = Part>) -> Self {
        Share {
            by: parts.into_iter().collect(),
            weights: Vec::new(),
            default: Weight::ONE,
        }
    }

    /// Tells members apart by a header.
    ///
    /// # Panics
    /// When it is not the name of a header.
    pub fn by_header(name: &str) -> Self {
        let name = name.parse();
        let name = name.expect("a header's name is letters, digits and hyphens");
        Share::by([Part::new(Source::Header(name))])
    }

    /// Gives a member a weight, instead of the default.
    #[must_use]
    pub fn weight(mut self, member: impl Into<String>, weight: Weight) -> Self {
        self.weights.push((KeyText::new([member]), weight));
        self
    }
}

/// A share with the keys of its members.
#[derive(Clone, Debug)]
pub(super) struct CompiledShare {
    by: Vec<Part>,
    weights: HashMap<Key<'static>, Weight>,
    default: Weight,
}

impl CompiledShare {
    pub(super) fn new(share: &Share, client: &ClientAddress) -> Self {
        let weights = share.weights.iter().filter_map(|(text, weight)| {
            let key = listed_key(&share.by, text, client)?;
            Some((key, *weight))
        });
        CompiledShare {
            by: share.by.clone(),
            weights: weights.collect(),
            default: share.default,
        }
    }

    /// The member that a request is of.
    pub(super) fn member(&self, view: &RequestView<'_>, route: Route<'_>) -> Member<'static> {
        let extracted = extract(&self.by, view, route, |_, _, _| {});
        let own = self.weights.get(&extracted.key).copied();
        // A member that is listed by its header is not one with the same text from elsewhere.
        let own = own.filter(|_| extracted.primary);
        let weight = own.unwrap_or(self.default);
        let member = Member::new(extracted.key).weight(weight);
        match own {
            Some(_) => member.pinned(),
            None => member,
        }
    }
}
