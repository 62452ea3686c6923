//! What is asked of a store in one atomic step. Knows nothing of how it is decided.

use std::fmt;

use smallvec::{SmallVec, smallvec};
use tallygate_core::Verb;

use crate::key::Key;
use crate::limit::Limit;

/// The most limits one request may carry.
pub const MAX_LIMITS: usize = 64;

/// One request: a verb and a cost against one or several limits, all or nothing. A limit may have
/// [a cost of its own](Request::and_cost).
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
    cost: u32,
    /// Whether that is its own, whatever the request's.
    own: bool,
}

impl Asked<'_> {
    /// How many units are asked of this limit: its own cost, or the request's.
    #[inline]
    pub fn units(&self) -> u32 {
        self.cost
    }
}

impl<'a> Request<'a> {
    /// A check of cost 1.
    pub fn new(key: impl Into<Key<'a>>, limit: &'a Limit) -> Self {
        Request {
            asked: smallvec![Asked {
                key: key.into(),
                limit,
                cost: 1,
                own: false,
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
    pub fn and(self, key: impl Into<Key<'a>>, limit: &'a Limit) -> Result<Self, RequestError> {
        let cost = self.cost;
        self.push(Asked {
            key: key.into(),
            limit,
            cost,
            own: false,
        })
    }

    /// Adds a limit that must admit too, at a cost of its own instead of the request's. One whose
    /// cost is 0 admits and is left as it is, as a request of cost 0 would leave it.
    ///
    /// A check, a charge and a refund move each limit by its own cost. A take grants the same to
    /// every limit, those of cost 0 left out: the least that any of them would grant.
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
        self.push(Asked {
            key: key.into(),
            limit,
            cost,
            own: true,
        })
    }

    fn push(mut self, added: Asked<'a>) -> Result<Self, RequestError> {
        let (key, limit) = (&added.key, added.limit);
        let same = |asked: &Asked<'_>| asked.limit.name() == limit.name() && asked.key == *key;
        if self.asked.iter().any(same) {
            return Err(RequestError::SameCounterTwice {
                name: limit.name().to_owned(),
            });
        }
        if self.asked.len() == MAX_LIMITS {
            return Err(RequestError::TooManyLimits);
        }
        self.asked.push(added);
        Ok(self)
    }

    /// Sets how many units the request takes, of every limit without a cost of its own.
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        let others = self.asked.iter_mut().filter(|asked| !asked.own);
        others.for_each(|asked| asked.cost = cost);
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

    /// How many units it takes of every limit without a cost of its own; what each takes is
    /// [its own to say](Asked::units).
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
