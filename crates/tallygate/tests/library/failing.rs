//! What is answered when the store does not: after its deadline, by the policy, and no longer
//! than it takes to find out that it is well again.
#![cfg(feature = "tokio")]

mod own_policy;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tallygate::{
    Decision, Limit, Limiter, MemoryStore, OnFailure, Quota, Replicas, Request, RetryAfter, Store,
    StoreError, Verb,
};

/// Counters that can be had or not.
#[derive(Default)]
struct Moody {
    counters: Arc<MemoryStore>,
    mood: AtomicU32,
    asked: AtomicU32,
    probed: AtomicU32,
    counted: AtomicU32,
    counts: AtomicU32,
}

const WELL: u32 = 0;
const FAILS: u32 = 1;
const HANGS: u32 = 2;

impl Moody {
    async fn answer(&self) -> Result<(), StoreError> {
        match self.mood.load(Relaxed) {
            WELL => Ok(()),
            FAILS => Err(StoreError::new("gone")),
            _ => std::future::pending().await,
        }
    }
}

impl Store for Moody {
    async fn decide(&self, request: &Request<'_>) -> Result<Decision, StoreError> {
        self.asked.fetch_add(1, Relaxed);
        self.answer().await?;
        Ok(MemoryStore::decide(&self.counters, request))
    }

    fn submit(&self, request: &Request<'_>) {
        let _ = MemoryStore::decide(&self.counters, request);
    }

    fn undo(&self, request: &Request<'_>, decision: &Decision) {
        self.counters.undo(request, decision);
    }

    fn count_replicas(&self) {
        self.counts.fetch_add(1, Relaxed);
    }

    fn replicas(&self) -> Option<u32> {
        Some(self.counted.load(Relaxed)).filter(|&count| count > 0)
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.probed.fetch_add(1, Relaxed);
        self.answer().await
    }
}

fn moody(mood: u32, quota: &str) -> Limiter<Moody> {
    let store = Moody::default();
    store.mood.store(mood, Relaxed);
    Limiter::with_store(store, quota.parse::<Quota>().unwrap())
}

/// A limiter whose store fails.
pub(crate) fn broken(quota: Quota) -> Limiter<impl Store> {
    moody(FAILS, &quota.to_string())
}

async fn check<S: Store>(limiter: &Limiter<S>, key: &str) -> Decision {
    limiter.decide(&limiter.request(key)).await
}

fn fixed(replicas: u32) -> OnFailure {
    OnFailure::Local(Replicas::Fixed(NonZeroU32::new(replicas).unwrap()))
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_waited_for_until_the_deadline_and_no_longer() {
    let limiter = moody(HANGS, "100/min");
    for (limiter, deadline) in [
        (limiter.clone(), Duration::from_millis(50)),
        (
            limiter.deadline(Duration::from_millis(7)),
            Duration::from_millis(7),
        ),
    ] {
        let before = tokio::time::Instant::now();
        assert!(check(&limiter, "a").await.degraded());
        // The clock stands still but for timers, which have whole milliseconds.
        assert!(before.elapsed() - deadline <= Duration::from_millis(1));
    }
}

#[tokio::test]
async fn open_admits_closed_refuses_and_neither_looks_like_a_quota() {
    let limiter = moody(FAILS, "1/min");
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
async fn verbs_that_take_nothing_are_granted_nothing_when_open() {
    let limiter = moody(FAILS, "5/min");
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
async fn local_counts_each_its_share() {
    let limiter = moody(FAILS, "fixed-window 100/366d").on_failure(fixed(30));
    let mut allowed = 0;
    for _ in 0..10 {
        let decision = check(&limiter, "a").await;
        assert!(decision.degraded() && !decision.unavailable() && !decision.shared());
        allowed += u32::from(decision.allowed());
        if !decision.allowed() {
            assert!(matches!(decision.retry_after(), Some(RetryAfter::After(_))));
        }
    }
    assert_eq!(allowed, 3, "a thirtieth of 100, rounded down");
}

#[tokio::test]
async fn local_counts_several_limits_all_or_nothing() {
    let user = Limit::named("user", "fixed-window 10/366d".parse().unwrap());
    let tenant = Limit::named("tenant", "fixed-window 40/366d".parse().unwrap());
    let limiter = moody(FAILS, "1/s").on_failure(fixed(2));
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
async fn replicas_are_those_counted_and_never_fewer_than_said() {
    let at_least = NonZeroU32::new(2).unwrap();
    let policy = OnFailure::Local(Replicas::Counted { at_least });
    for (counted, share) in [(0, 50), (1, 50), (5, 20)] {
        let limiter = moody(FAILS, "fixed-window 100/366d").on_failure(policy);
        limiter.store().counted.store(counted, Relaxed);
        assert_eq!(check(&limiter, "a").await.limit(), share);
    }
}

#[tokio::test]
async fn a_share_too_small_to_be_said_is_refused() {
    let limiter = moody(FAILS, "1/366d").on_failure(fixed(10));
    assert!(check(&limiter, "a").await.unavailable());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_left_alone_and_asked_again_when_it_is_well() {
    let limiter = moody(WELL, "fixed-window 1000/366d");
    assert!(!check(&limiter, "a").await.degraded());
    let store = limiter.store();
    store.mood.store(FAILS, Relaxed);
    store.asked.store(0, Relaxed);
    for _ in 0..100 {
        assert!(check(&limiter, "a").await.degraded());
    }
    assert!(limiter.store_is_down());
    assert_eq!(store.asked.load(Relaxed), 5, "after five it is left alone");

    tokio::time::sleep(Duration::from_secs(10)).await;
    let probed = store.probed.load(Relaxed);
    assert!((60..=200).contains(&probed), "{probed} probes in 10 s");
    assert!(limiter.store_is_down());

    store.mood.store(WELL, Relaxed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!limiter.store_is_down());
    let decision = check(&limiter, "a").await;
    assert!(!decision.degraded());
    assert_eq!(decision.remaining(), 998, "nothing was counted meanwhile");
}

#[tokio::test]
async fn a_store_outside_this_process_is_not_asked_at_once() {
    let limiter = moody(WELL, "100/min");
    let request = limiter.request("a");
    assert_eq!(limiter.try_decide(&request), None);
    assert_eq!(limiter.store().asked.load(Relaxed), 0);
    assert_eq!(limiter.decide(&request).await.remaining(), 99);
}

#[tokio::test(start_paused = true)]
async fn a_failure_now_and_then_is_no_reason_to_stop_asking() {
    let limiter = moody(WELL, "100/min");
    for _ in 0..20 {
        limiter.store().mood.store(FAILS, Relaxed);
        for _ in 0..4 {
            check(&limiter, "a").await;
        }
        limiter.store().mood.store(WELL, Relaxed);
        assert!(!check(&limiter, "a").await.degraded());
    }
}

#[tokio::test(start_paused = true)]
async fn limiters_over_one_store_know_together_that_it_is_down() {
    let limiter = moody(HANGS, "100/min");
    let other = limiter
        .with_limit(Quota::per_day(5))
        .on_failure(OnFailure::Closed);
    for _ in 0..5 {
        check(&limiter, "a").await;
    }
    assert!(other.store_is_down());
    let before = tokio::time::Instant::now();
    assert!(check(&other, "b").await.unavailable());
    assert!(before.elapsed().is_zero(), "nobody waits for it");
}
