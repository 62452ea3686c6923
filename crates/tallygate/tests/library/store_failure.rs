//! Store failures: the deadline, the failure policies, the breaker and recovery.
#![cfg(feature = "tokio")]

mod limit_policy;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tallygate::{
    Decision, Limit, Limiter, MemoryStore, OnFailure, Quota, Replicas, Request, Retry, Store,
    StoreError, Verb,
};

/// A store that can be made to fail or hang.
#[derive(Default)]
struct FaultyStore {
    inner: Arc<MemoryStore>,
    fault: AtomicU32,
    /// Calls of `decide`.
    decisions: AtomicU32,
    /// Calls of `probe`.
    probes: AtomicU32,
    /// The number of replicas to report; 0 for unknown.
    replicas: AtomicU32,
    /// Calls of `count_replicas`.
    replica_counts: AtomicU32,
}

const LOCAL: OnFailure = OnFailure::Local(Replicas::Fixed(NonZeroU32::MIN));
const HEALTHY: u32 = 0;
const FAILS: u32 = 1;
const HANGS: u32 = 2;

impl FaultyStore {
    async fn respond(&self) -> Result<(), StoreError> {
        match self.fault.load(Relaxed) {
            HEALTHY => Ok(()),
            FAILS => Err(StoreError::new("gone")),
            _ => std::future::pending().await,
        }
    }
}

impl Store for FaultyStore {
    async fn decide(&self, request: &Request<'_>) -> Result<Decision, StoreError> {
        self.decisions.fetch_add(1, Relaxed);
        self.respond().await?;
        Ok(MemoryStore::decide(&self.inner, request))
    }

    fn submit(&self, request: &Request<'_>) {
        let _ = MemoryStore::decide(&self.inner, request);
    }

    fn undo(&self, request: &Request<'_>, decision: &Decision) {
        self.inner.undo(request, decision);
    }

    fn count_replicas(&self) {
        self.replica_counts.fetch_add(1, Relaxed);
    }

    fn replicas(&self) -> Option<u32> {
        Some(self.replicas.load(Relaxed)).filter(|&count| count > 0)
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.probes.fetch_add(1, Relaxed);
        self.respond().await
    }
}

fn faulty_limiter(fault: u32, quota: &str) -> Limiter<FaultyStore> {
    let store = FaultyStore::default();
    store.fault.store(fault, Relaxed);
    Limiter::with_store(store, quota.parse::<Quota>().unwrap())
}

/// A limiter whose store fails.
pub(crate) fn broken_limiter(quota: Quota) -> Limiter<impl Store> {
    faulty_limiter(FAILS, &quota.to_string())
}

async fn check<S: Store>(limiter: &Limiter<S>, key: &str) -> Decision {
    limiter.decide(&limiter.request(key)).await
}

fn local(replicas: u32) -> OnFailure {
    OnFailure::Local(Replicas::Fixed(NonZeroU32::new(replicas).unwrap()))
}

#[tokio::test(start_paused = true)]
async fn a_hanging_store_is_awaited_until_the_deadline() {
    let limiter = faulty_limiter(HANGS, "100/min");
    for (limiter, deadline) in [
        (limiter.clone(), Duration::from_millis(50)),
        (
            limiter.deadline(Duration::from_millis(7)),
            Duration::from_millis(7),
        ),
    ] {
        let before = tokio::time::Instant::now();
        assert!(check(&limiter, "a").await.degraded());
        // Timers have whole milliseconds.
        assert!(before.elapsed() - deadline <= Duration::from_millis(1));
    }
}

#[tokio::test]
async fn open_admits_and_closed_refuses_without_figures_of_a_quota() {
    let limiter = faulty_limiter(FAILS, "1/min").on_failure(OnFailure::Open);
    for _ in 0..3 {
        let open = check(&limiter, "a").await;
        assert!(open.allowed() && open.degraded() && !open.unavailable());
        assert_eq!((open.granted(), open.retry_after()), (1, None));
        assert!(open.verdicts().is_empty());
    }
    let closed = check(&limiter.on_failure(OnFailure::Closed), "a").await;
    assert!(!closed.allowed() && closed.degraded() && closed.unavailable());
    assert_eq!((closed.granted(), closed.retry_after()), (0, None));
    assert!(closed.verdicts().is_empty());
}

#[tokio::test]
async fn the_default_policy_counts_in_this_process() {
    let limiter = faulty_limiter(FAILS, "fixed-window 4/366d");
    let mut admitted = 0;
    for _ in 0..10 {
        let decision = check(&limiter, "a").await;
        assert!(decision.degraded() && !decision.unavailable());
        admitted += u32::from(decision.allowed());
    }
    assert_eq!(admitted, 4, "one replica, until the store has counted more");
}

