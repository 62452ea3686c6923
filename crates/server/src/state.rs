//! What every door of a server asks: limits over one store, the rules in force, what is counted.
//! Knows plans and decisions; knows nothing of wire formats.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tallygate::http::{
    Charge, DelayMode, Enforcement, Plan, Policy, TryEnforce, enforce, try_enforce,
};
use tallygate::{Engine, OnFailure};

use crate::active_rules::ActiveRules;
use crate::auth::Token;
use crate::metrics::{Metrics, QueueGuard, StoreStats};
use crate::otlp::{self, Tracer};
use crate::redact::Redactor;
use crate::store::ServerStore;
use crate::top_keys::TopKeys;

/// What every door of a server asks.
#[derive(Debug)]
pub(crate) struct ServerState {
    /// Decides requests.
    pub(crate) engine: Engine<ServerStore>,
    /// The rules in force.
    pub(crate) active_rules: Arc<ActiveRules>,
    /// What is counted and timed.
    pub(crate) metrics: Arc<Metrics>,
    /// The keys that are asked for and refused most.
    pub(crate) top_keys: TopKeys,
    /// What requests are traced with, if anybody is told of them.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// What administrators away from this machine have to show; none lets none of them in.
    pub(crate) token: Option<Token>,
    draining: AtomicBool,
    /// Whether the store has ever answered.
    reached: AtomicBool,
}

impl ServerState {
    /// Puts it all together; what no rule says a policy of, goes by `on_failure`.
    pub(crate) fn new(
        store: ServerStore,
        on_failure: OnFailure,
        active_rules: Arc<ActiveRules>,
        metrics: Arc<Metrics>,
        token: Option<Token>,
    ) -> Self {
        let reached = store.kind() == "memory";
        let engine = Engine::new(store).on_failure(on_failure);
        active_rules.limits(&mut |limit| engine.prepare(limit));
        ServerState {
            engine,
            active_rules,
            metrics,
            top_keys: TopKeys::new(Arc::new(Redactor::new())),
            tracer: None,
            token,
            draining: AtomicBool::new(false),
            reached: AtomicBool::new(reached),
        }
    }

    /// Shows keys in clear, but for secrets, where that is wanted.
    pub(crate) fn show_keys(mut self, clear: bool) -> Self {
        self.top_keys = TopKeys::new(Arc::new(Redactor::new().show_keys(clear)));
        self
    }

    /// Tracer requests, if anybody is told of them.
    pub(crate) fn trace(mut self, tracer: Option<Arc<Tracer>>) -> Self {
        self.tracer = tracer;
        self
    }

    /// Enforces a plan and records the outcome.
    pub(crate) async fn enforce(&self, plan: Plan) -> Enforcement {
        let started = Instant::now();
        let enforcement = match try_enforce(&self.engine, plan) {
            TryEnforce::Done(enforcement) => enforcement,
            TryEnforce::Pending(plan) => {
                let _pending = self.track_pending(&plan);
                enforce(&self.engine, plan).await
            }
        };
        let elapsed = started.elapsed().saturating_sub(enforcement.waited());
        self.record(&enforcement, elapsed);
        enforcement
    }

    /// Counts a request in the queue depth of every rule that may delay it, until the guard is
    /// dropped.
    pub(crate) fn track_pending(&self, plan: &Plan) -> QueueGuard {
        let delays = |charge: &&Charge| {
            let mut limits = charge.limits.iter();
            plan.delay_mode() == DelayMode::Wait
                && limits.any(|limit| limit.quota().algorithm().is_shaping())
        };
        let delaying = plan.charges().iter().filter(delays);
        self.metrics
            .enqueue(delaying.map(|charge| &*charge.settings.name))
    }

    /// Records a decision in the metrics, the current span and the top keys.
    pub(crate) fn record(&self, enforcement: &Enforcement, elapsed: Duration) {
        let plan = enforcement.plan();
        // A check that its rule stops is not timed: nothing was decided.
        if plan.delay_mode() == DelayMode::Wait || plan.stopped().is_none() {
            self.metrics.observe_decision(elapsed);
        }
        for (rule, outcome) in enforcement.outcomes() {
            self.metrics.record_decision(rule, outcome);
            otlp::record_decision(rule, outcome, elapsed);
        }
        let now = Instant::now();
        for (charge, outcome) in enforcement.charges() {
            self.top_keys
                .count(now, &charge.settings.name, &charge.key, outcome);
        }
    }

    /// Says that no more connections are taken.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Says that the store has answered.
    pub(crate) fn mark_store_reached(&self) {
        self.reached.store(true, Ordering::Relaxed);
    }

    /// Why nothing should be sent here, if so: it drains, or its store has never answered. A store
    /// that was lost later is met by policy, and everybody else has lost it too.
    pub(crate) fn not_ready(&self) -> Option<&'static str> {
        if self.draining.load(Ordering::Relaxed) {
            Some("draining")
        } else if !self.reached.load(Ordering::Relaxed) {
            Some("the store has not answered yet")
        } else {
            None
        }
    }

    /// What is read off when somebody looks at the metrics. Takes a while.
    pub(crate) fn store_stats(&self) -> StoreStats {
        let store = self.engine.store();
        StoreStats {
            is_down: self.engine.store_is_down(),
            keys: store.live_keys(),
            shared_budgets: store.shared_decisions(),
        }
    }
}
