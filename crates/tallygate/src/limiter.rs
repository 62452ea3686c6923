//! What callers hold: limits over a store. Knows nothing of where the counters are.

#[cfg(feature = "tokio")]
mod admit;
#[cfg(feature = "tokio")]
mod breaker;
mod fail;
#[cfg(feature = "tokio")]
mod line;
#[cfg(feature = "tokio")]
mod seats;
#[cfg(feature = "tokio")]
mod wait;

use std::sync::Arc;
use std::time::Duration;

use tallygate_core::Verb;

use crate::clock::Clock;
use crate::decision::Decision;
use crate::failure::OnFailure;
use crate::key::Key;
use crate::limit::Limit;
use crate::request::{Request, RequestError};
use crate::store::{MemoryStore, Store};
use fail::{Guard, Plan};
#[cfg(feature = "tokio")]
pub use wait::{AcquireError, Wait};

/// Limits over a store: asks whether a key may go ahead.
///
/// On the memory store every question is a plain call:
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
/// Over any store, [`decide`](Limiter::decide) is the same asynchronously. A limiter is cheap to
/// clone; clones share the store.
#[derive(Debug)]
pub struct Limiter<S = MemoryStore> {
    store: Arc<S>,
    limits: Arc<[Limit]>,
    plan: Plan,
    guard: Arc<Guard>,
    #[cfg(feature = "tokio")]
    waiting: Arc<line::Waiting>,
}

impl<S> Limiter<S> {
    /// The same store and the same waiting lines under other limits.
    fn under(&self, limits: Arc<[Limit]>) -> Self {
        Limiter {
            store: Arc::clone(&self.store),
            limits,
            plan: self.plan,
            guard: Arc::clone(&self.guard),
            #[cfg(feature = "tokio")]
            waiting: Arc::clone(&self.waiting),
        }
    }
}

impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        self.under(Arc::clone(&self.limits))
    }
}

impl Limiter {
    /// Limits each key, counting in a memory store of its own.
    pub fn new(limit: impl Into<Limit>) -> Self {
        Self::over(MemoryStore::new(), limit)
    }
}

impl<S: Store> Limiter<S> {
    /// Limits each key, counting in a store, or in one that others use too (an [`Arc`]).
    pub fn over(store: impl Into<Arc<S>>, limit: impl Into<Limit>) -> Self {
        let limiter = Limiter {
            store: store.into(),
            limits: Arc::new([limit.into()]),
            plan: Plan::default(),
            guard: Arc::default(),
            #[cfg(feature = "tokio")]
            waiting: Arc::default(),
        };
        limiter
            .limits
            .iter()
            .for_each(|limit| limiter.prepare(limit));
        limiter
    }

    /// Makes a limit known before the first request that carries it: the store makes room, and
    /// begins to count replicas if the limit's [policy](Limit::on_failure) needs to know them.
    /// The limiter's own limits are known already.
    pub fn prepare(&self, limit: &Limit) {
        self.store.prepare(limit);
        if limit.own_policy().is_some_and(OnFailure::counts_replicas) {
            self.store.count_replicas();
        }
    }

    /// The same limiter with one limit more: a request has to fit them all, or is charged to none.
    ///
    /// # Errors
    /// When there is a limit of that name already, or there are too many.
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
        Request::of("", &limits)?;
        limits.iter().for_each(|limit| self.prepare(limit));
        Ok(self.under(limits.into()))
    }

    /// The same store under another limit. Counters are kept by name, and a default name is the
    /// behaviour and the period: a changed limit or burst forgets nobody.
    ///
    /// ```
    /// use tallygate::{Limiter, Quota};
    ///
    /// let free = Limiter::new(Quota::per_hour(10));
    /// assert_eq!(free.check("user:42").remaining(), 9);
    /// let paid = free.with(Quota::per_hour(1_000));
    /// assert_eq!(paid.check("user:42").remaining(), 998);
    /// ```
    #[must_use]
    pub fn with(&self, limit: impl Into<Limit>) -> Self {
        let limit = limit.into();
        self.prepare(&limit);
        self.under(Arc::new([limit]))
    }

    /// The limits, in the order of a decision's verdicts.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The store.
    pub fn store(&self) -> &Arc<S> {
        &self.store
    }

    /// A check of cost 1 of a key against this limiter's limits, to be changed as needed and
    /// given to [`decide`](Limiter::decide).
    pub fn request<'a>(&'a self, key: impl Into<Key<'a>>) -> Request<'a> {
        Request::of(key, &*self.limits).expect("a limiter's limits were checked when it was made")
    }
}

