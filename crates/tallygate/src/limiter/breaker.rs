//! Stops asking a store that does not answer, and finds out when it does again. Knows a store
//! only as something that answers or fails.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::decision::Decision;
use crate::request::Request;
use crate::store::{Store, StoreError, StoreErrorKind};

/// So many failures in a row, and the store is not asked any more.
const FAILURES: u32 = 5;
/// How often it is probed then, give or take a half.
const PROBED_EVERY: Duration = Duration::from_millis(100);
/// How long one probe may take.
const PROBE_WITHIN: Duration = Duration::from_secs(1);

/// Whether a store is worth asking.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// In a row.
    failures: AtomicU32,
    open: AtomicBool,
    /// Whether it was said that the store does not answer, and not yet that it does again.
    said: AtomicBool,
}

impl Breaker {
    /// Whether the store is left alone at the moment.
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Asks the store, unless it is known not to answer, and not longer than the deadline.
    pub(super) async fn ask<S: Store>(
        self: &Arc<Self>,
        store: &Arc<S>,
        request: &Request<'_>,
        deadline: impl FnOnce() -> Duration,
    ) -> Result<Decision, StoreError> {
        if self.is_open() {
            let text = "it has not answered lately";
            return Err(StoreError::of(StoreErrorKind::Unreachable, text));
        }
        let result = in_time(store.decide(request), deadline).await;
        match &result {
            Ok(_) => {
                if self.failures.load(Ordering::Relaxed) > 0 {
                    self.succeed();
                }
            }
            Err(error) => {
                let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
                if failures >= FAILURES {
                    self.open(store, error);
                }
            }
        }
        result
    }

    fn succeed(&self) {
        if self.is_open() {
            // A late answer from before.
            return;
        }
        self.failures.store(0, Ordering::Relaxed);
        if self.said.swap(false, Ordering::Relaxed) {
            tracing::info!("the store answers again");
        }
    }

    /// Leaves the store alone until a probe finds it well. Said once, however many noticed, and
    /// not again until it has really answered: a probe may well be while requests fail.
    fn open<S: Store>(self: &Arc<Self>, store: &Arc<S>, error: &StoreError) {
        // Without a runtime nobody could probe: then every request goes on asking.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.open.swap(true, Ordering::Relaxed) {
            return;
        }
        if !self.said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                kind = error.kind().name(),
                %error,
                "the store does not answer: requests are decided without it"
            );
        }
        let probing = Probing(Arc::clone(self));
        runtime.spawn(probing.until_well(Arc::downgrade(store)));
    }
}

/// While somebody probes, the store is left alone; also a runtime that ends must not leave it so.
struct Probing(Arc<Breaker>);

impl Probing {
    async fn until_well<S: Store>(self, store: Weak<S>) {
        loop {
            sleep(PROBED_EVERY / 2 + PROBED_EVERY * fastrand::u32(..1_000) / 1_000).await;
            let Some(store) = store.upgrade() else {
                return;
            };
            if let Ok(Ok(())) = timeout(PROBE_WITHIN, store.probe()).await {
                // One more failure, and it is left alone again.
                self.0.failures.store(FAILURES - 1, Ordering::Relaxed);
                return;
            }
        }
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        self.0.open.store(false, Ordering::Relaxed);
    }
}

/// Waits for an answer until the deadline. What is ready at once, as in memory, needs no timer
/// and no runtime.
async fn in_time(
    answer: impl Future<Output = Result<Decision, StoreError>>,
    deadline: impl FnOnce() -> Duration,
) -> Result<Decision, StoreError> {
    let mut answer = pin!(answer);
    let at_once = poll_fn(|context| {
        Poll::Ready(match answer.as_mut().poll(context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        })
    });
    if let Some(answer) = at_once.await {
        return answer;
    }
    let deadline = deadline();
    timeout(deadline, answer).await.unwrap_or_else(|_| {
        let text = format!("no answer within {deadline:?}");
        Err(StoreError::of(StoreErrorKind::Timeout, text))
    })
}