/// The bounds that docs/guarantees.md states for local counters.
mod local_bounds {
    use super::*;

    async fn admitted(limiter: &Limiter<FaultyStore>, requests: u32) -> u32 {
        let mut admitted = 0;
        for _ in 0..requests {
            admitted += u32::from(check(limiter, "a").await.allowed());
        }
        admitted
    }

    #[tokio::test]
    async fn an_outage_admits_at_most_the_local_share_beyond_the_store() {
        let limiter = faulty_limiter(HEALTHY, "fixed-window 10/366d").on_failure(local(2));
        assert_eq!(admitted(&limiter, 30).await, 10);
        limiter.store().fault.store(FAILS, Relaxed);
        assert_eq!(admitted(&limiter, 30).await, 5);
    }

    #[tokio::test]
    async fn a_limit_below_the_number_of_replicas_admits_one_in_each() {
        let mut total = 0;
        for _ in 0..20 {
            let limiter = faulty_limiter(FAILS, "token-bucket 5/d burst 5").on_failure(local(20));
            total += admitted(&limiter, 10).await;
        }
        assert_eq!(total, 20);
    }

    #[tokio::test]
    async fn a_fleet_that_starts_without_its_store_admits_the_limit_once_per_process() {
        let at_least = NonZeroU32::new(5).unwrap();
        let policies = [
            (OnFailure::default(), 5 * 10),
            (OnFailure::Local(Replicas::Counted { at_least }), 10),
        ];
        for (policy, expected) in policies {
            let mut total = 0;
            for _ in 0..5 {
                let limiter = faulty_limiter(FAILS, "fixed-window 10/366d").on_failure(policy);
                total += admitted(&limiter, 30).await;
            }
            assert_eq!(total, expected, "{policy:?}");
        }
    }
}

#[tokio::test]
async fn verbs_that_take_nothing_grant_nothing_with_the_open_policy() {
    let limiter = faulty_limiter(FAILS, "5/min").on_failure(OnFailure::Open);
    for (verb, granted) in [
        (Verb::Check, 3),
        (Verb::Take, 3),
        (Verb::Charge, 3),
        (Verb::Peek, 0),
        (Verb::Refund, 0),
        (Verb::Reset, 0),
    ] {
        let request = limiter.request("a").cost(3).verb(verb);
        assert_eq!(limiter.decide(&request).await.granted(), granted, "{verb}");
    }
}

#[tokio::test]
async fn local_enforces_the_share_of_a_replica() {
    let limiter = faulty_limiter(FAILS, "fixed-window 100/366d").on_failure(local(30));
    let mut allowed = 0;
    for _ in 0..10 {
        let decision = check(&limiter, "a").await;
        assert!(decision.degraded() && !decision.unavailable() && !decision.shared());
        allowed += u32::from(decision.allowed());
        if !decision.allowed() {
            assert!(matches!(decision.retry_after(), Some(Retry::After(_))));
        }
    }
    assert_eq!(allowed, 3, "a thirtieth of 100, rounded down");
}

#[tokio::test]
async fn local_decides_several_limits_all_or_nothing() {
    let user = Limit::named("user", "fixed-window 10/366d".parse().unwrap());
    let tenant = Limit::named("tenant", "fixed-window 40/366d".parse().unwrap());
    let limiter = faulty_limiter(FAILS, "1/s").on_failure(local(2));
    let both = |who: &'static str| Request::new(who, &user).and("tenant", &tenant).unwrap();
    for who in ["a", "b", "c", "d"] {
        let decision = limiter.decide(&both(who).cost(5)).await;
        assert!(decision.allowed(), "{who}");
    }
    let decision = limiter.decide(&both("e").cost(1)).await;
    assert!(!decision.allowed());
    assert_eq!(
        (decision.binding(), decision.verdicts()[0].remaining),
        (1, 5)
    );
}

#[tokio::test]
async fn the_number_of_replicas_is_the_counted_one_but_at_least_the_configured_one() {
    let at_least = NonZeroU32::new(2).unwrap();
    let policy = OnFailure::Local(Replicas::Counted { at_least });
    for (counted, share) in [(0, 50), (1, 50), (5, 20)] {
        let limiter = faulty_limiter(FAILS, "fixed-window 100/366d").on_failure(policy);
        limiter.store().replicas.store(counted, Relaxed);
        assert_eq!(check(&limiter, "a").await.limit(), share);
    }
}

#[tokio::test]
async fn a_share_below_the_smallest_quota_is_refused() {
    let limiter = faulty_limiter(FAILS, "1/366d").on_failure(local(10));
    assert!(check(&limiter, "a").await.unavailable());
}

