//! The circuit breaker: stops sending requests to a store that fails, and probes it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::fallback::FailurePolicy;
use crate::decision::Decision;
use crate::request::Request;
use crate::store::{Store, StoreError, StoreErrorKind};

/// Consecutive failures that open the breaker.
const MAX_FAILURES: u32 = 5;
/// The mean interval between probes; each is up to half of it shorter or longer.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of the circuit breaker.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Consecutive failures.
    failures: AtomicU32,
    open: AtomicBool,
    /// Whether the failure was logged, and the recovery not yet.
    logged: AtomicBool,
}

impl Breaker {
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    fn on_success(&self) {
        // Late answers must not reset an open breaker.
        if self.failures.load(Relaxed) == 0 || self.is_open() {
            return;
        }
        self.failures.store(0, Relaxed);
        if self.logged.swap(false, Relaxed) {
            tracing::info!("the store answers again");
        }
    }

    /// Logs a failure once, until the store has answered a request: a probe may succeed while
    /// requests fail.
    fn log(&self, error: &StoreError) {
        if !self.logged.swap(true, Relaxed) {
            tracing::warn!(
                kind = error.kind().name(),
                %error,
                "the store does not answer: requests are decided without it"
            );
        }
    }
}

impl<S: Store> Shared<S> {
    /// Decides with the store, unless the breaker is open, and before the deadline.
    pub(super) async fn decide(
        self: &Arc<Self>,
        request: &Request<'_>,
        failure: FailurePolicy,
    ) -> Result<Decision, StoreError> {
        if self.breaker.is_open() {
            let text = "it has not answered lately";
            return Err(StoreError::with_kind(StoreErrorKind::Unreachable, text));
        }
        let decision = self.store.decide(request);
        let result = with_deadline(decision, || failure.deadline_for(request)).await;
        match &result {
            Ok(_) => self.breaker.on_success(),
            Err(error) => {
                let failures = self.breaker.failures.fetch_add(1, Relaxed) + 1;
                if failures >= MAX_FAILURES {
                    self.open_breaker(error);
                }
            }
        }
        result
    }

    fn open_breaker(self: &Arc<Self>, error: &StoreError) {
        // Without a runtime there are no probes: every request goes on to the store.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.breaker.open.swap(true, Relaxed) {
            return;
        }
        self.breaker.log(error);
        runtime.spawn(Probe(Arc::downgrade(self)).run());
    }
}

/// Probes the store. Closes the breaker when dropped, so that it closes even if the runtime ends.
struct Probe<S>(Weak<Shared<S>>);

impl<S: Store> Probe<S> {
    async fn run(self) {
        loop {
            sleep(PROBE_INTERVAL / 2 + PROBE_INTERVAL * fastrand::u32(..1_000) / 1_000).await;
            let Some(shared) = self.0.upgrade() else {
                return;
            };
            if let Ok(Ok(())) = timeout(PROBE_TIMEOUT, shared.store.probe()).await {
                // One more failure opens the breaker again.
                shared.breaker.failures.store(MAX_FAILURES - 1, Relaxed);
                return;
            }
        }
    }
}

impl<S> Drop for Probe<S> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.breaker.open.store(false, Relaxed);
        }
    }
}

/// Polls once before it creates a timer: a store in this process needs neither timer nor runtime.
async fn with_deadline(
    decision: impl Future<Output = Result<Decision, StoreError>>,
    deadline: impl FnOnce() -> Duration,
) -> Result<Decision, StoreError> {
    let mut decision = pin!(decision);
    let first = poll_fn(|context| {
        Poll::Ready(match decision.as_mut().poll(context) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        })
    });
    if let Some(result) = first.await {
        return result;
    }
    let deadline = deadline();
    timeout(deadline, decision).await.unwrap_or_else(|_| {
        let text = format!("no answer within {deadline:?}");
        Err(StoreError::with_kind(StoreErrorKind::Timeout, text))
    })
}
