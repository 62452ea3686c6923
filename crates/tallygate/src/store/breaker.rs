//! Circuit breakers: stop requests to a server that fails, and probe it until it answers.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tallygate_core::{Algorithm, Quota, State, Verb, evaluate};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::StoreError;

/// Consecutive failures that open a breaker.
const MAX_FAILURES: u32 = 5;
/// The mean interval between probes; each is up to half of it shorter or longer.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// A circuit breaker; clones share its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Consecutive failures.
    failures: AtomicU32,
    open: AtomicBool,
    log: Mutex<Log>,
}

impl Breaker {
    pub(crate) fn is_open(&self) -> bool {
        self.0.open.load(Relaxed)
    }

    pub(crate) fn on_success(&self) {
        // Late answers must not reset an open breaker.
        if self.0.failures.load(Relaxed) == 0 || self.is_open() {
            return;
        }
        self.0.failures.store(0, Relaxed);
        self.0.log.lock().recovery();
    }

    /// Counts a failure. Returns whether there were enough in a row to open the breaker.
    pub(crate) fn on_failure(&self) -> bool {
        self.0.failures.fetch_add(1, Relaxed) + 1 >= MAX_FAILURES
    }

    /// Opens the breaker and starts to probe `server`, unless it is open already.
    pub(crate) fn open<P: Probe>(&self, server: &Arc<P>, runtime: &Handle, error: &StoreError) {
        let was_open = self.0.open.swap(true, Relaxed);
        self.0.log.lock().failure(server.name(), error);
        if !was_open {
            let prober = Prober {
                server: Arc::downgrade(server),
                breaker: self.clone(),
            };
            runtime.spawn(prober.run());
        }
    }
}

/// A server that a breaker can probe.
pub(crate) trait Probe: Send + Sync + 'static {
    /// The name in log lines.
    fn name(&self) -> &str;

    /// Checks whether the server answers.
    fn probe(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Probes a server. Closes the breaker when dropped, so that it closes even if the runtime ends or
/// the server is gone.
struct Prober<P> {
    server: Weak<P>,
    breaker: Breaker,
}

impl<P: Probe> Prober<P> {
    async fn run(self) {
        let state = &self.breaker.0;
        loop {
            sleep(PROBE_INTERVAL / 2 + PROBE_INTERVAL * fastrand::u32(..1_000) / 1_000).await;
            let Some(server) = self.server.upgrade() else {
                return;
            };
            match server.probe().await {
                Ok(()) => {
                    // One more failure opens the breaker again.
                    return state.failures.store(MAX_FAILURES - 1, Relaxed);
                }
                Err(error) => state.log.lock().failure(server.name(), &error),
            }
        }
    }
}

impl<P> Drop for Prober<P> {
    fn drop(&mut self) {
        self.breaker.0.open.store(false, Relaxed);
    }
}

/// Logs changes: a failure once, until the server has answered a request, because a probe may
/// succeed while requests fail. A server that flaps is logged once a second.
#[derive(Debug)]
struct Log {
    /// The server whose failure was logged.
    failed: Option<String>,
    lines: State,
    started: Instant,
    suppressed: u32,
}

impl Default for Log {
    fn default() -> Self {
        Log {
            failed: None,
            lines: State::New,
            started: Instant::now(),
            suppressed: 0,
        }
    }
}

impl Log {
    fn failure(&mut self, server: &str, error: &StoreError) {
        if self.failed.is_some() || !self.admits() {
            return;
        }
        self.failed = Some(server.to_owned());
        tracing::warn!(
            server,
            kind = error.kind().name(),
            suppressed = std::mem::take(&mut self.suppressed),
            %error,
            "the store does not answer: requests are decided without it"
        );
    }

    fn recovery(&mut self) {
        if let Some(server) = self.failed.take() {
            // Never suppressed, but it delays the next failure's line.
            self.evaluate(Verb::Charge);
            tracing::info!(server, "the store answers again");
        }
    }

    fn admits(&mut self) -> bool {
        let admitted = self.evaluate(Verb::Check);
        self.suppressed += u32::from(!admitted);
        admitted
    }

    fn evaluate(&mut self, verb: Verb) -> bool {
        let quota = Quota::with_capacity(Algorithm::TokenBucket, 1, Duration::from_secs(1), 2)
            .expect("the quota of log lines is valid");
        let now = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        evaluate(&quota, &mut self.lines, verb, 1, now).allowed()
    }
}
