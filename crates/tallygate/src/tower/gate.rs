//! The layer: rules over a store, to be put before services. Knows nothing of how one is called.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::Response;
use bytes::Bytes;
use tower_layer::Layer;

use super::Gated;
use crate::decision::Decision;
use crate::http::{
    ClientAddress, Consulted, Head, Lone, Passage, Plan, Policy, Refusal, Rule, Rules,
};
use crate::limiter::Limiter;
use crate::store::{MemoryStore, Store};

/// A tower layer that lets through what its rules admit.
///
/// A gate on a memory store counts in this process; [`over`](Gate::over) a `RedisStore` it counts
/// with all others. Clones, and the services it is put before, share its counters.
pub struct Gate<P = Rules, S = MemoryStore> {
    // Routers apply their layers anew for every request: a clone has to cost next to nothing.
    shared: Arc<Shared<P, S>>,
}

struct Shared<P, S> {
    limiter: Limiter<S>,
    policy: Arc<P>,
    denied: Option<Arc<OnDenied>>,
    observer: Option<Arc<Observer>>,
    timer: Option<Arc<Timer>>,
    waiting: Option<Arc<Waiting>>,
}

type OnDenied = dyn Fn(&Refusal<'_>, &Head<'_>, Response<Bytes>) -> Response<Bytes> + Send + Sync;
type Observer = dyn Fn(&Passage) + Send + Sync;
type Timer = dyn Fn(&Passage, Duration) + Send + Sync;
type Waiting = dyn Fn(&Plan) -> Held + Send + Sync;
/// What is dropped when a request waits no more.
pub(super) type Held = Box<dyn Any + Send>;

impl Gate {
    /// Puts a rule into force on a memory store of its own.
    pub fn new(rule: Rule) -> Self {
        Gate::over(MemoryStore::new(), rule)
    }
}

impl<S: Store> Gate<Rules, S> {
    /// Puts a rule into force on a store, or on one that others use too (an [`Arc`]).
    ///
    /// # Panics
    /// When the rule has more than 64 quotas.
    pub fn over(store: impl Into<Arc<S>>, rule: Rule) -> Self {
        let rules = Rules::new().and(rule);
        let limit = rules.limits().next().cloned();
        let limiter = Limiter::over(store, limit.expect("a rule has a limit"));
        Gate::with(limiter, rules)
    }

    /// Adds a rule: a request passes all of them, or is charged to none.
    ///
    /// # Panics
    /// When there is a rule of that name already, or the rule has more than 64 quotas.
    #[must_use]
    pub fn and(self, rule: Rule) -> Self {
        self.changed(|rules| rules.and(rule))
    }

    /// Says how clients' addresses are found: the socket's peer unless told otherwise.
    #[must_use]
    pub fn client(self, client: ClientAddress) -> Self {
        self.changed(|rules| rules.client(client))
    }

    fn changed(self, change: impl FnOnce(Rules) -> Rules) -> Self {
        let shared = Arc::unwrap_or_clone(self.shared);
        let rules = change(Arc::unwrap_or_clone(shared.policy));
        let gate = Gate::with(shared.limiter, rules);
        gate.hooked(|new| {
            (new.denied, new.observer) = (shared.denied, shared.observer);
            (new.timer, new.waiting) = (shared.timer, shared.waiting);
        })
    }
}

impl<P: Policy, S: Store> Gate<P, S> {
    /// Puts any policy into force by way of a limiter, whose own limits play no part.
    pub fn with(limiter: Limiter<S>, policy: P) -> Self {
        policy.limits(&mut |limit| limiter.prepare(limit));
        let shared = Shared {
            limiter,
            policy: Arc::new(policy),
            denied: None,
            observer: None,
            timer: None,
            waiting: None,
        };
        Gate {
            shared: Arc::new(shared),
        }
    }

    fn hooked(self, hook: impl FnOnce(&mut Shared<P, S>)) -> Self {
        let mut shared = Arc::unwrap_or_clone(self.shared);
        hook(&mut shared);
        Gate {
            shared: Arc::new(shared),
        }
    }

