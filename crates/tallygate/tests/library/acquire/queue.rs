//! A queue of named requests that records when each is admitted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tallygate::{AcquireError, Clock, Decision, Limit, Limiter, MemoryStore, Wait};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until};

use crate::fixtures::T0;

/// Tokio's time, starting at [`T0`].
#[derive(Debug)]
pub(crate) struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now_us(&self) -> u64 {
        T0 + self.0.elapsed().as_micros() as u64
    }
}

pub(crate) fn paused_store(start: Instant) -> MemoryStore<RuntimeClock> {
    MemoryStore::builder().clock(RuntimeClock(start)).build()
}

type PausedLimiter = Limiter<MemoryStore<RuntimeClock>>;

/// A limiter and the requests it admitted, with times in milliseconds.
#[derive(Clone)]
pub(crate) struct TestQueue {
    pub(crate) limiter: PausedLimiter,
    pub(crate) start: Instant,
    pub(crate) admitted: Arc<Mutex<Vec<(String, u64)>>>,
}

impl TestQueue {
    pub(crate) fn new(quota: &str) -> Self {
        Self::with_limit(quota.parse::<tallygate::Quota>().unwrap())
    }

    pub(crate) fn with_limit(limit: impl Into<Limit>) -> Self {
        let start = Instant::now();
        TestQueue {
            limiter: Limiter::with_store(paused_store(start), limit),
            start,
            admitted: Arc::default(),
        }
    }

    /// The same queue and store with one more limit.
    pub(crate) fn and(&self, limit: impl Into<Limit>) -> Self {
        TestQueue {
            limiter: self.limiter.and(limit).unwrap(),
            ..self.clone()
        }
    }

    /// Acquires 1 unit of key `k` in a new task; it is queued when this returns.
    pub(crate) async fn enqueue(&self, name: &str) -> JoinHandle<Result<Decision, AcquireError>> {
        self.enqueue_with(name, "k", 1, Wait::forever()).await
    }

    pub(crate) async fn enqueue_cost(
        &self,
        name: &str,
        cost: u32,
    ) -> JoinHandle<Result<Decision, AcquireError>> {
        self.enqueue_with(name, "k", cost, Wait::forever()).await
    }

    pub(crate) async fn enqueue_with(
        &self,
        name: &str,
        key: &str,
        cost: u32,
        wait: Wait,
    ) -> JoinHandle<Result<Decision, AcquireError>> {
        let (queue, name, key) = (self.clone(), name.to_owned(), key.to_owned());
        let task = tokio::spawn(async move {
            let request = queue.limiter.request(&key).cost(cost);
            let outcome = queue.limiter.acquire_with(&request, wait).await;
            if outcome.is_ok() {
                queue.admitted.lock().unwrap().push((name, queue.now_ms()));
            }
            outcome
        });
        settle().await;
        task
    }

    /// Milliseconds since the start.
    pub(crate) fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Waits until so many milliseconds after the start.
    pub(crate) async fn until_ms(&self, ms: u64) {
        sleep_until(self.start + Duration::from_millis(ms)).await;
        settle().await;
    }

    /// The names and times of the admitted requests, in order.
    pub(crate) fn admitted(&self) -> Vec<(String, u64)> {
        self.admitted.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn assert_admitted(&self, expected: &[(&str, u64)]) {
        let admitted = self.admitted();
        let admitted: Vec<(&str, u64)> = admitted.iter().map(|(n, ms)| (&**n, *ms)).collect();
        assert_eq!(admitted, expected);
    }

    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        let shown = format!("{:?}", self.limiter);
        assert!(shown.contains("waiting: 0"), "{shown}");
    }

    /// The remaining units of key `k`.
    pub(crate) fn remaining(&self) -> u32 {
        self.limiter.peek("k", 1).remaining()
    }
}

/// Runs every ready task, without advancing time.
pub(crate) async fn settle() {
    for _ in 0..5 {
        yield_now().await;
    }
}

/// Aborts a request and waits until it is dropped.
pub(crate) async fn cancel(waiter: JoinHandle<Result<Decision, AcquireError>>) {
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    settle().await;
}
