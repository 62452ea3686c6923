//! What all listeners share: the engine over the store, the active rules and the metrics.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tallygate::http::{
    Charge, DelayMode, Enforcement, Outcome, Plan, Policy, TryEnforce, enforce, try_enforce,
};
use tallygate::store::StoreErrorKind;
use tallygate::{Engine, MemoryStore, RedisStore};

use crate::access_log::{self, AccessLog, Decision};
use crate::active_rules::ActiveRules;
use crate::auth::Token;
use crate::budgets::Budgets;
use crate::endpoints::Endpoints;
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
    pub(crate) budgets: Budgets,
    /// `None` if no spans are exported.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// `None` if requests are not logged.
    pub(crate) access_log: Option<Arc<AccessLog>>,
    /// The admin token. Without one only requests from this machine are authorized.
    pub(crate) token: Option<Token>,
    pub(crate) endpoints: Endpoints,
    draining: AtomicBool,
    store_health: Mutex<StoreHealth>,
}

/// What is known of the store, apart from its breakers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreHealth {
    /// Whether it has ever answered.
    pub(crate) reached: bool,
    /// Why it does not answer now.
    pub(crate) failure: Option<StoreErrorKind>,
}

impl ServerState {
    /// Prepares the store for the active rules.
    #[allow(clippy::too_many_arguments, reason = "each is a part of the state")]
    pub(crate) fn new(
        engine: Engine<ServerStore>,
        active_rules: Arc<ActiveRules>,
        metrics: Arc<Metrics>,
        redactor: Redactor,
        tracer: Option<Arc<Tracer>>,
        access_log: Option<Arc<AccessLog>>,
        token: Option<Token>,
        endpoints: Endpoints,
    ) -> Self {
        active_rules.limits(&mut |limit| engine.prepare(limit));
        ServerState {
            store_health: Mutex::new(StoreHealth {
                reached: engine.store().memory_store().is_some(),
                failure: None,
            }),
            engine,
            active_rules,
            metrics,
            top_keys: TopKeys::new(redactor),
            budgets: Budgets::default(),
            tracer,
            access_log,
            token,
            endpoints,
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
        for rule in enforcement.near_limit() {
            self.metrics.record_near_limit(rule);
        }
        if self.access_log.is_some()
            && let Some(record) = access_log::current()
        {
            record.add_decisions(self.logged_decisions(enforcement), elapsed);
        }
        let now = Instant::now();
        for (charge, outcome) in enforcement.charges() {
            self.top_keys
                .count(now, &charge.settings.name, &charge.key, outcome);
        }
    }

    /// The decisions as the access log shows them: one for each rule and key, and the stop.
    fn logged_decisions(&self, enforcement: &Enforcement) -> impl Iterator<Item = Decision> {
        let stop = enforcement.plan().stopped().map(|stop| Decision {
            rule: stop.settings.name.to_string(),
            key: None,
            outcome: Outcome::Refused,
        });
        let charges = enforcement.charges().map(|(charge, outcome)| {
            let rule = &charge.settings.name;
            let parts = self.active_rules.key_parts(rule).unwrap_or(usize::MAX);
            Decision {
                rule: rule.to_string(),
                key: Some(self.top_keys.redact(&charge.key, parts)),
                outcome,
            }
        });
        stop.into_iter().chain(charges)
    }

    /// Makes the server not ready: its listeners accept no more connections.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn record_store_answer(&self) {
        *self.lock_store_health() = StoreHealth {
            reached: true,
            failure: None,
        };
    }

    pub(crate) fn record_store_failure(&self, kind: StoreErrorKind) {
        self.lock_store_health().failure = Some(kind);
    }

    pub(crate) fn store_health(&self) -> StoreHealth {
        *self.lock_store_health()
    }

    fn lock_store_health(&self) -> MutexGuard<'_, StoreHealth> {
        // No statement leaves it half changed.
        self.store_health
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Why no requests should be sent here. A store that is lost later does not count: its failure
    /// policy applies, and other servers have lost it too.
    pub(crate) fn not_ready(&self) -> Option<&'static str> {
        if self.is_draining() {
            Some("draining")
        } else if !self.store_health().reached {
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
            queues: match redis {
                Some(redis) => redis.queued_calls(),
                None => vec![(store.kind().to_owned(), 0)],
            },
            queue_capacity: redis.map_or(0, |_| RedisStore::MAX_QUEUED_CALLS),
            timeouts: self.engine.timeouts(),
            overload: self.engine.overload(),
            refusal_cache: redis
                .map(RedisStore::refusal_cache_stats)
                .unwrap_or_default(),
            leases: redis.map(RedisStore::lease_stats).unwrap_or_default(),
        }
    }
}
