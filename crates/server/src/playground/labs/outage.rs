//! A store outage: what several replicas admit before, during and after it, with each failure
//! policy.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tallygate::store::StoreErrorKind;
use tallygate::{
    Algorithm, Decision, Limiter, ManualClock, MemoryStore, OnFailure, Quota, Replicas, Request,
    Store, StoreError,
};
use tokio::time::{sleep, timeout};

use super::{LabResult, failed, on_own_thread};

const PERIOD: Duration = Duration::from_secs(60);
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

settings! {
    limit: 10 in 1..=100,
    replicas: 2 in 1..=8,
}

pub(super) async fn run(json: &[u8]) -> LabResult {
    let settings = Settings::parse(json)?;
    on_own_thread(move || run_policies(settings)).await
}

async fn run_policies(Settings { limit, replicas }: Settings) -> LabResult {
    let count = NonZeroU32::new(replicas).unwrap_or(NonZeroU32::MIN);
    let quota = Quota::new(Algorithm::SlidingWindowLog, limit, PERIOD).map_err(failed)?;
    let mut policies = Vec::new();
    for (name, policy) in [
        ("open", OnFailure::Open),
        ("closed", OnFailure::Closed),
        ("local", OnFailure::Local(Replicas::Fixed(count))),
    ] {
        let mut result = outage(quota, policy, replicas).await?;
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

async fn outage(quota: Quota, policy: OnFailure, replicas: u32) -> LabResult {
    let clock = Arc::new(ManualClock::at(1_000_000_000_000));
    let counters = MemoryStore::builder().capacity(8).clock(Arc::clone(&clock));
    let store = Arc::new(SwitchableStore {
        counters: counters.build(),
        on: AtomicBool::new(true),
    });
    let replica = |_| Limiter::with_store(Arc::clone(&store), quota).on_failure(policy);
    let replicas: Vec<_> = (0..replicas).map(replica).collect();
    let mut degraded = 0;

    let before = send(&replicas, 2 * quota.limit(), &mut degraded).await;
    // After a period, all counters are as new.
    clock.advance(PERIOD);
    store.on.store(false, Ordering::Relaxed);
    let during = send(&replicas, 2 * quota.limit(), &mut degraded).await;
    store.on.store(true, Ordering::Relaxed);
    let recovered = timeout(RECOVERY_TIMEOUT, async {
        while replicas.iter().any(Limiter::store_is_down) {
            sleep(POLL_INTERVAL).await;
        }
    });
    if recovered.await.is_err() {
        return Err(failed("the replicas did not detect that the store is back"));
    }
    let after = send(&replicas, 2 * quota.limit(), &mut degraded).await;
    Ok(json!({"before": before, "during": during, "after": after, "degraded": degraded}))
}

/// Sends requests to the replicas in turn and counts the decisions.
async fn send(replicas: &[Limiter<Arc<SwitchableStore>>], sent: u32, degraded: &mut u32) -> Value {
    let (mut admitted, mut unavailable) = (0, 0);
    for (_, replica) in (0..sent).zip(replicas.iter().cycle()) {
        let decision = replica.decide(&replica.request("all")).await;
        admitted += u32::from(decision.allowed());
        unavailable += u32::from(decision.unavailable());
        *degraded += u32::from(decision.degraded());
    }
    json!({
        "sent": sent,
        "admitted": admitted,
        "refused": sent - admitted - unavailable,
        "unavailable": unavailable,
    })
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
