//! The layer: a policy, an engine and hooks.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::Response;
use bytes::Bytes;
use tower_layer::Layer;

use super::RateLimit;
use crate::engine::Engine;
use crate::http::{ClientAddress, Enforcement, Head, Plan, Policy, Refusal};
use crate::rules::{Rule, Rules};
use crate::store::{MemoryStore, Store};

/// A tower layer that enforces rate limits.
///
/// By default the counters are in this process. A layer [with a store](RateLimitLayer::with_store)
/// such as `RedisStore` shares them with other processes. Clones of a layer, and the services that
/// it wraps, share their counters.
pub struct RateLimitLayer<P = Rules, S = MemoryStore> {
    // A router without state applies its layers for every request: cloning has to be cheap.
    shared: Arc<Shared<P, S>>,
}

struct Shared<P, S> {
    engine: Engine<S>,
    policy: Arc<P>,
    on_refused: Option<Arc<OnRefused>>,
    on_decision: Option<Arc<OnDecision>>,
    on_pending: Option<Arc<OnPending>>,
}

type OnRefused = dyn Fn(&Refusal<'_>, &Head<'_>, Response<Bytes>) -> Response<Bytes> + Send + Sync;
type OnDecision = dyn Fn(&Enforcement, Duration) + Send + Sync;
type OnPending = dyn Fn(&Plan) -> PendingGuard + Send + Sync;
/// Dropped when a request is no longer pending.
pub(super) type PendingGuard = Box<dyn Any + Send>;

impl RateLimitLayer {
    /// Enforces a rule with counters in this process.
    ///
    /// # Panics
    /// When the rule has more than 64 quotas.
    pub fn new(rule: Rule) -> Self {
        RateLimitLayer::with_store(MemoryStore::new(), rule)
    }
}

impl<S: Store> RateLimitLayer<Rules, S> {
    /// Enforces a rule with counters in a store, by value or as an [`Arc`]. Each layer has its own
    /// circuit breaker; layers [with a shared engine](RateLimitLayer::with_engine) share one.
    ///
    /// # Panics
    /// When the rule has more than 64 quotas.
    pub fn with_store(store: S, rule: Rule) -> Self {
        RateLimitLayer::with_engine(Engine::new(store), Rules::default().with_rule(rule))
    }

    /// Adds a rule. A request must fit all rules, or is charged to none.
    ///
    /// # Panics
    /// When a rule has that name already, or the rule has more than 64 quotas.
    #[must_use]
    pub fn and(self, rule: Rule) -> Self {
        self.map_rules(|rules| rules.with_rule(rule))
    }

    /// Sets how the address of the client is found, the socket's peer by default.
    #[must_use]
    pub fn client(self, client: ClientAddress) -> Self {
        self.map_rules(|rules| rules.with_client(client))
    }

    fn map_rules(self, change: impl FnOnce(Rules) -> Rules) -> Self {
        let mut shared = Arc::unwrap_or_clone(self.shared);
        let rules = change(Arc::unwrap_or_clone(shared.policy));
        Policy::limits(&rules, &mut |limit| shared.engine.prepare(limit));
        shared.policy = Arc::new(rules);
        RateLimitLayer {
            shared: Arc::new(shared),
        }
    }
}

impl<P: Policy, S: Store> RateLimitLayer<P, S> {
    /// Enforces any policy with an engine.
    pub fn with_engine(engine: Engine<S>, policy: P) -> Self {
        policy.limits(&mut |limit| engine.prepare(limit));
        let shared = Shared {
            engine,
            policy: Arc::new(policy),
            on_refused: None,
            on_decision: None,
            on_pending: None,
        };
        RateLimitLayer {
            shared: Arc::new(shared),
        }
    }

    fn with_hook(self, set: impl FnOnce(&mut Shared<P, S>)) -> Self {
        let mut shared = Arc::unwrap_or_clone(self.shared);
        set(&mut shared);
        RateLimitLayer {
            shared: Arc::new(shared),
        }
    }

