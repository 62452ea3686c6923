//! A line of waiters by name, and when each of them got through.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tallygate::{AcquireError, Clock, Decision, Limit, Limiter, MemoryStore, Wait};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until};

use crate::behaviours::T0;

/// The runtime's time, which begins at [`T0`].
#[derive(Debug)]
pub(crate) struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now_us(&self) -> u64 {
        T0 + self.0.elapsed().as_micros() as u64
    }
}

pub(crate) type Waiters = Limiter<MemoryStore<RuntimeClock>>;

#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) limiter: Waiters,
    pub(crate) start: Instant,
    pub(crate) through: Arc<Mutex<Vec<(String, u64)>>>,
}

impl Line {
    pub(crate) fn of(quota: &str) -> Self {
        Self::under(quota.parse::<tallygate::Quota>().unwrap())
    }

    pub(crate) fn under(limit: impl Into<Limit>) -> Self {
        let start = Instant::now();
        let store = MemoryStore::builder().clock(RuntimeClock(start)).build();
        Line {
            limiter: Limiter::with_store(store, limit),
            start,
            through: Arc::default(),
        }
    }

    /// The same line, timing and store under more limits.
    pub(crate) fn and(&self, limit: impl Into<Limit>) -> Self {
        Line {
            limiter: self.limiter.and(limit).unwrap(),
            ..self.clone()
        }
    }

    /// Somebody joins the line of key `k` for 1 and is in it when this returns.
    pub(crate) async fn join(&self, name: &str) -> JoinHandle<Result<Decision, AcquireError>> {
        self.join_with(name, "k", 1, Wait::forever()).await
    }

    pub(crate) async fn join_for(
        &self,
        name: &str,
        cost: u32,
    ) -> JoinHandle<Result<Decision, AcquireError>> {
        self.join_with(name, "k", cost, Wait::forever()).await
    }

    pub(crate) async fn join_with(
        &self,
        name: &str,
        key: &str,
        cost: u32,
        wait: Wait,
    ) -> JoinHandle<Result<Decision, AcquireError>> {
        let (line, name, key) = (self.clone(), name.to_owned(), key.to_owned());
        let task = tokio::spawn(async move {
            let request = line.limiter.request(&key).cost(cost);
            let outcome = line.limiter.acquire_with(&request, wait).await;
            if outcome.is_ok() {
                line.through.lock().unwrap().push((name, line.now_ms()));
            }
            outcome
        });
        // The runtime has one thread and runs its tasks in order: this lets the new one begin.
        settle().await;
        task
    }

    /// Milliseconds since the line was made.
    pub(crate) fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Waits for that many milliseconds since the line was made.
    pub(crate) async fn until_ms(&self, ms: u64) {
        sleep_until(self.start + Duration::from_millis(ms)).await;
        settle().await;
    }

    /// Who got through, and when, in that order.
    pub(crate) fn through(&self) -> Vec<(String, u64)> {
        self.through.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn assert_through(&self, right: &[(&str, u64)]) {
        let through = self.through();
        let through: Vec<(&str, u64)> = through.iter().map(|(n, ms)| (&**n, *ms)).collect();
        assert_eq!(through, right);
    }

    #[track_caller]
    pub(crate) fn assert_nobody_waits(&self) {
        let shown = format!("{:?}", self.limiter);
        assert!(shown.contains("waiting: 0"), "{shown}");
    }

    /// How much of the limits could be taken.
    pub(crate) fn left(&self) -> u32 {
        self.limiter.peek("k", 1).remaining()
    }
}

/// Lets every task that can go on do so, without time moving on.
pub(crate) async fn settle() {
    for _ in 0..5 {
        yield_now().await;
    }
}

/// Somebody leaves, and has left when this returns.
pub(crate) async fn leave(waiter: JoinHandle<Result<Decision, AcquireError>>) {
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    settle().await;
}
