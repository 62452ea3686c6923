//! Overload: deadlines that are missed although the store is up.
#![cfg(feature = "tokio")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use tallygate::store::{Guard, StoreErrorKind};
use tallygate::{
    Decision, Engine, Limit, Limiter, MemoryStore, OnFailure, Quota, Replicas, Request, Store,
    StoreError,
};

/// A store that misses every deadline.
struct SlowStore {
    silent: AtomicBool,
    queue_full: AtomicBool,
    calls: AtomicU32,
    /// Whether every request is known to be refused.
    exhausted: AtomicBool,
    guard: Arc<Guard>,
}

impl SlowStore {
    fn new() -> Self {
        SlowStore {
            silent: AtomicBool::new(false),
            queue_full: AtomicBool::new(false),
            calls: AtomicU32::new(0),
            exhausted: AtomicBool::new(false),
            guard: Arc::new(Guard::new()),
        }
    }
}

impl Store for SlowStore {
    async fn decide(&self, _: &Request<'_>) -> Result<Decision, StoreError> {
        self.calls.fetch_add(1, Relaxed);
        if self.queue_full.load(Relaxed) {
            let kind = StoreErrorKind::Overloaded;
            return Err(StoreError::with_kind(kind, "the queue is full"));
        }
        std::future::pending().await
    }

    fn try_decide(&self, request: &Request<'_>) -> Option<Decision> {
        // Known only after the request was sent.
        let known = self.exhausted.load(Relaxed) && self.calls.load(Relaxed) > 0;
        known.then(|| {
            let store = MemoryStore::new();
            while MemoryStore::decide(&store, request).allowed() {}
            MemoryStore::decide(&store, request)
        })
    }

    fn submit(&self, _: &Request<'_>) {}

    fn undo(&self, _: &Request<'_>, _: &Decision) {}

    fn replicas(&self) -> Option<u32> {
        Some(2)
    }

    fn guard(&self) -> Option<&Arc<Guard>> {
        Some(&self.guard)
    }

    fn is_silent(&self, _: &Request<'_>) -> bool {
        self.silent.load(Relaxed)
    }
}

const OPEN: OnFailure = OnFailure::Open;
const COUNTED: OnFailure = OnFailure::Local(Replicas::Counted {
    at_least: NonZeroU32::MIN,
});

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

async fn decide<S: Store>(limiter: &Limiter<S>, key: &str) -> Decision {
    limiter.decide(&limiter.request(key)).await
}

#[tokio::test(start_paused = true)]
async fn open_and_local_limits_admit_the_local_share_and_no_more() {
    for policy in [OPEN, COUNTED] {
        let limiter = Limiter::with_store(SlowStore::new(), quota("fixed-window 20/366d"));
        let limiter = limiter.on_failure(policy);
        let mut admitted = 0;
        for _ in 0..100 {
            let decision = decide(&limiter, "a").await;
            assert!(decision.degraded() && !decision.unavailable());
            admitted += u32::from(decision.allowed());
        }
        // One of two replicas.
        assert_eq!(admitted, 10, "{policy:?}");
        assert!(
            !limiter.store_is_down(),
            "overload must not open the breaker"
        );
        assert_eq!(limiter.engine().overload().local, 100);
        assert_eq!(limiter.engine().timeouts(), 100);
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_limit_admits_nothing_and_says_that_it_is_overload() {
    let limiter = Limiter::with_store(SlowStore::new(), quota("20/min"));
    let limiter = limiter.on_failure(OnFailure::Closed);
    for _ in 0..10 {
        let decision = decide(&limiter, "a").await;
        assert!(!decision.allowed() && decision.unavailable() && decision.shed());
        assert_eq!(decision.retry_after(), None);
    }
    assert_eq!(limiter.engine().overload().closed, 10);
    assert!(!limiter.store_is_down());
    // Once the store is silent, it is a failure.
    limiter.store().silent.store(true, Relaxed);
    let decision = decide(&limiter, "a").await;
    assert!(decision.unavailable() && !decision.shed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_queued_is_shed_whatever_the_policy() {
    for policy in [OPEN, COUNTED, OnFailure::Closed] {
        let limiter = Limiter::with_store(SlowStore::new(), quota("20/min")).on_failure(policy);
        limiter.store().queue_full.store(true, Relaxed);
        for _ in 0..10 {
            let decision = decide(&limiter, "a").await;
            assert!(!decision.allowed() && decision.shed() && decision.degraded());
        }
        assert_eq!(limiter.engine().overload().shed, 10);
        assert!(!limiter.store_is_down());
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_refusal_answers_first_and_is_not_degraded() {
    let limiter = Limiter::with_store(SlowStore::new(), quota("1/min")).on_failure(OPEN);
    limiter.store().exhausted.store(true, Relaxed);
    // Sent, then known.
    let decision = decide(&limiter, "a").await;
    assert!(!decision.allowed() && !decision.degraded());
    assert_eq!(limiter.engine().overload().cached, 1);
    // Known before it is sent.
    assert!(!decide(&limiter, "a").await.allowed());
    assert_eq!(limiter.store().calls.load(Relaxed), 1);
    assert_eq!(limiter.engine().overload().cached, 1);
}

#[tokio::test(start_paused = true)]
async fn engines_over_one_store_share_their_local_counters_and_their_breaker() {
    let store = Arc::new(SlowStore::new());
    let limit = Limit::named("shared", quota("fixed-window 20/366d"));
    let engines = [(); 2].map(|()| Engine::new(Arc::clone(&store)));
    let mut admitted = 0;
    for i in 0..40 {
        let request = Request::new("a", &limit);
        admitted += u32::from(engines[i % 2].decide(&request).await.allowed());
    }
    assert_eq!(admitted, 10);
    store.silent.store(true, Relaxed);
    for _ in 0..5 {
        engines[0].decide(&Request::new("a", &limit)).await;
    }
    assert!(engines[1].store_is_down());
}
