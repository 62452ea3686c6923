//! Requests: keys, limits, a verb and costs that a store decides in one atomic step.

use std::fmt;

use smallvec::{SmallVec, smallvec};
use tallygate_core::Verb;

use crate::key::Key;
use crate::limit::Limit;

/// The maximum number of limits of one request.
pub const MAX_LIMITS: usize = 64;

/// A verb and a cost for one or several limits, all or nothing. A limit may have
/// [its own cost](Request::and_cost).
///
/// ```
/// use tallygate::{Limit, Quota, Request};
///
/// let per_user = Limit::named("user", Quota::per_minute(100));
/// let per_tenant = Limit::named("tenant", Quota::per_minute(1_000));
/// let request = Request::new("user:42", &per_user)
///     .and("tenant:7", &per_tenant)?
///     .cost(5);
/// # Ok::<(), tallygate::RequestError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Request<'a> {
    entries: SmallVec<[RequestEntry<'a>; 2]>,
    verb: Verb,
    cost: u32,
}

/// One key and one limit of a request.
#[derive(Clone, Debug)]
pub struct RequestEntry<'a> {
    /// The key.
    pub key: Key<'a>,
    /// The limit.
    pub limit: &'a Limit,
    cost: u32,
    /// Whether the entry has its own cost instead of the request's.
    own_cost: bool,
}

impl RequestEntry<'_> {
    /// The cost for this limit: its own, or the request's.
    #[inline]
    pub fn cost(&self) -> u32 {
        self.cost
    }
}

impl<'a> Request<'a> {
    /// Creates a check of cost 1.
    pub fn new(key: impl Into<Key<'a>>, limit: &'a Limit) -> Self {
        Request {
            entries: smallvec![RequestEntry {
                key: key.into(),
                limit,
                cost: 1,
                own_cost: false,
            }],
            verb: Verb::Check,
            cost: 1,
        }
    }

    /// Creates a check of cost 1 of one key against several limits.
    ///
    /// # Errors
    /// As [`and`](Request::and), and when there is no limit.
    pub fn with_limits(
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

    /// Adds a limit that must also admit the request.
    ///
    /// # Errors
    /// When the request has the same key and a limit of that name already, or there are more than
    /// [`MAX_LIMITS`].
    pub fn and(self, key: impl Into<Key<'a>>, limit: &'a Limit) -> Result<Self, RequestError> {
        self.push(key.into(), limit, None)
    }

    /// Adds a limit with its own cost instead of the request's. A limit with cost 0 admits and is not
    /// changed.
    ///
    /// Check, charge and refund use each limit's own cost. A take grants every limit with a cost above
    /// 0 the same: the least that any of them would grant.
    ///
    /// ```
    /// use tallygate::{Limit, Limiter, Quota, Request};
    ///
    /// let requests = Limit::named("requests", Quota::per_minute(60));
    /// let tokens = Limit::named("tokens", Quota::per_minute(10_000));
    /// let limiter = Limiter::new(requests.clone());
    /// let request = Request::new("user:42", &requests).and_cost("user:42", &tokens, 1_200)?;
    /// let decision = limiter.decide_now(&request);
    /// assert_eq!(decision.verdicts()[0].remaining, 59);
    /// assert_eq!(decision.verdicts()[1].remaining, 8_800);
    /// # Ok::<(), tallygate::RequestError>(())
    /// ```
    ///
    /// # Errors
    /// As [`and`](Request::and).
    pub fn and_cost(
        self,
        key: impl Into<Key<'a>>,
        limit: &'a Limit,
        cost: u32,
    ) -> Result<Self, RequestError> {
        self.push(key.into(), limit, Some(cost))
    }

    fn push(
        mut self,
        key: Key<'a>,
        limit: &'a Limit,
        own_cost: Option<u32>,
    ) -> Result<Self, RequestError> {
        let name = limit.name();
        let mut entries = self.entries.iter();
        if entries.any(|entry| entry.limit.name() == name && entry.key == key) {
            let name = name.to_owned();
            return Err(RequestError::SameCounterTwice { name });
        }
        if self.entries.len() == MAX_LIMITS {
            return Err(RequestError::TooManyLimits);
        }
        self.entries.push(RequestEntry {
            key,
            limit,
            cost: own_cost.unwrap_or(self.cost),
            own_cost: own_cost.is_some(),
        });
        Ok(self)
    }

    /// Sets the cost for every limit without its own cost.
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        let shared = self.entries.iter_mut().filter(|entry| !entry.own_cost);
        shared.for_each(|entry| entry.cost = cost);
        self
    }

    /// Sets the verb.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = verb;
        self
    }

    /// The same request for the limits at some positions.
    pub(crate) fn subset(&self, positions: &[usize]) -> Request<'a> {
        let entries = positions.iter().map(|&at| self.entries[at].clone());
        Request {
            entries: entries.collect(),
            ..*self
        }
    }

    /// Replaces the cost of every limit, also of those that have their own.
    pub(crate) fn each_cost(mut self, cost: u32) -> Self {
        let costs = self.entries.iter_mut().filter(|entry| entry.cost > 0);
        costs.for_each(|entry| entry.cost = cost);
        self
    }

    /// The keys and limits, in order; at least one.
    #[inline]
    pub fn entries(&self) -> &[RequestEntry<'a>] {
        &self.entries
    }

    /// The verb.
    #[inline]
    pub fn requested_verb(&self) -> Verb {
        self.verb
    }

    /// The cost for every limit without [its own](RequestEntry::cost).
    #[inline]
    pub fn requested_cost(&self) -> u32 {
        self.cost
    }
}

/// Why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// A counter occurs twice: the decision would depend on the order.
    SameCounterTwice {
        /// The limit's name.
        name: String,
    },
    /// There are more than [`MAX_LIMITS`] limits.
    TooManyLimits,
    /// There is no limit.
    NoLimit,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::SameCounterTwice { name } => write!(
                f,
                "the same key has two limits named `{name}`; rename one of them"
            ),
            RequestError::TooManyLimits => write!(f, "more than {MAX_LIMITS} limits in a request"),
            RequestError::NoLimit => f.write_str("a request without a limit"),
        }
    }
}

impl std::error::Error for RequestError {}