    /// Calls a function for every refused request, which may change the response.
    ///
    /// ```
    /// use tallygate::Quota;
    /// use tallygate::rules::Rule;
    /// use tallygate::tower::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::new(Rule::new("all", Quota::per_second(100))).on_refused(
    ///     |refusal, head, mut response| {
    ///         eprintln!("{} {}: {}", head.method(), head.uri().path(), refusal.detail());
    ///         response.headers_mut().insert("x-refused-by", "tallygate".parse().unwrap());
    ///         response
    ///     },
    /// );
    /// ```
    #[must_use]
    pub fn on_refused(
        self,
        hook: impl Fn(&Refusal<'_>, &Head<'_>, Response<Bytes>) -> Response<Bytes>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.with_hook(|shared| shared.on_refused = Some(Arc::new(hook)))
    }

    /// Calls a function for every decision with the time that it took, shaping delays excluded.
    #[must_use]
    pub fn on_decision(
        self,
        hook: impl Fn(&Enforcement, Duration) + Send + Sync + 'static,
    ) -> Self {
        self.with_hook(|shared| shared.on_decision = Some(Arc::new(hook)))
    }

    /// Calls a function for every request that waits for the store or for a shaping delay. The
    /// returned guard is dropped when the request is decided or cancelled.
    #[must_use]
    pub fn on_pending<G: Send + 'static>(
        self,
        hook: impl Fn(&Plan) -> G + Send + Sync + 'static,
    ) -> Self {
        let hook = move |plan: &Plan| -> PendingGuard { Box::new(hook(plan)) };
        self.with_hook(|shared| shared.on_pending = Some(Arc::new(hook)))
    }

    /// The engine.
    pub fn engine(&self) -> &Engine<S> {
        &self.shared.engine
    }

    /// The policy.
    pub fn policy(&self) -> &Arc<P> {
        &self.shared.policy
    }

    /// The start of a decision, if it is timed.
    #[inline]
    pub(super) fn start_timer(&self) -> Option<Instant> {
        self.shared.on_decision.as_ref().map(|_| Instant::now())
    }

    pub(super) fn pending_guard(&self, plan: &Plan) -> Option<PendingGuard> {
        self.shared.on_pending.as_ref().map(|hook| hook(plan))
    }

    /// Calls the hooks and returns the response to a refused request.
    #[inline]
    pub(super) fn refuse(
        &self,
        enforcement: &Enforcement,
        head: &Head<'_>,
        started: Option<Instant>,
    ) -> Option<Response<Bytes>> {
        if let Some((hook, started)) = self.shared.on_decision.as_ref().zip(started) {
            hook(
                enforcement,
                started.elapsed().saturating_sub(enforcement.waited()),
            );
        }
        let refusal = enforcement.refusal()?;
        let mut response = refusal.response(head);
        enforcement.write_headers(response.headers_mut());
        Some(match &self.shared.on_refused {
            Some(hook) => hook(&refusal, head, response),
            None => response,
        })
    }
}

impl<P, S> RateLimitLayer<P, S> {
    /// The engine, whatever its store and policy are.
    pub(super) fn shared_engine(&self) -> &Engine<S> {
        &self.shared.engine
    }
}

impl<P, S> Clone for RateLimitLayer<P, S> {
    fn clone(&self) -> Self {
        RateLimitLayer {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<P, S> Clone for Shared<P, S> {
    fn clone(&self) -> Self {
        Shared {
            engine: self.engine.clone(),
            policy: Arc::clone(&self.policy),
            on_refused: self.on_refused.clone(),
            on_decision: self.on_decision.clone(),
            on_pending: self.on_pending.clone(),
        }
    }
}

impl<I, P, S> Layer<I> for RateLimitLayer<P, S> {
    type Service = RateLimit<I, P, S>;

    fn layer(&self, inner: I) -> Self::Service {
        RateLimit::new(inner, self.clone())
    }
}

impl<P: fmt::Debug, S> fmt::Debug for RateLimitLayer<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("policy", &self.shared.policy)
            .finish_non_exhaustive()
    }
}
