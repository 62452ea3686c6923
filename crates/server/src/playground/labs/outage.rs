//! A store outage: what several replicas admit before, during and after it, with each failure
//! policy.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tallygate::{
    Algorithm, Decision, Limiter, ManualClock, MemoryStore, OnFailure, Quota, Replicas, Request,
    Store, StoreError, StoreErrorKind,
};
use tokio::time::{sleep, timeout};

use super::{LabResult, failed, on_own_thread};

const PERIOD: Duration = Duration::from_secs(60);
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

settings! {
    limit: u32 = 10 in 1..=100,
    replicas: u32 = 2 in 1..=8,
}

pub(super) async fn run(settings: Settings) -> LabResult {
    settings.check()?;
    on_own_thread(move || run_policies(settings)).await
}

async fn run_policies(settings: Settings) -> LabResult {
    let Settings { limit, replicas } = settings;
    let count = NonZeroU32::new(replicas).unwrap_or(NonZeroU32::MIN);
    let quota = Quota::new(Algorithm::SlidingWindowLog, limit, PERIOD).map_err(failed)?;
    let mut policies = Vec::new();
    for (name, policy) in [
        ("open", OnFailure::Open),
        ("closed", OnFailure::Closed),
        ("local", OnFailure::Local(Replicas::Fixed(count))),
    ] {
        let outage = Outage::new(quota, policy, replicas);
        let mut result = outage.run(2 * limit).await?;
        result["policy"] = json!(name);
        policies.push(result);
    }
    Ok(json!({
        "quota": quota.to_string(),
        "limit": limit,
        "replicas": replicas,
        "policies": policies,
    }))
}

struct Outage {
    clock: Arc<ManualClock>,
    store: Arc<SwitchableStore>,
    replicas: Vec<Limiter<Arc<SwitchableStore>>>,
}

impl Outage {
    fn new(quota: Quota, policy: OnFailure, replicas: u32) -> Self {
        let clock = Arc::new(ManualClock::at(1_000_000_000_000));
        let counters = MemoryStore::builder().capacity(8);
        let store = Arc::new(SwitchableStore {
            counters: counters.clock(Arc::clone(&clock)).build(),
            on: AtomicBool::new(true),
        });
        let replica = |_| Limiter::with_store(Arc::clone(&store), quota).on_failure(policy);
        Outage {
            replicas: (0..replicas).map(replica).collect(),
            store,
            clock,
        }
    }

    async fn run(self, sent: u32) -> LabResult {
        let before = self.send(sent).await;
        // After a period, all counters are as new.
        self.clock.advance(PERIOD);
        self.store.on.store(false, Ordering::Relaxed);
        let during = self.send(sent).await;
        self.store.on.store(true, Ordering::Relaxed);
        let recovered = timeout(RECOVERY_TIMEOUT, async {
            while self.replicas.iter().any(Limiter::store_is_down) {
                sleep(POLL_INTERVAL).await;
            }
        });
        if recovered.await.is_err() {
            return Err(failed("the replicas did not detect that the store is back"));
        }
        let after = self.send(sent).await;
        Ok(json!({
            "before": before.to_json(sent),
            "during": during.to_json(sent),
            "after": after.to_json(sent),
            "degraded": before.degraded + during.degraded + after.degraded,
        }))
    }

    async fn send(&self, sent: u32) -> Tally {
        let mut tally = Tally::default();
        for (_, replica) in (0..sent).zip(self.replicas.iter().cycle()) {
            tally.count(&replica.decide(&replica.request("all")).await);
        }
        tally
    }
}

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

    fn to_json(&self, sent: u32) -> Value {
        json!({
            "sent": sent,
            "admitted": self.admitted,
            "refused": self.refused,
            "unavailable": self.unavailable,
        })
    }
}

struct SwitchableStore {
    counters: MemoryStore<Arc<ManualClock>>,
    on: AtomicBool,
}

impl SwitchableStore {
    fn check_on(&self) -> Result<(), StoreError> {
        match self.on.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(StoreError::with_kind(
                StoreErrorKind::Unreachable,
                "it is switched off",
            )),
        }
    }
}

impl Store for SwitchableStore {
    async fn decide(&self, request: &Request<'_>) -> Result<Decision, StoreError> {
        self.check_on()?;
        Ok(self.counters.decide(request))
    }

    fn submit(&self, request: &Request<'_>) {
        if self.check_on().is_ok() {
            self.counters.submit(request);
        }
    }

    fn undo(&self, request: &Request<'_>, decision: &Decision) {
        if self.check_on().is_ok() {
            self.counters.undo(request, decision);
        }
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.check_on()
    }
}
