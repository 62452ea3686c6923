//! The limits of a rule, with their precomputed header values.

use ::http::HeaderValue;

use super::headers;
use crate::limit::Limit;
use crate::request::{Request, RequestError};

/// The limits that a rule applies to a key, all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    list: Box<[Limit]>,
    /// The names, quoted for `RateLimit`.
    names: Box<[Box<str>]>,
    /// The value of `RateLimit-Policy`.
    pub(super) policy: HeaderValue,
    /// The value of `RateLimit-Policy` in draft 07.
    pub(super) policy_seven: HeaderValue,
}

impl Limits {
    /// Validates limits and precomputes their header values.
    ///
    /// # Errors
    /// When there is none, there are too many, or two have the same name.
    pub fn new(limits: impl IntoIterator<Item = Limit>) -> Result<Self, RequestError> {
        let list: Box<[Limit]> = limits.into_iter().collect();
        Request::with_limits("", &*list)?;
        Ok(Limits {
            names: list
                .iter()
                .map(|limit| headers::quoted(limit.name()).into())
                .collect(),
            policy: headers::policy(&list),
            policy_seven: headers::policy_seven(&list),
            list,
        })
    }

    /// The name of a limit, quoted for `RateLimit`.
    pub(super) fn quoted(&self, limit: usize) -> &str {
        &self.names[limit]
    }
}

impl std::ops::Deref for Limits {
    type Target = [Limit];

    fn deref(&self) -> &[Limit] {
        &self.list
    }
}
