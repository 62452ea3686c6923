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

/// The state of a circuit breaker. Performs no I/O, reads no clock and draws no random numbers.
#[derive(Debug, Default)]
pub(crate) struct Circuit {
    /// Consecutive failures.
    failures: AtomicU32,
    open: AtomicBool,
}

impl Circuit {
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// Records an answer. Returns whether there were failures before it.
    pub(crate) fn on_success(&self) -> bool {
        // Late answers must not reset an open breaker.
        if self.failures.load(Relaxed) == 0 || self.is_open() {
            return false;
        }
        self.failures.store(0, Relaxed);
        true
    }

    /// Counts a failure. Returns whether there were enough in a row to open the breaker.
    pub(crate) fn on_failure(&self) -> bool {
        self.failures.fetch_add(1, Relaxed) + 1 >= MAX_FAILURES
    }

    /// Opens it. Returns whether it was closed: then the server has to be probed.
    pub(crate) fn open(&self) -> bool {
        !self.open.swap(true, Relaxed)
    }

    /// The pause before a probe. `random` is below [`RANDOM`].
    pub(crate) fn probe_delay(random: u32) -> Duration {
        jittered(PROBE_INTERVAL, random)
    }

    /// A probe has succeeded. One more failure opens the breaker again.
    pub(crate) fn on_probed(&self) {
        self.failures.store(MAX_FAILURES - 1, Relaxed);
        self.close();
    }

    fn close(&self) {
        self.open.store(false, Relaxed);
    }
}

/// Random numbers for [`jittered`] are below this.
pub(crate) const RANDOM: u32 = 1_000;

/// Half to one and a half times a delay, so that many processes do not act together.
pub(crate) fn jittered(delay: Duration, random: u32) -> Duration {
    delay / 2 + delay * random / RANDOM
}

/// A circuit breaker that probes its server; clones share its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    circuit: Circuit,
    log: Mutex<Log>,
}

impl Breaker {
    pub(crate) fn is_open(&self) -> bool {
        self.0.circuit.is_open()
    }

    pub(crate) fn on_success(&self) {
        if self.0.circuit.on_success() {
            self.0.log.lock().recovery();
        }
    }

    /// Counts a failure. Returns whether there were enough in a row to open the breaker.
    pub(crate) fn on_failure(&self) -> bool {
        self.0.circuit.on_failure()
    }

    /// Opens the breaker and starts to probe `server`, unless it is open already.
    pub(crate) fn open<P: Probe>(&self, server: &Arc<P>, runtime: &Handle, error: &StoreError) {
        let was_closed = self.0.circuit.open();
        self.0.log.lock().failure(server.name(), error);
        if was_closed {
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
            sleep(Circuit::probe_delay(fastrand::u32(..RANDOM))).await;
            let Some(server) = self.server.upgrade() else {
                return;
            };
            match server.probe().await {
                Ok(()) => return state.circuit.on_probed(),
                Err(error) => state.log.lock().failure(server.name(), &error),
            }
        }
    }
}

impl<P> Drop for Prober<P> {
    fn drop(&mut self) {
        self.breaker.0.circuit.close();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_open_it_and_after_a_probe_one_more_does() {
        let circuit = Circuit::default();
        for _ in 0..3 {
            assert!((1..MAX_FAILURES).all(|_| !circuit.on_failure()));
            assert!(circuit.on_success());
        }
        assert!(!circuit.on_success());
        assert!((1..MAX_FAILURES).all(|_| !circuit.on_failure()));
        assert!(circuit.on_failure());
        assert!(circuit.open() && !circuit.open());
        // A late answer.
        assert!(!circuit.on_success() && circuit.is_open());
        circuit.on_probed();
        assert!(!circuit.is_open());
        assert!(circuit.on_failure());
    }

    #[test]
    fn probes_are_spread_around_their_interval() {
        let delays = [0, RANDOM / 2, RANDOM].map(Circuit::probe_delay);
        assert_eq!(delays.map(|delay| delay.as_millis()), [50, 100, 150]);
    }
}