impl<S: Store> Limiter<S> {
    /// Decides a request, whichever limits it carries. A store that does not answer in time, or
    /// has not answered lately, is decided without, as [`on_failure`](Limiter::on_failure) says;
    /// such a decision is [degraded](Decision::degraded).
    #[inline]
    pub async fn decide(&self, request: &Request<'_>) -> Decision {
        match self.decide_at_once(request) {
            Some(decision) => decision,
            None => self.guard.decide(&self.store, request, self.plan).await,
        }
    }

    /// Decides a request without waiting, where the counters are in this process; gives nothing,
    /// and has decided nothing, where they are not. For those who would rather not make a future
    /// for what is known at once.
    ///
    /// ```
    /// use tallygate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::new(Quota::per_minute(100));
    /// let decision = limiter.decide_at_once(&limiter.request("user:42"));
    /// assert!(decision.is_some_and(|decision| decision.allowed()));
    /// ```
    #[inline]
    pub fn decide_at_once(&self, request: &Request<'_>) -> Option<Decision> {
        self.store.decide_at_once(request)
    }

    /// Takes back what a decision took, because the request did not count after all: a page that
    /// had not changed, a failed attempt. Nobody waits for it.
    ///
    /// It is taken back as of the moment it was taken, as far as it still weighs, and never more:
    /// however late, nobody is admitted who would not have been without the request. A
    /// [refund](Verb::Refund) gives back to whatever is counted now.
    ///
    /// The request is the one that was decided, or some of its limits if the others do count.
    /// Where nothing was taken from the store, because the decision was a refusal,
    /// [degraded](Decision::degraded) or [shared](Decision::shared), nothing is taken back; nor
    /// when the store fails meanwhile. To be called once: what is undone twice, or was reset in
    /// between, is given to others.
    ///
    /// ```
    /// use tallygate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::new(Quota::per_minute(100));
    /// let request = limiter.request("user:42").cost(5);
    /// let decision = limiter.decide_now(&request);
    /// assert_eq!(decision.remaining(), 95);
    ///
    /// let status = 304; // whatever answering it came to
    /// if decision.allowed() && status == 304 {
    ///     limiter.undo(&request, &decision);
    /// }
    /// assert_eq!(limiter.peek("user:42", 1).remaining(), 100);
    /// ```
    pub fn undo(&self, request: &Request<'_>, decision: &Decision) {
        if decision.taken_us().is_some() {
            self.store.undo(request, decision);
        }
    }

    /// The same limiter with another answer for when the store does not give one:
    /// [`OnFailure::Open`] unless told otherwise. A limit may have [its own](Limit::on_failure).
    ///
    /// ```
    /// use tallygate::{Limiter, OnFailure, Quota};
    ///
    /// let login = Limiter::new(Quota::per_minute(5)).on_failure(OnFailure::Closed);
    /// ```
    #[must_use]
    pub fn on_failure(&self, policy: OnFailure) -> Self {
        if policy.counts_replicas() {
            self.store.count_replicas();
        }
        let mut limiter = self.clone();
        limiter.plan.policy = policy;
        limiter
    }

    /// The same limiter with another deadline for the store: 50 ms unless told otherwise. A limit
    /// may have [its own](Limit::deadline). It needs the feature `tokio`; without it a store has to keep its own.
    #[must_use]
    pub fn deadline(&self, deadline: Duration) -> Self {
        let mut limiter = self.clone();
        limiter.plan.deadline = deadline;
        limiter
    }

