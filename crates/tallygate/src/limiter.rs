//! Limiters: limits that are decided by an engine. The verbs have the same names for every store:
//! `local` has plain calls, `redis` asynchronous ones.

mod local;
mod member;
#[cfg(feature = "redis")]
mod redis;

use std::sync::Arc;
use std::time::Duration;

use crate::decision::Decision;
use crate::engine::Engine;
#[cfg(feature = "tokio")]
use crate::engine::{AcquireError, Hold, Refused, Reservation, ReserveError, Wait};
use crate::failure::OnFailure;
use crate::key::Key;
use crate::limit::Limit;
use crate::request::{Request, RequestError};
use crate::store::{MemoryStore, Store};

pub use member::MemberLimiter;

/// Limits for keys.
///
/// The verbs are [`check`](Limiter#method.check), `check_cost`, `check_many`, `peek`, `take`, `charge`,
/// `refund` and `reset`. With counters in this process each is a plain call:
///
/// ```
/// use tallygate::{Limiter, Quota};
///
/// let limiter = Limiter::new("token-bucket 10/s burst 50".parse::<Quota>()?);
/// let decision = limiter.check("user:42");
/// assert!(decision.allowed());
/// assert_eq!(decision.remaining(), 49);
/// # Ok::<(), tallygate::QuotaError>(())
/// ```
///
/// With a `RedisStore` each is asynchronous: `limiter.check("user:42").await`. With any other
/// [`Store`], [`decide`](Limiter::decide) decides every verb. A limiter is cheap to clone; clones
/// share the [`Engine`].
#[derive(Debug)]
pub struct Limiter<S = MemoryStore> {
    engine: Engine<S>,
    limits: Arc<[Limit]>,
}

impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Limiter {
            engine: self.engine.clone(),
            limits: Arc::clone(&self.limits),
        }
    }
}

impl Limiter {
    /// Creates a limiter with counters in this process.
    pub fn new(limit: impl Into<Limit>) -> Self {
        Self::with_store(MemoryStore::new(), limit)
    }
}

impl<S: Store> Limiter<S> {
    /// Creates a limiter with a store, by value or as an [`Arc`].
    pub fn with_store(store: S, limit: impl Into<Limit>) -> Self {
        Self::from_engine(Engine::new(store), limit)
    }

    /// Creates a limiter with an engine.
    pub fn from_engine(engine: Engine<S>, limit: impl Into<Limit>) -> Self {
        let limit = limit.into();
        engine.prepare(&limit);
        Limiter {
            engine,
            limits: Arc::new([limit]),
        }
    }

    /// Returns this limiter with one more limit. A request must fit all limits, or is charged to
    /// none.
    ///
    /// # Errors
    /// When a limit has that name already, or there are more than [`MAX_LIMITS`](crate::MAX_LIMITS).
    ///
    /// ```
    /// use tallygate::{Limit, Limiter, Quota};
    ///
    /// let limiter = Limiter::new("token-bucket 10/s".parse::<Quota>()?).and(Quota::per_day(1_000))?;
    /// let decision = limiter.check("user:42");
    /// assert_eq!(decision.binding(), 0); // 9 left of the burst, 999 of the day
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn and(&self, limit: impl Into<Limit>) -> Result<Self, RequestError> {
        let limits: Vec<Limit> = self.limits.iter().cloned().chain([limit.into()]).collect();
        Request::with_limits("", &limits)?;
        limits.iter().for_each(|limit| self.engine.prepare(limit));
        Ok(Limiter {
            engine: self.engine.clone(),
            limits: limits.into(),
        })
    }

    /// Returns a limiter with the same engine and another limit. Counters are stored by name, and
    /// the default name consists of algorithm and period, so a changed limit or burst keeps the
    /// counts.
    ///
    /// ```
    /// use tallygate::{Limiter, Quota};
    ///
    /// let free = Limiter::new(Quota::per_hour(10));
    /// assert_eq!(free.check("user:42").remaining(), 9);
    /// let paid = free.with_limit(Quota::per_hour(1_000));
    /// assert_eq!(paid.check("user:42").remaining(), 998);
    /// ```
    #[must_use]
    pub fn with_limit(&self, limit: impl Into<Limit>) -> Self {
        self.engine.limiter(limit)
    }

