//! The access log: a line of JSON for each request, with what became of it.
//!
//! A request is recorded from its head until its response is sent or dropped. Layers below add to the
//! record of the task they run in. A line holds no path, query, header or key in clear, unless keys
//! are shown; request ids and trace ids are the exception.

mod line;
mod writer;

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{Request, StatusCode};
use prometheus::IntCounter;
use smallvec::SmallVec;
use tallygate::http::Outcome;
use tokio::sync::oneshot;

use self::line::{Decided, Line};
use self::writer::{Message, Output};
use crate::metrics::AccessLogMetrics;
use crate::otlp::{self, Listener};

/// Lines that wait to be written; more are dropped. A line has a few hundred bytes.
const MAX_QUEUED_LINES: usize = 8_192;
/// The decisions in a line; more are left out.
const MAX_DECISIONS: usize = 16;
const MAX_METHOD_BYTES: usize = 16;
const MAX_REQUEST_ID_BYTES: usize = 128;
const REQUEST_ID: &str = "x-request-id";
/// How long shutdown waits for the queued lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
const FLUSH_RETRY: Duration = Duration::from_millis(10);

tokio::task_local! {
    static RECORD: Arc<Record>;
}

/// The queue of lines to a thread that writes them.
#[derive(Debug)]
pub(crate) struct AccessLog {
    lines: SyncSender<Message>,
    dropped: IntCounter,
    /// Whether paths are written: they may hold keys.
    shows_paths: bool,
}

/// What is known of a request. Its line is written when the [`RequestRecord`] is dropped.
#[derive(Debug)]
pub(crate) struct Record {
    log: Arc<AccessLog>,
    started: Instant,
    listener: Listener,
    method: String,
    path: Option<String>,
    request_id: Option<String>,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    details: Mutex<Details>,
}

#[derive(Debug, Default)]
struct Details {
    trace_id: Option<String>,
    status: Option<StatusCode>,
    deciding: Duration,
    decisions: SmallVec<[Decision; 1]>,
    upstream: Option<UpstreamCall>,
}

/// The outcome of a rule.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) rule: String,
    /// As people may see it; `None` if the rule decided without one.
    pub(crate) key: Option<String>,
    pub(crate) outcome: Outcome,
}

/// The last attempt to get a response from an upstream.
#[derive(Clone, Debug)]
struct UpstreamCall {
    address: String,
    elapsed: Duration,
    error: Option<&'static str>,
}

/// Writes the line of a request when dropped.
#[derive(Debug)]
pub(crate) struct RequestRecord(Arc<Record>);

impl AccessLog {
    /// Opens a file to append to, or with `-` standard output, and starts the thread that writes.
    ///
    /// # Errors
    /// When the file cannot be opened, or the thread cannot be started.
    pub(crate) fn open(
        path: &Path,
        shows_paths: bool,
        metrics: &AccessLogMetrics,
    ) -> io::Result<Self> {
        let output = Output::open(path)?;
        let (lines, queue) = std::sync::mpsc::sync_channel(MAX_QUEUED_LINES);
        writer::start(output, queue, metrics.clone())?;
        Ok(AccessLog {
            lines,
            dropped: metrics.dropped.clone(),
            shows_paths,
        })
    }

    /// Starts the record of a request.
    pub(crate) fn start<B>(
        self: &Arc<Self>,
        listener: Listener,
        request: &Request<B>,
    ) -> RequestRecord {
        let headers = request.headers();
        let mut ids = headers.get_all(REQUEST_ID).iter();
        let request_id = match (ids.next(), ids.next()) {
            (Some(id), None) => id.to_str().ok().filter(|id| is_request_id(id)),
            _ => None,
        };
        // Clients may send any method.
        let method = match request.method().as_str() {
            method if method.len() <= MAX_METHOD_BYTES => method,
            _ => "_OTHER",
        };
        let path = self.shows_paths.then(|| request.uri().path().to_owned());
        let record = Record {
            log: Arc::clone(self),
            started: Instant::now(),
            listener,
            method: method.to_owned(),
            path,
            request_id: request_id.map(str::to_owned),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            details: Mutex::default(),
        };
        record.details().trace_id = otlp::trace_id(headers).map(str::to_owned);
        RequestRecord(Arc::new(record))
    }

    /// Opens the file again, after it was renamed.
    pub(crate) fn reopen(&self) {
        // A full queue means that writing stalls: the next signal may find it otherwise.
        let _ = self.lines.try_send(Message::Reopen);
    }

