//! What is asked of a store in one atomic step. Knows nothing of how it is decided.

use std::fmt;

use smallvec::{SmallVec, smallvec};
use tollgate_core::Verb;

use crate::key::Key;
use crate::limit::Limit;

/// The most limits one request may carry.
pub const MAX_LIMITS: usize = 64;

/// One request: a verb and a cost against one or several limits, all or nothing.
///
/// ```
/// use tollgate::{Limit, Quota, Request};
///
/// let per_user = Limit::named("user", Quota::per_minute(100));
/// let per_tenant = Limit::named("tenant", Quota::per_minute(1_000));
/// let request = Request::new("user:42", &per_user)
///     .and("tenant:7", &per_tenant)?
///     .cost(5);
/// # Ok::<(), tollgate::RequestError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Request<'a> {
    asked: SmallVec<[Asked<'a>; 2]>,
    verb: Verb,
    cost: u32,
}

/// One key before one limit.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// Who.
    pub key: Key<'a>,
    /// Against what.
    pub limit: &'a Limit,
}

impl<'a> Request<'a> {
    /// A check of cost 1.
    pub fn new(key: impl Into<Key<'a>>, limit: &'a Limit) -> Self {
        Request {
            asked: smallvec![Asked {
                key: key.into(),
                limit,
            }],
            verb: Verb::Check,
            cost: 1,
        }
    }

    /// A check of cost 1 of one key against several limits.
    ///
    /// # Errors
    /// As [`and`](Request::and), and when there is no limit at all.
    pub fn of(
        key: impl Into<Key<'a>>,
        limits: impl IntoIterator<Item = &'a Limit>,
    ) -> Result<Self, RequestError> {
        let key = key.into();
        let mut limits = limits.into_iter();
        let first = limits.next().ok_or(RequestError::NoLimit)?;
        limits.try_fold(Request::new(key.clone(), first), |request, limit| {
            request.and(key.clone(), limit)
        })
    }

    /// Adds a limit that must admit too.
    ///
    /// # Errors
    /// When the same key is already asked against a limit of that name, or there are more than
    /// [`MAX_LIMITS`].
    pub fn and(mut self, key: impl Into<Key<'a>>, limit: &'a Limit) -> Result<Self, RequestError> {
        let key = key.into();
        let same = |asked: &Asked<'_>| asked.limit.name() == limit.name() && asked.key == key;
        if self.asked.iter().any(same) {
            return Err(RequestError::SameCounterTwice {
                name: limit.name().to_owned(),
            });
        }
        if self.asked.len() == MAX_LIMITS {
            return Err(RequestError::TooManyLimits);
        }
        self.asked.push(Asked { key, limit });
        Ok(self)
    }

    /// Sets how many units the request takes.
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }

    /// Sets what is asked.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = verb;
        self
    }

    /// The keys and limits, in order; at least one.
    #[inline]
    pub fn asked(&self) -> &[Asked<'a>] {
        &self.asked
    }

    /// What is asked.
    #[inline]
    pub fn asks(&self) -> Verb {
        self.verb
    }

    /// How many units it takes.
    #[inline]
    pub fn units(&self) -> u32 {
        self.cost
    }
}

/// A request that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// One counter cannot be asked twice in one step: the answers would depend on their order.
    SameCounterTwice {
        /// The limit's name.
        name: String,
    },
    /// There are more than [`MAX_LIMITS`].
    TooManyLimits,
    /// There is none.
    NoLimit,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::SameCounterTwice { name } => write!(
                f,
                "the same key is asked twice against limits named `{name}`; give one another name"
            ),
            RequestError::TooManyLimits => write!(f, "more than {MAX_LIMITS} limits in a request"),
            RequestError::NoLimit => f.write_str("a request without a limit"),
        }
    }
}

impl std::error::Error for RequestError {}
