//! What is known of one connection while it lasts: what is in flight, since when it has been quiet,
//! whether it has to end. Knows nothing of sockets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Version;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;

use super::{Limits, Timeouts};

/// What is known of one connection. Whoever holds it keeps the connection's place taken.
#[derive(Debug)]
pub(super) struct ConnectionState {
    started: Instant,
    in_flight: AtomicUsize,
    asked: AtomicU64,
    /// When HTTP/2 answers began that have not ended: there a client can leave one alone without
    /// any byte being late.
    answering: Mutex<BTreeMap<u64, Instant>>,
    given_up: AtomicU64,
    most_given_up: u64,
    /// In milliseconds since the start, as is the next.
    quiet_since: AtomicU64,
    /// When the first byte since then came, plus one; 0: none has.
    head_since: AtomicU64,
    http2: AtomicBool,
    two_lengths: AtomicBool,
    /// When the gateway stopped, plus one; 0: it has not.
    stopped: AtomicU64,
    /// Tells whoever drives the connection to end it.
    pub(super) enough: Notify,
    _place: OwnedSemaphorePermit,
}

/// What becomes of a connection that has been looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It goes on; look again then.
    Again(Instant),
    /// It was idle for too long.
    Idle,
    /// A head took too long.
    Late,
    /// An answer took too long because its client makes no room for it.
    Stuck,
}

impl ConnectionState {
    pub(super) fn new(place: OwnedSemaphorePermit, limits: &Limits) -> Self {
        ConnectionState {
            started: Instant::now(),
            in_flight: AtomicUsize::new(0),
            asked: AtomicU64::new(0),
            answering: Mutex::default(),
            given_up: AtomicU64::new(0),
            most_given_up: limits.given_up,
            quiet_since: AtomicU64::new(0),
            head_since: AtomicU64::new(0),
            http2: AtomicBool::new(false),
            two_lengths: AtomicBool::new(false),
            stopped: AtomicU64::new(0),
            enough: Notify::new(),
            _place: place,
        }
    }

    /// Bytes came.
    pub(super) fn read(&self) {
        if self.in_flight.load(Relaxed) == 0 && self.head_since.load(Relaxed) == 0 {
            self.head_since.store(self.now() + 1, Relaxed);
        }
    }

    /// Whether bytes came and no request has been made of them.
    pub(super) fn reads_head(&self) -> bool {
        self.in_flight.load(Relaxed) == 0 && self.head_since.load(Relaxed) != 0 && !self.is_http2()
    }

    /// A head came that says its body's length in two ways.
    pub(super) fn two_lengths(&self) {
        self.two_lengths.store(true, Relaxed);
    }

    /// Whether such a head ever came: which of several requests that came together it was, the
    /// bytes do not tell.
    pub(super) fn had_two_lengths(&self) -> bool {
        self.two_lengths.load(Relaxed)
    }

    /// The gateway has stopped: answers are the connection's last.
    pub(super) fn drain(&self) {
        if !self.is_draining() {
            self.stopped.store(self.now() + 1, Relaxed);
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.stopped.load(Relaxed) != 0
    }

    pub(super) fn is_http2(&self) -> bool {
        self.http2.load(Relaxed)
    }

    /// A request came.
    pub(super) fn begin(self: &Arc<Self>, version: Version) -> InFlight {
        if version == Version::HTTP_2 && !self.is_http2() {
            self.http2.store(true, Relaxed);
        }
        self.in_flight.fetch_add(1, Relaxed);
        let number = self.asked.fetch_add(1, Relaxed);
        self.head_since.store(0, Relaxed);
        InFlight {
            watch: Arc::clone(self),
            number,
            answered: false,
        }
    }

    /// Whether the connection may go on, and until when without another look. `longest_idle` is
    /// what holds between requests.
    pub(super) fn look(&self, timeouts: &Timeouts, longest_idle: Duration) -> Look {
        let now = Instant::now();
        if self.in_flight.load(Relaxed) > 0 {
            let answering = self.answering();
            let oldest = answering.first_key_value().map(|(_, began)| *began);
            // An answer that moves at all ends itself in time.
            if oldest.is_some_and(|began| now > began + timeouts.whole * 2) {
                return Look::Stuck;
            }
            return Look::Again(now + timeouts.header.min(longest_idle));
        }
        let head_since = self.head_since.load(Relaxed);
        let (since, longest, overdue) = if self.asked.load(Relaxed) == 0 {
            let longest = match head_since {
                0 => timeouts.header.min(longest_idle),
                1.. => timeouts.header,
            };
            (0, longest, Look::Late)
        } else if head_since != 0 && !self.is_http2() {
            (head_since - 1, timeouts.header, Look::Late)
        } else {
            (self.quiet_since.load(Relaxed), longest_idle, Look::Idle)
        };
        // A request may have been on its way when the gateway stopped.
        let since = since.max(self.stopped.load(Relaxed));
        let until = self.started + Duration::from_millis(since) + longest;
        match until > now {
            // Bytes may come any time: a head's time runs from then.
            true => Look::Again(until.min(now + timeouts.header)),
            false => overdue,
        }
    }

    fn answering(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.answering
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

/// A request in flight, until its answer is sent or given up.
#[derive(Debug)]
pub(super) struct InFlight {
    watch: Arc<ConnectionState>,
    number: u64,
    answered: bool,
}

impl InFlight {
    /// Whether the gateway has stopped meanwhile.
    pub(super) fn is_draining(&self) -> bool {
        self.watch.is_draining()
    }

    /// The answer has begun.
    pub(super) fn answered(&mut self) {
        self.answered = true;
        if self.watch.is_http2() {
            let now = Instant::now();
            self.watch.answering().insert(self.number, now);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let watch = &self.watch;
        if !self.answered {
            let given_up = watch.given_up.fetch_add(1, Relaxed) + 1;
            if given_up > watch.most_given_up && given_up > watch.asked.load(Relaxed) / 2 {
                watch.enough.notify_one();
            }
        }
        if watch.is_http2() {
            watch.answering().remove(&self.number);
        }
        watch.quiet_since.store(watch.now(), Relaxed);
        watch.in_flight.fetch_sub(1, Relaxed);
    }
}