    /// Waits until all lines so far are written, for a while.
    pub(crate) async fn flush(&self) {
        let flushed = async {
            let (done, mut flushed) = oneshot::channel();
            let mut message = Message::Flush(done);
            loop {
                match self.lines.try_send(message) {
                    Ok(()) => break,
                    Err(TrySendError::Full(back)) => message = back,
                    Err(TrySendError::Disconnected(_)) => return,
                }
                tokio::time::sleep(FLUSH_RETRY).await;
            }
            let _ = (&mut flushed).await;
        };
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, flushed).await;
    }

    fn push(&self, line: Vec<u8>) {
        if self.lines.try_send(Message::Line(line)).is_err() {
            self.dropped.inc();
        }
    }
}

/// Whether a request id is shown: nothing that would have to be quoted, and nothing long.
fn is_request_id(id: &str) -> bool {
    let is_shown = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
    (1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.bytes().all(is_shown)
}

/// The record of the request that the current task serves.
pub(crate) fn current() -> Option<Arc<Record>> {
    RECORD.try_with(Arc::clone).ok()
}

impl RequestRecord {
    pub(crate) fn record(&self) -> &Arc<Record> {
        &self.0
    }

    /// Runs a request: what it records is part of this record.
    pub(crate) fn scope<F: Future>(&self, request: F) -> impl Future<Output = F::Output> + use<F> {
        RECORD.scope(Arc::clone(&self.0), request)
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let line = self.0.line();
        self.0.log.push(line);
    }
}

impl Record {
    pub(crate) fn set_status(&self, status: StatusCode) {
        self.details().status = Some(status);
    }

    pub(crate) fn set_trace_id(&self, trace_id: String) {
        self.details().trace_id = Some(trace_id);
    }

    /// Adds bytes of the response's body.
    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Adds bytes of the request's body.
    pub(crate) fn add_received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Adds what the rules decided, and how long that took.
    pub(crate) fn add_decisions(
        &self,
        decisions: impl IntoIterator<Item = Decision>,
        elapsed: Duration,
    ) {
        let mut details = self.details();
        details.deciding += elapsed;
        let room = MAX_DECISIONS - details.decisions.len();
        details.decisions.extend(decisions.into_iter().take(room));
    }

    /// Sets the last attempt to get a response from an upstream.
    pub(crate) fn set_upstream(
        &self,
        address: &str,
        elapsed: Duration,
        error: Option<&'static str>,
    ) {
        self.details().upstream = Some(UpstreamCall {
            address: address.to_owned(),
            elapsed,
            error,
        });
    }

    fn line(&self) -> Vec<u8> {
        let details = self.details();
        let upstream = details.upstream.as_ref();
        // The outcome that says most about the response.
        let weight = |outcome: Outcome| match outcome {
            Outcome::Refused | Outcome::DegradedRefused => 4,
            Outcome::Delayed => 3,
            Outcome::DegradedAdmitted => 2,
            Outcome::Admitted => 1,
            Outcome::ShadowRefused => 0,
        };
        let decisions = details.decisions.iter();
        // The first one of the heaviest.
        let decisive = decisions.rev().max_by_key(|one| weight(one.outcome));
        line::write(&Line {
            listener: self.listener.name(),
            method: &self.method,
            path: self.path.as_deref(),
            status: details.status.map(|status| status.as_u16()),
            rule: decisive.map(|one| one.rule.as_str()),
            decision: decisive.map(|one| one.outcome.name()),
            decision_us: micros(details.deciding),
            duration_us: micros(self.started.elapsed()),
            upstream: upstream.map(|call| call.address.as_str()),
            upstream_us: upstream.map(|call| micros(call.elapsed)),
            upstream_error: upstream.and_then(|call| call.error),
            bytes_received: self.received_bytes.load(Relaxed),
            bytes_sent: self.sent_bytes.load(Relaxed),
            request_id: self.request_id.as_deref(),
            trace_id: details.trace_id.as_deref(),
            decisions: details.decisions.iter().map(Decided::from).collect(),
        })
    }

    fn details(&self) -> MutexGuard<'_, Details> {
        // No statement leaves them half changed.
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_are_short_and_need_no_quotes() {
        for id in ["7", "0af7651916cd43dd-8448", "a.b:c/d+e=f@g_h"] {
            assert!(is_request_id(id), "{id}");
        }
        for id in ["", "a b", "a\"", "é", "a\\b", &"x".repeat(129)] {
            assert!(!is_request_id(id), "{id}");
        }
    }
}