    /// Changes the answer to a request that is turned away, or counts it.
    ///
    /// ```
    /// use tallygate::Quota;
    /// use tallygate::http::Rule;
    /// use tallygate::tower::Gate;
    ///
    /// let gate = Gate::new(Rule::new("all", Quota::per_second(100))).on_denied(
    ///     |refusal, head, mut response| {
    ///         eprintln!("{} {}: {}", head.method(), head.uri().path(), refusal.detail());
    ///         response.headers_mut().insert("x-refused-by", "tallygate".parse().unwrap());
    ///         response
    ///     },
    /// );
    /// ```
    #[must_use]
    pub fn on_denied(
        self,
        answer: impl Fn(&Refusal<'_>, &Head<'_>, Response<Bytes>) -> Response<Bytes>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.hooked(|shared| shared.denied = Some(Arc::new(answer)))
    }

    /// Is told what became of every request, once it is decided: for metrics.
    #[must_use]
    pub fn observe(self, observer: impl Fn(&Passage) + Send + Sync + 'static) -> Self {
        self.hooked(|shared| shared.observer = Some(Arc::new(observer)))
    }

    /// Is told how long every decision took as well, waiting in a queue apart.
    #[must_use]
    pub fn time(self, timer: impl Fn(&Passage, Duration) + Send + Sync + 'static) -> Self {
        self.hooked(|shared| shared.timer = Some(Arc::new(timer)))
    }

    /// Is told of every request whose decision has to be waited for. What it gives back is dropped
    /// as soon as the request waits no more, because it is decided or its client has left.
    #[must_use]
    pub fn on_waiting<H: Send + 'static>(
        self,
        waiting: impl Fn(&Plan) -> H + Send + Sync + 'static,
    ) -> Self {
        let waiting = move |plan: &Plan| -> Held { Box::new(waiting(plan)) };
        self.hooked(|shared| shared.waiting = Some(Arc::new(waiting)))
    }

    /// The limiter, whose store holds the counters.
    pub fn limiter(&self) -> &Limiter<S> {
        &self.shared.limiter
    }

    /// The policy in force.
    pub fn policy(&self) -> &Arc<P> {
        &self.shared.policy
    }

    #[inline]
    pub(super) fn lone(&self, head: &Head<'_>) -> Option<Lone<'_>> {
        self.shared.policy.lone(head)
    }

    pub(super) fn consult(&self, head: &Head<'_>) -> Consulted<'_> {
        self.shared.policy.consult(head)
    }

    /// Whether a rule's admission leaves nothing to do but to call the service, and to tell its
    /// client.
    #[inline]
    pub(super) fn settles(&self, lone: &Lone<'_>) -> bool {
        let is_watched = self.shared.observer.is_some() || self.shared.timer.is_some();
        lone.counts_always() && !is_watched
    }

    /// When a request came, if anybody wants to know how long it takes.
    pub(super) fn began(&self) -> Option<Instant> {
        self.shared.timer.as_ref().map(|_| Instant::now())
    }

    /// What is dropped when a request with this plan waits no more.
    pub(super) fn waiting(&self, plan: &Plan) -> Option<Held> {
        self.shared.waiting.as_ref().map(|waiting| waiting(plan))
    }

    /// The answer to a request that is turned away; none if it goes ahead.
    pub(super) fn refused(
        &self,
        passage: &Passage,
        head: &Head<'_>,
        began: Option<Instant>,
    ) -> Option<Response<Bytes>> {
        if let Some(observer) = &self.shared.observer {
            observer(passage);
        }
        if let Some((timer, began)) = self.shared.timer.as_ref().zip(began) {
            let delay = passage.decision().map(Decision::delay).unwrap_or_default();
            timer(passage, began.elapsed().saturating_sub(delay));
        }
        let refusal = passage.refusal()?;
        let mut response = refusal.response(head);
        passage.tell(response.headers_mut());
        Some(match &self.shared.denied {
            Some(denied) => denied(&refusal, head, response),
            None => response,
        })
    }
}

impl<P, S> Clone for Gate<P, S> {
    fn clone(&self) -> Self {
        Gate {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<P, S> Clone for Shared<P, S> {
    fn clone(&self) -> Self {
        Shared {
            limiter: self.limiter.clone(),
            policy: Arc::clone(&self.policy),
            denied: self.denied.clone(),
            observer: self.observer.clone(),
            timer: self.timer.clone(),
            waiting: self.waiting.clone(),
        }
    }
}

impl<I, P, S> Layer<I> for Gate<P, S> {
    type Service = Gated<I, P, S>;

    fn layer(&self, inner: I) -> Self::Service {
        Gated::new(inner, self.clone())
    }
}

impl<P: fmt::Debug, S> fmt::Debug for Gate<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("policy", &self.shared.policy)
            .finish_non_exhaustive()
    }
}
