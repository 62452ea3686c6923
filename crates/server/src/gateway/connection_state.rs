//! One client connection: its peer, requests in flight, idle time and deadlines.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use http::header::HeaderValue;
use http::{StatusCode, Version};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{Limits, Timeouts};
use crate::listener::{Accepted, Activity, OpenConnection, Phase};
use crate::metrics::GatewayMetrics;

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
    resets: AtomicU64,
    max_resets: u64,
    /// In milliseconds since the start, as are the next two.
    idle_since: AtomicU64,
    /// When the first byte since then arrived, plus one; 0: none has.
    head_since: AtomicU64,
    /// When draining started, plus one; 0: it has not.
    draining_since: AtomicU64,
    is_http2: AtomicBool,
    /// The number of the first request from which on the framing is ambiguous.
    ambiguous_from: AtomicU64,
    pub(super) too_many_resets: Notify,
    open: OpenConnection,
    metrics: Arc<GatewayMetrics>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    /// Nothing is overdue; check again then.
    At(Instant),
    Idle,
    HeadTimeout,
}

impl ConnectionState {
    pub(super) fn new(accepted: Accepted, limits: &Limits, metrics: Arc<GatewayMetrics>) -> Self {
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
            resets: AtomicU64::new(0),
            max_resets: limits.resets,
            idle_since: AtomicU64::new(0),
            head_since: AtomicU64::new(0),
            draining_since: AtomicU64::new(0),
            is_http2: AtomicBool::new(false),
            ambiguous_from: AtomicU64::new(u64::MAX),
            too_many_resets: Notify::new(),
            open: accepted.open,
            metrics,
        }
    }

    pub(super) fn record_read(&self) {
        if self.in_flight.load(Relaxed) == 0 && self.head_since.load(Relaxed) == 0 {
            self.head_since.store(self.elapsed_millis() + 1, Relaxed);
            self.activity().expect_request();
        }
    }

    pub(super) fn activity(&self) -> &Arc<Activity> {
        self.open.activity()
    }

    /// Whether an HTTP/1 head has started and not ended.
    pub(super) fn is_reading_head(&self) -> bool {
        self.in_flight.load(Relaxed) == 0 && self.head_since.load(Relaxed) != 0 && !self.is_http2()
    }

    /// Records the number of the first request whose framing is ambiguous.
    pub(super) fn record_ambiguous_framing(&self, request: u64) {
        self.ambiguous_from.store(request, Relaxed);
    }

    /// Whether the framing of the last HTTP/1 request that began is ambiguous. With pipelining later
    /// ones may have been read too.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.requests.load(Relaxed) >= self.ambiguous_from.load(Relaxed)
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

    /// Records a request, and whether it has a body.
    pub(super) fn begin(self: &Arc<Self>, version: Version, has_body: bool) -> InFlight {
        let is_http2 = version == Version::HTTP_2;
        if is_http2 && !self.is_http2() {
            self.is_http2.store(true, Relaxed);
        }
        self.in_flight.fetch_add(1, Relaxed);
        self.activity().set_busy();
        // On an HTTP/2 connection other streams may have one.
        self.activity().set_unread_input(is_http2 || has_body);
        self.requests.fetch_add(1, Relaxed);
        self.head_since.store(0, Relaxed);
        self.metrics.start_request();
        InFlight {
            state: Arc::clone(self),
            has_response: false,
        }
    }

    /// Records that the connection is upgraded: it is in use to its end.
    pub(super) fn start_tunnel(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// Checks whether anything is overdue. `idle_timeout` applies between requests.
    pub(super) fn check_deadline(&self, timeouts: &Timeouts, idle_timeout: Duration) -> Deadline {
        let now = Instant::now();
        if self.in_flight.load(Relaxed) > 0 {
            return Deadline::At(now + timeouts.header.min(idle_timeout));
        }
        let head_since = self.head_since.load(Relaxed);
        let (since, timeout, overdue) = if self.activity().is_closing() {
            // Also in the middle of a head.
            (0, idle_timeout, Deadline::Idle)
        } else if self.requests.load(Relaxed) == 0 {
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

    fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

#[derive(Debug)]
pub(super) struct InFlight {
    state: Arc<ConnectionState>,
    has_response: bool,
}

impl InFlight {
    pub(super) fn is_draining(&self) -> bool {
        self.state.is_draining()
    }

    pub(super) fn is_http2(&self) -> bool {
        self.state.is_http2()
    }

    pub(super) fn start_response(&mut self, status: StatusCode) {
        self.state.metrics.record_response(status);
        self.has_response = true;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let state = &self.state;
        state.metrics.end_request();
        if !self.has_response {
            state.metrics.record_unanswered();
            let resets = state.resets.fetch_add(1, Relaxed) + 1;
            if resets > state.max_resets && resets > state.requests.load(Relaxed) / 2 {
                state.too_many_resets.notify_one();
            }
        }
        state.idle_since.store(state.elapsed_millis(), Relaxed);
        if state.in_flight.fetch_sub(1, Relaxed) == 1 {
            // Wrong for a moment if another stream begins at the same time. A connection that is
            // closed because of it still ends its requests.
            state.activity().set_idle();
        }
    }
}
