//! The store goes down: what several replicas let through before, during and after, under each
//! policy. The library decides and recovers by itself; only the store is one that can be switched
//! off.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tallygate::{
    Algorithm, Decision, Limiter, ManualClock, MemoryStore, OnFailure, Quota, Replicas, Request,
    Store, StoreError, StoreErrorKind,
};
use tokio::time::{sleep, timeout};

use super::{Measured, apart, failed, within};

const PERIOD: Duration = Duration::from_secs(60);
/// How long the replicas may take to notice that the store is back.
const BACK_WITHIN: Duration = Duration::from_secs(5);
const LOOKED_EVERY: Duration = Duration::from_millis(10);

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    limit: u32,
    replicas: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            limit: 10,
            replicas: 2,
        }
    }
}

pub(super) async fn run(settings: Settings) -> Measured {
    within("limit", settings.limit, 1..=100)?;
    within("replicas", settings.replicas, 1..=8)?;
    apart(move || every_policy(settings)).await
}

async fn every_policy(settings: Settings) -> Measured {
    let Settings { limit, replicas } = settings;
    let number = NonZeroU32::new(replicas).unwrap_or(NonZeroU32::MIN);
    let quota = Quota::new(Algorithm::SlidingWindowLog, limit, PERIOD).map_err(failed)?;
    let mut policies = Vec::new();
    for (name, policy) in [
        ("open", OnFailure::Open),
        ("closed", OnFailure::Closed),
        ("local", OnFailure::Local(Replicas::Fixed(number))),
    ] {
        let outage = Outage::of(quota, policy, replicas);
        let mut shown = outage.run(2 * limit).await?;
        shown["policy"] = json!(name);
        policies.push(shown);
    }
    Ok(json!({
        "quota": quota.to_string(),
        "limit": limit,
        "replicas": replicas,
        "policies": policies,
    }))
}

/// Replicas over one store.
struct Outage {
    clock: Arc<ManualClock>,
    store: Arc<Switched>,
    replicas: Vec<Limiter<Switched>>,
}

impl Outage {
    fn of(quota: Quota, policy: OnFailure, replicas: u32) -> Self {
        let clock = Arc::new(ManualClock::at(1_000_000_000_000));
        let counters = MemoryStore::builder().capacity(8);
        let store = Arc::new(Switched {
            counters: Arc::new(counters.clock(Arc::clone(&clock)).build()),
            on: AtomicBool::new(true),
        });
        let replica = |_| Limiter::over(Arc::clone(&store), quota).on_failure(policy);
        Outage {
            replicas: (0..replicas).map(replica).collect(),
            store,
            clock,
        }
    }

    async fn run(self, sent: u32) -> Measured {
        let before = self.send(sent).await;
        // A period later everybody's limit is as new.
        self.clock.advance(PERIOD);
        self.store.on.store(false, Ordering::Relaxed);
        let during = self.send(sent).await;
        self.store.on.store(true, Ordering::Relaxed);
        let noticed = timeout(BACK_WITHIN, async {
            while self.replicas.iter().any(Limiter::store_is_down) {
                sleep(LOOKED_EVERY).await;
            }
        });
        if noticed.await.is_err() {
            return Err(failed("the replicas did not notice that the store is back"));
        }
        let after = self.send(sent).await;
        Ok(json!({
            "before": before.shown(sent),
            "during": during.shown(sent),
            "after": after.shown(sent),
            "degraded": before.degraded + during.degraded + after.degraded,
        }))
    }

    /// Sends requests through the replicas in turn.
    async fn send(&self, sent: u32) -> Tally {
        let mut tally = Tally::default();
        for (_, replica) in (0..sent).zip(self.replicas.iter().cycle()) {
            tally.count(&replica.decide(&replica.request("everybody")).await);
        }
        tally
    }
}

/// What came of some requests.
#[derive(Default)]
struct Tally {
    admitted: u32,
    refused: u32,
    unavailable: u32,
    degraded: u32,
}

impl Tally {
    fn count(&mut self, decision: &Decision) {
        self.degraded += u32::from(decision.degraded());
        if decision.allowed() {
            self.admitted += 1;
        } else if decision.unavailable() {
            self.unavailable += 1;
        } else {
            self.refused += 1;
        }
    }

    fn shown(&self, sent: u32) -> Value {
        json!({
            "sent": sent,
            "admitted": self.admitted,
            "refused": self.refused,
            "unavailable": self.unavailable,
        })
    }
}

/// A store that can be switched off.
struct Switched {
    counters: Arc<MemoryStore<Arc<ManualClock>>>,
    on: AtomicBool,
}

impl Switched {
    fn answers(&self) -> Result<(), StoreError> {
        match self.on.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(StoreError::of(
                StoreErrorKind::Unreachable,
                "it is switched off",
            )),
        }
    }
}

impl Store for Switched {
    async fn decide(&self, request: &Request<'_>) -> Result<Decision, StoreError> {
        self.answers()?;
        Ok(self.counters.decide(request))
    }

    fn carry_out(self: &Arc<Self>, request: &Request<'_>) {
        if self.answers().is_ok() {
            self.counters.carry_out(request);
        }
    }

    fn undo(self: &Arc<Self>, request: &Request<'_>, decision: &Decision) {
        if self.answers().is_ok() {
            self.counters.undo(request, decision);
        }
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.answers()
    }
}
