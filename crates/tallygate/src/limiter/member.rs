//! A limiter as one member of shared limits uses it.

use tallygate_core::Weight;

use super::Limiter;
use crate::decision::Decision;
#[cfg(feature = "tokio")]
use crate::engine::{Hold, Refused, Reservation, ReserveError};
use crate::key::Key;
use crate::request::{Member, Request};
#[cfg(feature = "redis")]
use crate::store::RedisStore;
use crate::store::{LocalStore, Store};

impl<S: Store> Limiter<S> {
    /// The limiter as a member uses it: members of one key share its limit by weight, if that
    /// [is shared](tallygate_core::Quota::shared_units), and borrow what others leave.
    ///
    /// ```
    /// use tallygate::{Limiter, Quota, Weight};
    ///
    /// let limiter = Limiter::new("token-bucket 100/s burst 100 shared 4".parse::<Quota>()?);
    /// let acme = limiter.member("acme").weight(Weight::new(4)?);
    /// assert!(acme.check("api").allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn member<'l>(&'l self, name: impl Into<Key<'l>>) -> MemberLimiter<'l, S> {
        MemberLimiter {
            limiter: self,
            member: Member::new(name),
        }
    }
}

/// A limiter as one member of shared limits uses it; see [`Limiter::member`].
#[derive(Debug)]
pub struct MemberLimiter<'l, S> {
    limiter: &'l Limiter<S>,
    member: Member<'l>,
}

impl<'l, S: Store> MemberLimiter<'l, S> {
    /// Sets the weight of the member, 1 by default.
    #[must_use]
    pub fn weight(mut self, weight: Weight) -> Self {
        self.member = self.member.weight(weight);
        self
    }

    /// Gives the member a place however many there are; see [`Member::pinned`].
    #[must_use]
    pub fn pinned(mut self) -> Self {
        self.member = self.member.pinned();
        self
    }

    /// Returns a check of cost 1 of a key against all limits, by the member; set another
    /// [verb](Request::verb) for [`Limiter::decide`].
    pub fn request<'a>(&'a self, key: impl Into<Key<'a>>) -> Request<'a> {
        self.limiter.request(key).member(self.member.borrow())
    }

    /// Holds as the member; see [`Limiter::hold`].
    ///
    /// # Errors
    /// The refusal.
    #[cfg(feature = "tokio")]
    pub async fn hold(&self, key: impl Into<Key<'_>>) -> Result<Hold, Refused> {
        let key = key.into();
        self.limiter.engine.hold(&self.request(&key)).await
    }

    /// Reserves as the member; see [`Limiter::reserve`].
    ///
    /// # Errors
    /// As [`Limiter::reserve`].
    #[cfg(feature = "tokio")]
    pub async fn reserve(
        &self,
        key: impl Into<Key<'_>>,
        estimate: u32,
    ) -> Result<Reservation, ReserveError> {
        let key = key.into();
        let request = self.request(&key).cost(estimate);
        self.limiter.engine.reserve(&request).await
    }
}

/// Plain calls, for counters in this process.
impl<S: LocalStore> MemberLimiter<'_, S> {
    /// Takes 1 unit if it fits.
    #[must_use = "a decision limits nothing unless it is used"]
    pub fn check<'k>(&self, key: impl Into<Key<'k>>) -> Decision {
        self.check_cost(key, 1)
    }

    /// Takes all of the cost or nothing.
    #[must_use = "a decision limits nothing unless it is used"]
    pub fn check_cost<'k>(&self, key: impl Into<Key<'k>>, cost: u32) -> Decision {
        let key = key.into();
        self.limiter.decide_now(&self.request(&key).cost(cost))
    }
}

/// Asynchronous calls, for counters in Redis.
#[cfg(feature = "redis")]
impl MemberLimiter<'_, RedisStore> {
    /// Takes 1 unit if it fits.
    pub async fn check(&self, key: impl Into<Key<'_>>) -> Decision {
        self.check_cost(key, 1).await
    }

    /// Takes all of the cost or nothing.
    pub async fn check_cost(&self, key: impl Into<Key<'_>>, cost: u32) -> Decision {
        let key = key.into();
        self.limiter.decide(&self.request(&key).cost(cost)).await
    }
}
