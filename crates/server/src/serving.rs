//! What every door of a server asks: limits over one store, the rules in force, what is counted.
//! Knows plans and decisions; knows nothing of wire formats.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tollgate::http::{Charge, Outcome, Passage, Plan, Policy};
use tollgate::{Decision, Limiter, OnFailure, Quota, Request, Verb};

use crate::counters::Counters;
use crate::force::Force;
use crate::metrics::{Metrics, Readings};
use crate::token::Token;

/// What every door of a server asks.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Decides. Its own limits play no part.
    pub(crate) limiter: Limiter<Counters>,
    /// The rules in force.
    pub(crate) force: Arc<Force>,
    /// What is counted and timed.
    pub(crate) metrics: Arc<Metrics>,
    /// What administrators away from this machine have to show; none lets none of them in.
    pub(crate) token: Option<Token>,
    draining: AtomicBool,
    /// Whether the store has ever answered.
    reached: AtomicBool,
}

impl Serving {
    /// Puts it all together; what no rule says a policy of, goes by `on_failure`.
    pub(crate) fn new(
        counters: Counters,
        on_failure: OnFailure,
        force: Arc<Force>,
        metrics: Arc<Metrics>,
        token: Option<Token>,
    ) -> Self {
        let reached = counters.kind() == "memory";
        let limiter = Limiter::over(counters, Quota::per_minute(1)).on_failure(on_failure);
        force.limits(&mut |limit| limiter.prepare(limit));
        Serving {
            limiter,
            force,
            metrics,
            token,
            draining: AtomicBool::new(false),
            reached: AtomicBool::new(reached),
        }
    }

    /// Decides a request at once: whoever asked sits any delay out. Counted under a rule's name.
    pub(crate) async fn decide(&self, request: &Request<'_>, rule: &str, shadow: bool) -> Decision {
        let began = Instant::now();
        let decision = self.limiter.decide(request).await;
        self.metrics.took(began.elapsed());
        match request.asks() {
            Verb::Check | Verb::Take | Verb::Charge => {
                self.metrics.decided(rule, outcome(&decision, shadow));
            }
            Verb::Peek | Verb::Refund | Verb::Reset => {}
        }
        decision
    }

    /// Carries a plan out, and sits out the delay of a request that is held back.
    pub(crate) async fn pass(&self, plan: Plan) -> Passage {
        let began = Instant::now();
        let passage = match Passage::at_once(&self.limiter, plan) {
            Ok(passage) => passage,
            Err(plan) => {
                let shapes = |charge: &&Charge| {
                    let mut limits = charge.limits.iter();
                    limits.any(|limit| limit.quota().algorithm().shapes())
                };
                let shaping: Vec<_> = plan
                    .charges()
                    .iter()
                    .filter(shapes)
                    .map(|charge| Arc::clone(&charge.terms.name))
                    .collect();
                let _held = self.metrics.held_back(shaping.iter().map(|name| &**name));
                Passage::of(&self.limiter, plan).await
            }
        };
        let delay = passage.decision().map(Decision::delay).unwrap_or_default();
        self.metrics.took(began.elapsed().saturating_sub(delay));
        for (rule, outcome) in passage.outcomes() {
            self.metrics.decided(rule, outcome);
        }
        passage
    }

    /// Says that no more connections are taken.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Says that the store has answered.
    pub(crate) fn reach(&self) {
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
    pub(crate) fn readings(&self) -> Readings {
        let counters = self.limiter.store();
        Readings {
            store_is_down: self.limiter.store_is_down(),
            keys: counters.live_keys(),
            shared: counters.shared_decisions(),
        }
    }
}

fn outcome(decision: &Decision, shadow: bool) -> Outcome {
    match (decision.allowed(), decision.degraded()) {
        (false, _) if shadow => Outcome::ShadowRefused,
        (true, true) => Outcome::DegradedAdmitted,
        (false, true) => Outcome::DegradedRefused,
        (false, false) => Outcome::Refused,
        (true, false) if !decision.delay().is_zero() => Outcome::Delayed,
        (true, false) => Outcome::Admitted,
    }
}