#[tokio::test(start_paused = true)]
async fn a_failing_store_is_not_called_until_a_probe_succeeds() {
    let limiter = faulty_limiter(HEALTHY, "fixed-window 1000/366d");
    assert!(!check(&limiter, "a").await.degraded());
    let store = limiter.store();
    store.fault.store(FAILS, Relaxed);
    store.decisions.store(0, Relaxed);
    for _ in 0..100 {
        assert!(check(&limiter, "a").await.degraded());
    }
    assert!(limiter.store_is_down());
    assert_eq!(
        store.decisions.load(Relaxed),
        5,
        "the breaker opens after five failures"
    );

    tokio::time::sleep(Duration::from_secs(10)).await;
    let probes = store.probes.load(Relaxed);
    assert!((60..=200).contains(&probes), "{probes} probes in 10 s");
    assert!(limiter.store_is_down());

    store.fault.store(HEALTHY, Relaxed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!limiter.store_is_down());
    let decision = check(&limiter, "a").await;
    assert!(!decision.degraded());
    assert_eq!(decision.remaining(), 998, "nothing was counted meanwhile");
}

#[tokio::test]
async fn a_remote_store_is_not_called_by_try_decide() {
    let limiter = faulty_limiter(HEALTHY, "100/min");
    let request = limiter.request("a");
    assert_eq!(limiter.try_decide(&request), None);
    assert_eq!(limiter.store().decisions.load(Relaxed), 0);
    assert_eq!(limiter.decide(&request).await.remaining(), 99);
}

#[tokio::test(start_paused = true)]
async fn occasional_failures_do_not_open_the_breaker() {
    let limiter = faulty_limiter(HEALTHY, "100/min");
    for _ in 0..20 {
        limiter.store().fault.store(FAILS, Relaxed);
        for _ in 0..4 {
            check(&limiter, "a").await;
        }
        limiter.store().fault.store(HEALTHY, Relaxed);
        assert!(!check(&limiter, "a").await.degraded());
    }
}

#[tokio::test(start_paused = true)]
async fn limiters_over_one_store_share_its_breaker() {
    let limiter = faulty_limiter(HANGS, "100/min");
    let other = limiter
        .with_limit(Quota::per_day(5))
        .on_failure(OnFailure::Closed);
    for _ in 0..5 {
        check(&limiter, "a").await;
    }
    assert!(other.store_is_down());
    let before = tokio::time::Instant::now();
    assert!(check(&other, "b").await.unavailable());
    assert!(before.elapsed().is_zero(), "the store is not awaited");
}

#[tokio::test(start_paused = true)]
async fn what_is_held_without_the_store_is_counted_and_released_in_this_process() {
    let limiter = faulty_limiter(FAILS, "concurrent 2 for 30s").on_failure(LOCAL);
    let first = limiter.hold("k").await.unwrap();
    let second = limiter.hold("k").await.unwrap();
    assert!(first.decision().degraded());
    let refused = limiter.hold("k").await.unwrap_err();
    assert!(refused.decision().degraded() && !refused.decision().unavailable());
    drop(first);
    second.release().await;
    let both = limiter.request("k").cost(2);
    assert!(limiter.engine().hold(&both).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_not_lost_because_the_store_fails() {
    let limiter = faulty_limiter(HEALTHY, "concurrent 1 for 30s").on_failure(LOCAL);
    let hold = limiter.hold("k").await.unwrap();
    limiter.store().fault.store(FAILS, Relaxed);
    tokio::time::sleep(Duration::from_secs(25)).await;
    limiter.store().fault.store(HEALTHY, Relaxed);
    assert!(!hold.is_lost());
    drop(hold);
    assert!(limiter.hold("k").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_estimate_charged_without_the_store_is_settled_in_this_process() {
    let limiter = faulty_limiter(FAILS, "fixed-window 100/d").on_failure(LOCAL);
    let reservation = limiter.reserve("k", 90).await.unwrap();
    assert!(reservation.decision().degraded());
    reservation.settle(10).await;
    assert!(limiter.reserve("k", 90).await.is_ok());
    assert!(limiter.reserve("k", 1).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn members_share_the_local_part_of_a_limit() {
    let limiter = faulty_limiter(FAILS, "token-bucket 16/d burst 16 shared 4").on_failure(LOCAL);
    let check = async |member: &'static str| {
        let request = limiter.request("k").member(member);
        limiter.decide(&request).await
    };
    assert!(check("light").await.allowed());
    let mut greedy = 0;
    while check("greedy").await.allowed() {
        greedy += 1;
    }
    assert_eq!(greedy, 11);
    assert!(check("light").await.allowed());
}