    /// Sets what is decided when the store fails, [`OnFailure::Local`] by default; see
    /// [`Engine::on_failure`].
    ///
    /// ```
    /// use tallygate::{Limiter, OnFailure, Quota};
    ///
    /// let login = Limiter::new(Quota::per_minute(5)).on_failure(OnFailure::Closed);
    /// ```
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.engine = self.engine.on_failure(policy);
        self
    }

    /// Sets the deadline of the store, 50 ms by default; see [`Engine::deadline`].
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.engine = self.engine.deadline(deadline);
        self
    }

    /// The limits, in the order of a decision's verdicts.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The engine.
    pub fn engine(&self) -> &Engine<S> {
        &self.engine
    }

    /// The store.
    pub fn store(&self) -> &S {
        self.engine.store()
    }

    /// Returns a check of cost 1 of a key against all limits, for [`decide`](Limiter::decide).
    pub fn request<'a>(&'a self, key: impl Into<Key<'a>>) -> Request<'a> {
        Request::with_limits(key, &*self.limits).expect("the limits were checked on construction")
    }

    /// Decides a request, whichever limits it carries; see [`Engine::decide`].
    #[inline]
    pub async fn decide(&self, request: &Request<'_>) -> Decision {
        self.engine.decide(request).await
    }

    /// Decides a request without waiting; see [`Engine::try_decide`].
    ///
    /// ```
    /// use tallygate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::new(Quota::per_minute(100));
    /// let decision = limiter.try_decide(&limiter.request("user:42"));
    /// assert!(decision.is_some_and(|decision| decision.allowed()));
    /// ```
    #[inline]
    pub fn try_decide(&self, request: &Request<'_>) -> Option<Decision> {
        self.engine.try_decide(request)
    }

    /// Undoes what a decision on a key took, because the request does not count after all. Returns at
    /// once; see [`Engine::undo`].
    ///
    /// ```
    /// use tallygate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::new(Quota::per_minute(100));
    /// let decision = limiter.check_cost("user:42", 5);
    /// assert_eq!(decision.remaining(), 95);
    ///
    /// let status = 304;
    /// if decision.allowed() && status == 304 {
    ///     limiter.undo("user:42", &decision);
    /// }
    /// assert_eq!(limiter.peek("user:42", 1).remaining(), 100);
    /// ```
    pub fn undo<'k>(&self, key: impl Into<Key<'k>>, decision: &Decision) {
        if decision.taken_us().is_some() {
            let key = key.into();
            // At most what was granted is returned.
            self.engine
                .undo(&self.request(&key).cost(u32::MAX), decision);
        }
    }

    /// Undoes what a decision on a request took; see [`Engine::undo`].
    pub fn undo_request(&self, request: &Request<'_>, decision: &Decision) {
        self.engine.undo(request, decision);
    }
}

/// Waiting needs the feature `tokio` and a runtime with timers.
#[cfg(feature = "tokio")]
impl<S: Store> Limiter<S> {
    /// Whether the circuit breaker is open; see [`Engine::store_is_down`].
    pub fn store_is_down(&self) -> bool {
        self.engine.store_is_down()
    }

    /// The number of requests that wait for room or for a shaping delay.
    pub fn waiting(&self) -> usize {
        self.engine.waiting()
    }

    /// Waits until 1 unit is taken, first come, first served for each key; see
    /// [`Engine::acquire`].
    ///
    /// # Errors
    /// When too many requests are waiting, or the store fails and the failure policy refuses.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tallygate::{Limiter, Quota};
    ///
    /// // One at a time, 5 ms apart.
    /// let limiter = Limiter::new("leaky-bucket 1/5ms queue 10".parse::<Quota>()?);
    /// for _ in 0..3 {
    ///     limiter.acquire("mailer").await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self, key: impl Into<Key<'_>>) -> Result<Decision, AcquireError> {
        self.acquire_cost(key, 1).await
    }

    /// Waits until a cost is taken.
    ///
    /// # Errors
    /// As [`acquire`](Limiter::acquire), and when the cost never fits.
    pub async fn acquire_cost(
        &self,
        key: impl Into<Key<'_>>,
        cost: u32,
    ) -> Result<Decision, AcquireError> {
        let key = key.into();
        let request = self.request(&key).cost(cost);
        self.engine.acquire(&request, Wait::forever()).await
    }

    /// Waits until the cost of a request is taken; see [`Engine::acquire`].
    ///
    /// # Errors
    /// As [`Engine::acquire`].
    pub async fn acquire_with(
        &self,
        request: &Request<'_>,
        wait: Wait,
    ) -> Result<Decision, AcquireError> {
        self.engine.acquire(request, wait).await
    }

    /// Takes 1 unit of every limit, and holds that of concurrency limits until the guard is dropped;
    /// see [`Engine::hold`].
    ///
    /// # Errors
    /// The refusal.
    pub async fn hold(&self, key: impl Into<Key<'_>>) -> Result<Hold, Refused> {
        let key = key.into();
        self.engine.hold(&self.request(&key)).await
    }

    /// Charges an estimate, to be [settled](Reservation::settle) when the actual cost is known; see
    /// [`Engine::reserve`].
    ///
    /// # Errors
    /// As [`Engine::reserve`].
    pub async fn reserve(
        &self,
        key: impl Into<Key<'_>>,
        estimate: u32,
    ) -> Result<Reservation, ReserveError> {
        let key = key.into();
        self.engine
            .reserve(&self.request(&key).cost(estimate))
            .await
    }

    /// Decides a request and waits until its shaping delay is over; see [`Engine::admit`].
    ///
    /// # Errors
    /// As [`Engine::admit`].
    pub async fn admit(&self, request: &Request<'_>, wait: Wait) -> Result<Decision, AcquireError> {
        self.engine.admit(request, wait).await
    }
}
