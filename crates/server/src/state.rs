//! What all listeners share: the engine over the store, the active rules and the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tallygate::http::{
    Charge, DelayMode, Enforcement, Plan, Policy, TryEnforce, enforce, try_enforce,
};
use tallygate::{Engine, MemoryStore, RedisStore};

use crate::active_rules::ActiveRules;
use crate::auth::Token;
use crate::metrics::{Metrics, QueueGuard, StoreStats};
use crate::otlp::{self, Tracer};
use crate::redact::Redactor;
use crate::store::ServerStore;
use crate::top_keys::TopKeys;

pub(crate) struct ServerState {
    pub(crate) engine: Engine<ServerStore>,
    pub(crate) active_rules: Arc<ActiveRules>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) top_keys: TopKeys,
    /// `None` if no spans are exported.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// The admin token. Without one only requests from this machine are authorized.
    pub(crate) token: Option<Token>,
    draining: AtomicBool,
    /// Whether the store has ever answered.
    reached: AtomicBool,
}

impl ServerState {
    /// Prepares the store for the active rules.
    pub(crate) fn new(
        engine: Engine<ServerStore>,
        active_rules: Arc<ActiveRules>,
        metrics: Arc<Metrics>,
        redactor: Redactor,
        tracer: Option<Arc<Tracer>>,
        token: Option<Token>,
    ) -> Self {
        active_rules.limits(&mut |limit| engine.prepare(limit));
        ServerState {
            reached: AtomicBool::new(engine.store().memory_store().is_some()),
            engine,
            active_rules,
            metrics,
            top_keys: TopKeys::new(redactor),
            tracer,
            token,
            draining: AtomicBool::new(false),
        }
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

    /// Makes the server not ready: its listeners accept no more connections.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn mark_store_reached(&self) {
        self.reached.store(true, Ordering::Relaxed);
    }

    /// Why no requests should be sent here. A store that is lost later does not count: its failure
    /// policy applies, and other servers have lost it too.
    pub(crate) fn not_ready(&self) -> Option<&'static str> {
        if self.draining.load(Ordering::Relaxed) {
            Some("draining")
        } else if !self.reached.load(Ordering::Relaxed) {
            Some("the store has not answered yet")
        } else {
            None
        }
    }

    /// Counts keys, which visits every slot in memory: too slow for an async thread.
    pub(crate) fn store_stats(&self) -> StoreStats {
        let store = self.engine.store();
        let (memory, redis) = (store.memory_store(), store.redis_store());
        StoreStats {
            breakers: match redis {
                Some(redis) => redis.breakers(),
                None => vec![(store.kind().to_owned(), false)],
            },
            keys: memory.map_or(0, MemoryStore::live_keys),
            keys_capacity: memory.map_or(0, MemoryStore::capacity),
            shared_budgets: memory.map_or(0, MemoryStore::shared_decisions),
            timeouts: self.engine.timeouts(),
            overload: self.engine.overload(),
            refusal_cache: redis
                .map(RedisStore::refusal_cache_stats)
                .unwrap_or_default(),
        }
    }
}
