//! One client connection: its peer, requests in flight, idle time and deadlines.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Version;
use http::header::HeaderValue;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::{Limits, Timeouts};
use crate::listener::{Accepted, Phase};

/// The state of one client connection, which counts as open until this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) address: IpAddr,
    pub(super) address_header: HeaderValue,
    pub(super) scheme: &'static str,
    pub(super) phase: watch::Receiver<Phase>,
    started: Instant,
    in_flight: AtomicUsize,
    requests: AtomicU64,
    /// When unfinished HTTP/2 responses started: a client can stall a stream while the connection
    /// makes progress.
    responses: Mutex<BTreeMap<u64, Instant>>,
    resets: AtomicU64,
    max_resets: u64,
    /// In milliseconds since the start, as are the next two.
    idle_since: AtomicU64,
    /// When the first byte since then arrived, plus one; 0: none has.
    head_since: AtomicU64,
    /// When draining started, plus one; 0: it has not.
    draining_since: AtomicU64,
    is_http2: AtomicBool,
    conflicting_framing: AtomicBool,
    pub(super) too_many_resets: Notify,
    _permit: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    /// Nothing is overdue; check again then.
    At(Instant),
    Idle,
    HeadTimeout,
    ResponseTimeout,
}

impl ConnectionState {
    pub(super) fn new(accepted: Accepted, limits: &Limits) -> Self {
        let address = accepted.peer.ip().to_canonical();
        let address_header = HeaderValue::try_from(address.to_string());
        ConnectionState {
            address,
            address_header: address_header.expect("an address is visible ASCII"),
            scheme: if accepted.is_tls { "https" } else { "http" },
            phase: accepted.phase,
            started: Instant::now(),
            in_flight: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            responses: Mutex::default(),
            resets: AtomicU64::new(0),
            max_resets: limits.resets,
            idle_since: AtomicU64::new(0),
            head_since: AtomicU64::new(0),
            draining_since: AtomicU64::new(0),
            is_http2: AtomicBool::new(false),
            conflicting_framing: AtomicBool::new(false),
            too_many_resets: Notify::new(),
            _permit: accepted.permit,
        }
    }

    pub(super) fn record_read(&self) {
        if self.in_flight.load(Relaxed) == 0 && self.head_since.load(Relaxed) == 0 {
            self.head_since.store(self.elapsed_millis() + 1, Relaxed);
        }
    }

    /// Whether an HTTP/1 head has started and not ended.
    pub(super) fn is_reading_head(&self) -> bool {
        self.in_flight.load(Relaxed) == 0 && self.head_since.load(Relaxed) != 0 && !self.is_http2()
    }

    /// Records a head with both `Content-Length` and `Transfer-Encoding`.
    pub(super) fn record_conflicting_framing(&self) {
        self.conflicting_framing.store(true, Relaxed);
    }

    /// Whether there ever was such a head. With pipelining it is unknown which request it
    /// belongs to.
    pub(super) fn has_conflicting_framing(&self) -> bool {
        self.conflicting_framing.load(Relaxed)
    }

    /// Makes every following response the connection's last.
    pub(super) fn drain(&self) {
        if !self.is_draining() {
            self.draining_since
                .store(self.elapsed_millis() + 1, Relaxed);
        }
    }

    fn is_draining(&self) -> bool {
        self.draining_since.load(Relaxed) != 0
    }

    pub(super) fn is_http2(&self) -> bool {
        self.is_http2.load(Relaxed)
    }

    pub(super) fn begin(self: &Arc<Self>, version: Version) -> InFlight {
        if version == Version::HTTP_2 && !self.is_http2() {
            self.is_http2.store(true, Relaxed);
        }
        self.in_flight.fetch_add(1, Relaxed);
        let number = self.requests.fetch_add(1, Relaxed);
        self.head_since.store(0, Relaxed);
        InFlight {
            state: Arc::clone(self),
            number,
            has_response: false,
        }
    }

    /// Checks whether anything is overdue. `idle_timeout` applies between requests.
    pub(super) fn check_deadline(&self, timeouts: &Timeouts, idle_timeout: Duration) -> Deadline {
        let now = Instant::now();
        if self.in_flight.load(Relaxed) > 0 {
            let responses = self.responses();
            let oldest = responses.first_key_value().map(|(_, started)| *started);
            // A response that makes progress ends within `whole` by itself.
            if oldest.is_some_and(|started| now > started + timeouts.whole * 2) {
                return Deadline::ResponseTimeout;
            }
            return Deadline::At(now + timeouts.header.min(idle_timeout));
        }
        let head_since = self.head_since.load(Relaxed);
        let (since, timeout, overdue) = if self.requests.load(Relaxed) == 0 {
            let timeout = match head_since {
                0 => timeouts.header.min(idle_timeout),
                1.. => timeouts.header,
            };
            (0, timeout, Deadline::HeadTimeout)
        } else if head_since != 0 && !self.is_http2() {
            (head_since - 1, timeouts.header, Deadline::HeadTimeout)
        } else {
            (self.idle_since.load(Relaxed), idle_timeout, Deadline::Idle)
        };
        // A request may have been on its way when draining started.
        let since = since.max(self.draining_since.load(Relaxed));
        let deadline = self.started + Duration::from_millis(since) + timeout;
        match deadline > now {
            // A head may start any time and has a deadline of its own.
            true => Deadline::At(deadline.min(now + timeouts.header)),
            false => overdue,
        }
    }

    fn responses(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.responses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

#[derive(Debug)]
pub(super) struct InFlight {
    state: Arc<ConnectionState>,
    number: u64,
    has_response: bool,
}

impl InFlight {
    pub(super) fn is_draining(&self) -> bool {
        self.state.is_draining()
    }

    pub(super) fn start_response(&mut self) {
        self.has_response = true;
        if self.state.is_http2() {
            let now = Instant::now();
            self.state.responses().insert(self.number, now);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let state = &self.state;
        if !self.has_response {
            let resets = state.resets.fetch_add(1, Relaxed) + 1;
            if resets > state.max_resets && resets > state.requests.load(Relaxed) / 2 {
                state.too_many_resets.notify_one();
            }
        }
        if state.is_http2() {
            state.responses().remove(&self.number);
        }
        state.idle_since.store(state.elapsed_millis(), Relaxed);
        state.in_flight.fetch_sub(1, Relaxed);
    }
}
