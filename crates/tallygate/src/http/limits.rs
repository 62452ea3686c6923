//! The limits of a rule, and the part of what clients are told that never changes. Knows nothing of
//! who is limited.

use ::http::HeaderValue;

use super::headers;
use crate::limit::Limit;
use crate::request::{Request, RequestError};

/// The limits that a rule holds a key to, all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    list: Box<[Limit]>,
    /// Their names as `RateLimit` quotes them.
    names: Box<[Box<str>]>,
    /// What `RateLimit-Policy` says of them, in the latest form and in that of draft 07.
    pub(super) policy: HeaderValue,
    pub(super) policy_seven: HeaderValue,
}

impl Limits {
    /// Checks limits and puts them together.
    ///
    /// # Errors
    /// When there is none, there are too many, or two have one name.
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

    /// A limit's name as `RateLimit` quotes it.
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
