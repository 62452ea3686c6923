//! Request and response bodies: streamed, bounded in size towards upstreams and in time both ways.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tallygate::tower::FromBytes;
use thiserror::Error;
use tokio::time::Instant;

use super::connection_state::InFlight;
use super::error::GatewayError;
use super::idle_timeout::IdleTimeout;
use super::pool::PooledConnection;
use super::read_ahead::ClientBody;

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
    /// Why the upload stopped, if that was the client's fault.
    pub(super) error: OnceLock<GatewayError>,
}

impl UploadProgress {
    pub(super) fn last(&self) -> Instant {
        self.started + Duration::from_millis(self.last.load(Relaxed))
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
            error: OnceLock::new(),
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
            let _ = progress.error.set(error);
            Poll::Ready(Some(Err(BodyError)))
        };
        let Poll::Ready(frame) = Pin::new(body).poll_frame(context) else {
            ready!(idle.poll(context));
            return fail(GatewayError::BodyTimeout);
        };
        idle.stop();
        progress.record();
        match frame {
            None => Poll::Ready(None),
            Some(Err(_)) => fail(GatewayError::BadRequest(
                "the body broke off or is malformed",
            )),
            Some(Ok(frame)) => {
                let len = frame.data_ref().map_or(0, Bytes::len) as u64;
                match remaining_bytes.checked_sub(len) {
                    Some(rest) => *remaining_bytes = rest,
                    None => return fail(GatewayError::BodyTooLarge),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the body stopped before its end")]
pub(super) struct BodyError;

/// A response's body: buffered bytes, then the rest of the upstream's body or trailers.
#[derive(Debug, Default)]
pub(super) struct ResponseBody {
    pub(super) buffered: Bytes,
    pub(super) rest: Option<UpstreamBody>,
    /// Boxed: rare, and the body is moved often with its response.
    pub(super) trailers: Option<Box<HeaderMap>>,
    /// Keeps the request in flight until the body is sent or abandoned.
    pub(super) in_flight: Option<InFlight>,
}

impl FromBytes for ResponseBody {
    fn from_bytes(buffered: Bytes) -> Self {
        ResponseBody {
            buffered,
            ..ResponseBody::default()
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if !this.buffered.is_empty() {
            let buffered = std::mem::take(&mut this.buffered);
            return Poll::Ready(Some(Ok(Frame::data(buffered))));
        }
        match &mut this.rest {
            Some(rest) => rest.poll_frame(context),
            None => Poll::Ready(this.trailers.take().map(|list| Ok(Frame::trailers(*list)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        let mut rest = self.rest.iter();
        self.buffered.is_empty()
            && self.trailers.is_none()
            && rest.all(|rest| rest.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map(|rest| rest.inner.size_hint());
        let rest = rest.unwrap_or_else(|| SizeHint::with_exact(0));
        prepend(self.buffered.len(), &rest)
    }
}

/// The size of so many bytes followed by a body.
pub(super) fn prepend(bytes: usize, body: &SizeHint) -> SizeHint {
    let bytes = bytes as u64;
    let mut hint = SizeHint::new();
    hint.set_lower(body.lower().saturating_add(bytes));
    if let Some(upper) = body.upper().and_then(|upper| upper.checked_add(bytes)) {
        hint.set_upper(upper);
    }
    hint
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

    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(context) else {
            ready!(self.idle.poll(context));
            return Poll::Ready(Some(Err(BodyError)));
        };
        self.idle.stop();
        if frame.is_none() || self.inner.is_end_stream() {
            self.release_connection();
        }
        Poll::Ready(match frame {
            None => None,
            Some(Err(_)) => Some(Err(BodyError)),
            Some(Ok(_)) if Instant::now() > self.deadline => Some(Err(BodyError)),
            Some(Ok(frame)) => Some(Ok(frame)),
        })
    }
}