    /// Whether the store is not asked at the moment because it has not answered lately. It is
    /// probed in the background and asked again when it is well.
    #[cfg(feature = "tokio")]
    pub fn store_is_down(&self) -> bool {
        self.guard.breaker.is_open()
    }
}

/// Plain calls, for counters in this process.
impl<C: Clock> Limiter<MemoryStore<C>> {
    /// Takes 1, if it fits.
    #[must_use = "a decision that nobody looks at limits nothing"]
    #[inline]
    pub fn check<'k>(&self, key: impl Into<Key<'k>>) -> Decision {
        self.ask(key.into(), Verb::Check, 1)
    }

    /// Takes all of the cost, if it fits, or nothing.
    #[must_use = "a decision that nobody looks at limits nothing"]
    #[inline]
    pub fn check_cost<'k>(&self, key: impl Into<Key<'k>>, cost: u32) -> Decision {
        self.ask(key.into(), Verb::Check, cost)
    }

    /// Takes 1 for each key, in order, where it fits: much faster than one by one once the keys
    /// outgrow the processor's caches.
    ///
    /// ```
    /// use tallygate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::new(Quota::per_minute(2));
    /// let decisions = limiter.check_many(["a", "b", "a", "a"]);
    /// let allowed: Vec<bool> = decisions.iter().map(|d| d.allowed()).collect();
    /// assert_eq!(allowed, [true, true, true, false]);
    /// ```
    #[must_use = "a decision that nobody looks at limits nothing"]
    pub fn check_many<'k, K: Into<Key<'k>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Decision> {
        let keys = keys.into_iter().map(Into::into);
        match &*self.limits {
            [limit] => self.store.check_each(keys, limit),
            _ => {
                let keys: Vec<Key<'k>> = keys.collect();
                let requests: Vec<Request<'_>> = keys.iter().map(|key| self.request(key)).collect();
                self.store.decide_many(&requests)
            }
        }
    }

    /// Answers as [`check_cost`](Limiter::check_cost) would and changes nothing.
    #[must_use = "a decision that nobody looks at limits nothing"]
    pub fn peek<'k>(&self, key: impl Into<Key<'k>>, cost: u32) -> Decision {
        self.ask(key.into(), Verb::Peek, cost)
    }

    /// Takes as much of the cost as fits.
    #[must_use = "a decision that nobody looks at limits nothing"]
    pub fn take<'k>(&self, key: impl Into<Key<'k>>, cost: u32) -> Decision {
        self.ask(key.into(), Verb::Take, cost)
    }

    /// Takes the cost, whatever fits; later requests wait the debt out.
    pub fn charge<'k>(&self, key: impl Into<Key<'k>>, cost: u32) -> Decision {
        self.ask(key.into(), Verb::Charge, cost)
    }

    /// Gives back what was taken for nothing.
    pub fn refund<'k>(&self, key: impl Into<Key<'k>>, cost: u32) -> Decision {
        self.ask(key.into(), Verb::Refund, cost)
    }

    /// Forgets the key.
    pub fn reset<'k>(&self, key: impl Into<Key<'k>>) -> Decision {
        self.ask(key.into(), Verb::Reset, 0)
    }

    /// Decides a request at once, whichever limits it carries.
    pub fn decide_now(&self, request: &Request<'_>) -> Decision {
        self.store.decide(request)
    }

    /// Decides many requests at once, in order, whichever limits they carry.
    pub fn decide_many(&self, requests: &[Request<'_>]) -> Vec<Decision> {
        self.store.decide_many(requests)
    }

    #[inline(always)]
    fn ask(&self, key: Key<'_>, verb: Verb, cost: u32) -> Decision {
        match &*self.limits {
            [limit] => self.store.decide_one(&key, limit, verb, cost),
            _ => self.store.decide(&self.request(&key).verb(verb).cost(cost)),
        }
    }
}
