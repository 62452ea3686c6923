//! What callers build on: threads may share everything, and any store will do.

use std::future::Future;
use std::sync::Arc;

use tallygate::{
    Clock, Decision, Key, Limit, Limiter, ManualClock, MemoryStore, OnFailure, Quota, Request,
    Store, StoreError, SystemClock, Verb,
};

fn shared_by_threads<T: Send + Sync + 'static>() {}
fn sent<T: Send>(thing: T) -> T {
    thing
}

#[test]
fn threads_may_share_everything() {
    shared_by_threads::<Limiter>();
    shared_by_threads::<Limiter<MemoryStore<Arc<ManualClock>>>>();
    shared_by_threads::<MemoryStore>();
    shared_by_threads::<MemoryStore<ManualClock>>();
    shared_by_threads::<Decision>();
    shared_by_threads::<Limit>();
    shared_by_threads::<Key<'static>>();
    shared_by_threads::<StoreError>();
    shared_by_threads::<Request<'static>>();
}

/// A store of somebody else's: counts how often it is asked, and may be down.
struct Watched {
    inner: Arc<MemoryStore>,
    asked: std::sync::atomic::AtomicU32,
    down: bool,
}

impl Store for Watched {
    async fn decide(&self, request: &Request<'_>) -> Result<Decision, StoreError> {
        self.asked
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if self.down {
            return Err(StoreError::new("down for the night"));
        }
        Store::decide(&*self.inner, request).await
    }

    fn submit(&self, request: &Request<'_>) {
        self.inner.submit(request);
    }

    fn undo(&self, request: &Request<'_>, decision: &Decision) {
        self.inner.undo(request, decision);
    }
}

async fn may_enter<S: Store>(limiter: &Limiter<S>, who: &str) -> bool {
    let request = limiter.request(who).cost(1).verb(Verb::Check);
    limiter.decide(&request).await.allowed()
}

#[tokio::test]
async fn a_function_over_any_store_works_with_each() {
    let own = Limiter::new(Quota::per_day(1));
    assert!(sent(may_enter(&own, "a")).await);
    assert!(!may_enter(&own, "a").await);

    let watched = |down| Watched {
        inner: Arc::default(),
        asked: 0.into(),
        down,
    };
    let other = Limiter::with_store(watched(false), Quota::per_day(1));
    assert!(sent(may_enter(&other, "a")).await);
    assert!(!may_enter(&other, "a").await);
    assert_eq!(
        other
            .store()
            .asked
            .load(std::sync::atomic::Ordering::Relaxed),
        2
    );

    let down = Limiter::with_store(watched(true), Quota::per_day(1));
    assert!(may_enter(&down, "a").await, "open unless told otherwise");
    assert!(!may_enter(&down.clone().on_failure(OnFailure::Closed), "a").await);
    let error = down.store().decide(&down.request("a")).await.unwrap_err();
    assert!(error.to_string().contains("down for the night"));
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn a_store_that_is_down_ends_the_wait_as_the_policy_says() {
    let down = Watched {
        inner: Arc::default(),
        asked: 0.into(),
        down: true,
    };
    let limiter = Limiter::with_store(down, Quota::per_day(1));
    assert!(limiter.acquire("a").await.unwrap().degraded());
    let closed = limiter.clone().on_failure(OnFailure::Closed);
    let error = closed.acquire("a").await.unwrap_err();
    assert!(matches!(error, tallygate::AcquireError::Unavailable));
    assert!(format!("{limiter:?}").contains("waiting: 0"));
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

#[tokio::test]
async fn the_future_of_a_decision_may_move_between_threads() {
    let limiter = Limiter::new(Quota::per_minute(2));
    let inside = limiter.clone();
    let task = tokio::spawn(async move {
        let request = inside.request("a");
        inside.decide(&request).await
    });
    assert!(task.await.unwrap().allowed());
    assert_eq!(limiter.peek("a", 1).remaining(), 1);
}

#[test]
fn every_sort_of_text_and_bytes_is_a_key() {
    let limiter = Limiter::new(Quota::per_minute(100));
    let text = String::from("a");
    let key = Key::from("a").into_owned();
    let left = [
        limiter.check("a"),
        limiter.check(&text),
        limiter.check(text.clone()),
        limiter.check(text.as_bytes()),
        limiter.check(vec![b'a']),
        limiter.check(Key::from("a")),
        limiter.check(&key),
        limiter.check(Key::from_parts(["a"])),
    ];
    let left: Vec<u32> = left.iter().map(Decision::remaining).collect();
    assert_eq!(left, [99, 98, 97, 96, 95, 94, 93, 92]);
}

#[test]
fn the_system_clock_drives_a_store_of_its_own() {
    let store = MemoryStore::builder()
        .clock(Arc::new(SystemClock::new()))
        .capacity(5)
        .build();
    assert_eq!(store.capacity(), 5);
    let limiter = Limiter::with_store(store, Quota::per_day(1));
    assert!(limiter.check("a").allowed());
    assert!(SystemClock::default().now_us() > 1_600_000_000_000_000);
}

/// The six lines of the promise, for whoever waits on nothing.
#[test]
fn a_future_that_is_ready_needs_no_runtime() {
    let limiter = Limiter::new(Quota::per_minute(1));
    let request = limiter.request("a");
    let mut future = std::pin::pin!(limiter.decide(&request));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_ready());
}
