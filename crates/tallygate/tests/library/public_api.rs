//! Guarantees of the public API: `Send` and `Sync`, any store, any key.

use std::future::Future;
use std::sync::Arc;

use tallygate::{
    Clock, Decision, Key, Limit, Limiter, ManualClock, MemoryStore, OnFailure, Quota, Request,
    Store, StoreError, SystemClock, Verb,
};

fn assert_send_sync<T: Send + Sync + 'static>() {}
fn assert_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn public_types_are_send_and_sync() {
    assert_send_sync::<Limiter>();
    assert_send_sync::<Limiter<MemoryStore<Arc<ManualClock>>>>();
    assert_send_sync::<MemoryStore>();
    assert_send_sync::<MemoryStore<ManualClock>>();
    assert_send_sync::<Decision>();
    assert_send_sync::<Limit>();
    assert_send_sync::<Key<'static>>();
    assert_send_sync::<StoreError>();
    assert_send_sync::<Request<'static>>();
}

/// A store outside the library: counts its calls and may be down.
struct CountingStore {
    inner: Arc<MemoryStore>,
    calls: std::sync::atomic::AtomicU32,
    down: bool,
}

impl Store for CountingStore {
    async fn decide(&self, request: &Request<'_>) -> Result<Decision, StoreError> {
        self.calls
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if self.down {
            return Err(StoreError::new("down for maintenance"));
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

async fn is_admitted<S: Store>(limiter: &Limiter<S>, key: &str) -> bool {
    let request = limiter.request(key).cost(1).verb(Verb::Check);
    limiter.decide(&request).await.allowed()
}

#[tokio::test]
async fn a_function_generic_over_the_store_works_with_any() {
    let own = Limiter::new(Quota::per_day(1));
    assert!(assert_send(is_admitted(&own, "a")).await);
    assert!(!is_admitted(&own, "a").await);

    let counting_store = |down| CountingStore {
        inner: Arc::default(),
        calls: 0.into(),
        down,
    };
    let other = Limiter::with_store(counting_store(false), Quota::per_day(1));
    assert!(assert_send(is_admitted(&other, "a")).await);
    assert!(!is_admitted(&other, "a").await);
    assert_eq!(
        other
            .store()
            .calls
            .load(std::sync::atomic::Ordering::Relaxed),
        2
    );

    let down = Limiter::with_store(counting_store(true), Quota::per_day(1));
    assert!(is_admitted(&down, "a").await, "the default policy is open");
    assert!(!is_admitted(&down.clone().on_failure(OnFailure::Closed), "a").await);
    let error = down.store().decide(&down.request("a")).await.unwrap_err();
    assert!(error.to_string().contains("down for maintenance"));
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn acquire_follows_the_failure_policy() {
    let down = CountingStore {
        inner: Arc::default(),
        calls: 0.into(),
        down: true,
    };
    let limiter = Limiter::with_store(down, Quota::per_day(1));
    assert!(limiter.acquire("a").await.unwrap().degraded());
    let closed = limiter.clone().on_failure(OnFailure::Closed);
    let error = closed.acquire("a").await.unwrap_err();
    assert!(matches!(error, tallygate::AcquireError::Unavailable));
    assert!(format!("{limiter:?}").contains("waiting: 0"));
}

impl std::fmt::Debug for CountingStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CountingStore")
    }
}

#[tokio::test]
async fn the_future_of_a_decision_is_send() {
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
fn every_string_and_byte_type_is_a_key() {
    let limiter = Limiter::new(Quota::per_minute(100));
    let text = String::from("a");
    let key = Key::from("a").into_owned();
    let decisions = [
        limiter.check("a"),
        limiter.check(&text),
        limiter.check(text.clone()),
        limiter.check(text.as_bytes()),
        limiter.check(vec![b'a']),
        limiter.check(Key::from("a")),
        limiter.check(&key),
        limiter.check(Key::from_parts(["a"])),
    ];
    let remaining: Vec<u32> = decisions.iter().map(Decision::remaining).collect();
    assert_eq!(remaining, [99, 98, 97, 96, 95, 94, 93, 92]);
}

#[test]
fn a_store_may_use_a_system_clock_in_an_arc() {
    let store = MemoryStore::builder()
        .clock(Arc::new(SystemClock::new()))
        .capacity(5)
        .build();
    assert_eq!(store.capacity(), 5);
    let limiter = Limiter::with_store(store, Quota::per_day(1));
    assert!(limiter.check("a").allowed());
    assert!(SystemClock::default().now_us() > 1_600_000_000_000_000);
}

#[test]
fn decide_on_the_memory_store_needs_no_runtime() {
    let limiter = Limiter::new(Quota::per_minute(1));
    let request = limiter.request("a");
    let mut future = std::pin::pin!(limiter.decide(&request));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_ready());
}
