//! What every door of a server asks: limits over one store, the rules in force, what is counted.
//! Knows plans and decisions; knows nothing of wire formats.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tallygate::http::{Charge, Outcome, Passage, Plan, Policy, Stop};
use tallygate::{Decision, Limiter, OnFailure, Quota, Request, Verb};

use crate::active_rules::Force;
use crate::auth::Token;
use crate::metrics::{HeldBack, Metrics, Readings};
use crate::otlp::{self, Traces};
use crate::redact::Mask;
use crate::store::Counters;
use crate::top_keys::Top;

/// What every door of a server asks.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Decides. Its own limits play no part.
    pub(crate) limiter: Limiter<Counters>,
    /// The rules in force.
    pub(crate) force: Arc<Force>,
    /// What is counted and timed.
    pub(crate) metrics: Arc<Metrics>,
    /// The keys that are asked for and refused most.
    pub(crate) top: Top,
    /// What requests are traced with, if anybody is told of them.
    pub(crate) traces: Option<Arc<Traces>>,
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
            top: Top::new(Arc::new(Mask::new())),
            traces: None,
            token,
            draining: AtomicBool::new(false),
            reached: AtomicBool::new(reached),
        }
    }

    /// Shows keys in clear, but for secrets, where that is wanted.
    pub(crate) fn show_keys(mut self, clear: bool) -> Self {
        self.top = Top::new(Arc::new(Mask::new().clear(clear)));
        self
    }

    /// Traces requests, if anybody is told of them.
    pub(crate) fn trace(mut self, traces: Option<Arc<Traces>>) -> Self {
        self.traces = traces;
        self
    }

    /// Decides a request at once: whoever asked sits any delay out. Counted under a rule's name.
    pub(crate) async fn decide(&self, request: &Request<'_>, rule: &str, shadow: bool) -> Decision {
        let began = Instant::now();
        let decision = self.limiter.decide(request).await;
        let took = began.elapsed();
        self.metrics.took(took);
        match request.asks() {
            Verb::Check | Verb::Take | Verb::Charge => {
                let outcome = outcome(&decision, shadow);
                self.metrics.decided(rule, outcome);
                otlp::note(rule, outcome, took);
                self.count_keys(began, request, rule, &decision, outcome);
            }
            Verb::Peek | Verb::Refund | Verb::Reset => {}
        }
        decision
    }

    /// Counts a request that a rule stops whatever the counts.
    pub(crate) fn stopped(&self, stop: &Stop, verb: Verb) {
        match verb {
            Verb::Check | Verb::Take | Verb::Charge => {
                self.metrics.decided(&stop.terms.name, Outcome::Refused);
                otlp::note(&stop.terms.name, Outcome::Refused, Duration::ZERO);
            }
            Verb::Peek | Verb::Refund | Verb::Reset => {}
        }
    }

    /// Counts each key of a request once, however many of its limits were asked.
    fn count_keys(
        &self,
        now: Instant,
        request: &Request<'_>,
        rule: &str,
        decision: &Decision,
        outcome: Outcome,
    ) {
        let asked = request.asked();
        for (i, one) in asked.iter().enumerate() {
            if asked[..i].iter().any(|before| before.key == one.key) {
                continue;
            }
            let mut own = asked.iter().zip(decision.verdicts());
            let own_refuses = own.any(|(other, verdict)| {
                !verdict.allowed() && (asked.len() == 1 || other.key == one.key)
            });
            let outcome = match outcome {
                // Another key of the request was refused, and this one went along.
                Outcome::Refused | Outcome::ShadowRefused if !own_refuses => Outcome::Admitted,
                own => own,
            };
            self.top.count(now, rule, &one.key, outcome);
        }
    }

    /// Carries a plan out, and sits out the delay of a request that is held back.
    pub(crate) async fn pass(&self, plan: Plan) -> Passage {
        let began = Instant::now();
        let passage = match Passage::at_once(&self.limiter, plan) {
            Ok(passage) => passage,
            Err(plan) => {
                let _held = self.held_back(&plan);
                Passage::of(&self.limiter, plan).await
            }
        };
        let delay = passage.decision().map(Decision::delay).unwrap_or_default();
        self.passed(&passage, began.elapsed().saturating_sub(delay));
        passage
    }

    /// Counts a request with this plan among those that are held back, until what this gives is
    /// dropped.
    pub(crate) fn held_back(&self, plan: &Plan) -> HeldBack {
        let shapes = |charge: &&Charge| {
            let mut limits = charge.limits.iter();
            limits.any(|limit| limit.quota().algorithm().is_shaping())
        };
        let shaping = plan.charges().iter().filter(shapes);
        self.metrics
            .held_back(shaping.map(|charge| &*charge.terms.name))
    }

    /// Counts and times what became of a request.
    pub(crate) fn passed(&self, passage: &Passage, took: Duration) {
        self.metrics.took(took);
        for (rule, outcome) in passage.outcomes() {
            self.metrics.decided(rule, outcome);
            otlp::note(rule, outcome, took);
        }
        let now = Instant::now();
        for (charge, outcome) in passage.charged() {
            self.top
                .count(now, &charge.terms.name, &charge.key, outcome);
        }
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
        // Whatever its policy, a rule that only watches stops nobody for want of the store.
        (false, true) if shadow && decision.unavailable() => Outcome::DegradedAdmitted,
        (false, _) if shadow => Outcome::ShadowRefused,
        (true, true) => Outcome::DegradedAdmitted,
        (false, true) => Outcome::DegradedRefused,
        (false, false) => Outcome::Refused,
        (true, false) if !decision.delay().is_zero() => Outcome::Delayed,
        (true, false) => Outcome::Admitted,
    }
}
