//! Request and response bodies: streamed, bounded in size towards upstreams and in time both ways.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tallygate::tower::FromBytes;
use tokio::time::Instant;

use super::connection_state::InFlight;
use super::error::GatewayError;
use super::idle_timeout::IdleTimeout;
use super::pool::PooledConnection;
use super::read_ahead::ClientBody;
use super::replay_body::ReplayBody;

/// A request's body on its way to an upstream.
// Boxed: it is moved often with its request, and most are empty.
#[derive(Debug)]
pub(super) struct OutboundBody(Option<Box<Upload>>);

#[derive(Debug)]
struct Upload {
    body: ClientBody,
    progress: Arc<UploadProgress>,
    remaining_bytes: u64,
    idle: IdleTimeout,
}

#[derive(Debug)]
pub(super) struct UploadProgress {
    started: Instant,
    /// In milliseconds since then.
    last: AtomicU64,
    error: AtomicU8,
}

const TOO_LARGE: u8 = 1;
const TIMEOUT: u8 = 2;
const BROKEN: u8 = 3;

impl UploadProgress {
    pub(super) fn last(&self) -> Instant {
        self.started + Duration::from_millis(self.last.load(Relaxed))
    }

    /// Why the upload stopped, if that was the client's fault.
    pub(super) fn error(&self) -> Option<GatewayError> {
        match self.error.load(Relaxed) {
            0 => None,
            TOO_LARGE => Some(GatewayError::BodyTooLarge),
            TIMEOUT => Some(GatewayError::BodyTimeout),
            _ => Some(GatewayError::BadRequest(
                "the body broke off or is malformed",
            )),
        }
    }

    fn record(&self) {
        let millis = self.started.elapsed().as_millis();
        self.last
            .store(u64::try_from(millis).unwrap_or(u64::MAX), Relaxed);
    }
}

impl OutboundBody {
    pub(super) fn empty() -> Self {
        OutboundBody(None)
    }

    pub(super) fn new(
        body: ClientBody,
        max_bytes: u64,
        idle_timeout: Duration,
        started: Instant,
    ) -> (Self, Arc<UploadProgress>) {
        let progress = Arc::new(UploadProgress {
            started,
            last: AtomicU64::new(0),
            error: AtomicU8::new(0),
        });
        let upload = Upload {
            body,
            progress: Arc::clone(&progress),
            remaining_bytes: max_bytes,
            idle: IdleTimeout::new(idle_timeout),
        };
        (OutboundBody(Some(Box::new(upload))), progress)
    }
}

impl Body for OutboundBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(upload) = &mut self.get_mut().0 else {
            return Poll::Ready(None);
        };
        let Upload {
            body,
            progress,
            remaining_bytes,
            idle,
        } = &mut **upload;
        let fail = |error| {
            progress.error.store(error, Relaxed);
            Poll::Ready(Some(Err(BodyError)))
        };
        let Poll::Ready(frame) = Pin::new(body).poll_frame(context) else {
            ready!(idle.poll(context));
            return fail(TIMEOUT);
        };
        idle.stop();
        progress.record();
        match frame {
            None => Poll::Ready(None),
            Some(Err(_)) => fail(BROKEN),
            Some(Ok(frame)) => {
                let len = frame.data_ref().map_or(0, Bytes::len) as u64;
                match remaining_bytes.checked_sub(len) {
                    Some(rest) => *remaining_bytes = rest,
                    None => return fail(TOO_LARGE),
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let upload = self.0.as_ref();
        upload.is_none_or(|upload| upload.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Some(upload) => upload.body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyError;

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body stopped before its end")
    }
}

impl std::error::Error for BodyError {}

#[derive(Debug)]
pub(super) enum ResponseBody {
    Upstream(UpstreamBody),
    Full(Bytes),
    Replay(ReplayBody),
}

#[derive(Debug)]
pub(super) struct UpstreamBody {
    inner: Incoming,
    /// Goes back to the pool at the end of the body.
    connection: Option<PooledConnection>,
    idle: IdleTimeout,
    deadline: Instant,
}

impl UpstreamBody {
    pub(super) fn new(
        inner: Incoming,
        connection: Option<PooledConnection>,
        idle_timeout: Duration,
        deadline: Instant,
    ) -> Self {
        let mut body = UpstreamBody {
            inner,
            connection,
            idle: IdleTimeout::new(idle_timeout),
            deadline,
        };
        if body.inner.is_end_stream() {
            body.release_connection();
        }
        body
    }

    fn release_connection(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.release();
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) else {
            ready!(this.idle.poll(context));
            return Poll::Ready(Some(Err(BodyError)));
        };
        this.idle.stop();
        if frame.is_none() || this.inner.is_end_stream() {
            this.release_connection();
        }
        Poll::Ready(match frame {
            None => None,
            Some(Err(_)) => Some(Err(BodyError)),
            Some(Ok(_)) if Instant::now() > this.deadline => Some(Err(BodyError)),
            Some(Ok(frame)) => Some(Ok(frame)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl FromBytes for ResponseBody {
    fn from_bytes(bytes: Bytes) -> Self {
        ResponseBody::Full(bytes)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            ResponseBody::Upstream(body) => Pin::new(body).poll_frame(context),
            ResponseBody::Replay(body) => body.poll_frame(context),
            ResponseBody::Full(bytes) => Poll::Ready(match bytes.is_empty() {
                true => None,
                false => Some(Ok(Frame::data(std::mem::take(bytes)))),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Upstream(body) => body.is_end_stream(),
            ResponseBody::Replay(body) => body.is_end_stream(),
            ResponseBody::Full(bytes) => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Upstream(body) => body.size_hint(),
            ResponseBody::Replay(body) => body.size_hint(),
            ResponseBody::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

/// A response's body that keeps its request in flight until it is sent or abandoned.
#[derive(Debug)]
pub(super) struct TrackedBody {
    inner: ResponseBody,
    _in_flight: InFlight,
}

impl TrackedBody {
    pub(super) fn new(inner: ResponseBody, in_flight: InFlight) -> Self {
        TrackedBody {
            inner,
            _in_flight: in_flight,
        }
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.get_mut().inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
