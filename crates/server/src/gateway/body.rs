//! Request and response bodies: streamed, bounded in size towards upstreams and in time both ways.

use std::future::{Future, poll_fn};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tallygate::tower::{BodyWatch, FromBytes};
use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Settings;
use super::connection_state::InFlight;
use super::error::GatewayError;
use super::headers::prepare_trailers;
use super::pool::PooledConnection;
use super::read_ahead::ClientBody;
use super::settings::RuleHeaders;
use super::stream_executor::record_body_poll;
use crate::access_log::{self, Record, RequestRecord};
use crate::idle_timeout::IdleTimeout;
use crate::metrics::{UpstreamErrorKind, UpstreamMetrics};

/// A request's body on its way to an upstream.
// Boxed: it is moved often with its request, and most are empty.
#[derive(Debug)]
pub(super) struct OutboundBody(Option<Box<Upload>>);

#[derive(Debug)]
struct Upload {
    body: ClientBody,
    progress: Arc<UploadProgress>,
    max_bytes: u64,
    rule_headers: RuleHeaders,
    wait: UploadWait,
    /// Of the access log.
    record: Option<Arc<Record>>,
}

/// Waits for a client's body, for at most the idle timeout and as its average rate allows.
#[derive(Debug)]
pub(super) struct UploadWait {
    idle_timeout: Duration,
    least_rate: Option<LeastRate>,
    received_bytes: u64,
    /// How long the upstream has waited for the client, but for the current wait. The time in which
    /// the body is held back does not count: then it is not polled.
    waited: Duration,
    current: Option<Wait>,
}

/// A wait for more of a body.
#[derive(Debug)]
struct Wait {
    started: Instant,
    timer: Pin<Box<Sleep>>,
}

/// The bounds of a request's body.
#[derive(Clone, Copy, Debug)]
pub(super) struct UploadLimits {
    max_bytes: u64,
    /// Between two frames.
    idle_timeout: Duration,
    /// `None`: no least rate.
    least_rate: Option<LeastRate>,
}

/// How fast a body has to arrive on average.
#[derive(Clone, Copy, Debug)]
struct LeastRate {
    bytes_per_second: NonZeroU32,
    /// From when on.
    grace: Duration,
}

impl UploadLimits {
    pub(super) fn new(settings: &Settings, headers: &HeaderMap) -> Self {
        let Settings {
            limits, timeouts, ..
        } = settings;
        // A stream of messages may be as slow as these.
        let rate = NonZeroU32::new(limits.body_rate).filter(|_| !is_grpc(headers));
        UploadLimits {
            max_bytes: limits.body_bytes,
            idle_timeout: timeouts.body_idle,
            least_rate: rate.map(|bytes_per_second| LeastRate {
                bytes_per_second,
                grace: timeouts.body_grace,
            }),
        }
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let prefix = kind.and_then(|kind| kind.get(..GRPC.len()));
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(GRPC))
}

impl LeastRate {
    /// How long so many bytes may take.
    fn time_for(&self, bytes: u64) -> Duration {
        let rate = u64::from(self.bytes_per_second.get());
        let rest = Duration::from_secs(bytes % rate) / self.bytes_per_second.get();
        self.grace.max(Duration::from_secs(bytes / rate) + rest)
    }
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
        limits: UploadLimits,
        rule_headers: RuleHeaders,
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
            max_bytes: limits.max_bytes,
            rule_headers,
            wait: UploadWait::new(limits),
            record: access_log::current(),
        };
        (OutboundBody(Some(Box::new(upload))), progress)
    }
}

impl UploadWait {
    pub(super) fn new(limits: UploadLimits) -> Self {
        UploadWait {
            idle_timeout: limits.idle_timeout,
            least_rate: limits.least_rate,
            received_bytes: 0,
            waited: Duration::ZERO,
            current: None,
        }
    }

    /// Whether the client has taken too long; polled while nothing comes.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let wait = self.current.get_or_insert_with(|| {
            let timeout = self.least_rate.map_or(self.idle_timeout, |rate| {
                let left = rate
                    .time_for(self.received_bytes)
                    .saturating_sub(self.waited);
                left.min(self.idle_timeout)
            });
            let started = Instant::now();
            Wait {
                started,
                timer: Box::pin(sleep_until(started + timeout)),
            }
        });
        wait.timer.as_mut().poll(context)
    }

    fn end(&mut self) {
        if let Some(wait) = self.current.take() {
            self.waited += wait.started.elapsed();
        }
    }

    /// The next frame of a body.
    pub(super) async fn next(
        &mut self,
        body: &mut Incoming,
    ) -> Result<Option<Frame<Bytes>>, GatewayError> {
        let frame = poll_fn(|context| match Pin::new(&mut *body).poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => self.poll(context).map(|()| Err(GatewayError::BodyTimeout)),
        });
        let frame = frame.await?;
        self.end();
        let frame = frame.transpose().map_err(|_| BROKEN_BODY)?;
        let bytes = frame
            .as_ref()
            .and_then(Frame::data_ref)
            .map_or(0, Bytes::len);
        self.received_bytes += bytes as u64;
        Ok(frame)
    }
}

const BROKEN_BODY: GatewayError = GatewayError::BadRequest("the body broke off or is malformed");

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
        let polled = Pin::new(&mut upload.body).poll_frame(context);
        let fail = |upload: &Upload, error| {
            let _ = upload.progress.error.set(error);
            Poll::Ready(Some(Err(BodyError)))
        };
        let Poll::Ready(frame) = polled else {
            ready!(upload.wait.poll(context));
            return fail(upload, GatewayError::BodyTimeout);
        };
        upload.wait.end();
        upload.progress.record();
        match frame {
            None => Poll::Ready(None),
            Some(Err(_)) => fail(upload, BROKEN_BODY),
            Some(Ok(mut frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    prepare_trailers(trailers, &upload.rule_headers);
                }
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                upload.wait.received_bytes += bytes as u64;
                if let Some(record) = &upload.record {
                    record.add_received(bytes);
                }
                match upload.wait.received_bytes <= upload.max_bytes {
                    true => Poll::Ready(Some(Ok(frame))),
                    false => fail(upload, GatewayError::BodyTooLarge),
                }
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

/// The largest piece of a response that an HTTP/2 stream gets: a client that takes less than a piece
/// within the write timeout counts as stalled.
const MAX_HTTP2_FRAME_BYTES: usize = 16 << 10;

/// A response's body: buffered bytes, then the rest of the upstream's body or trailers.
#[derive(Debug, Default)]
pub(super) struct ResponseBody {
    pub(super) buffered: Bytes,
    pub(super) rest: Option<UpstreamBody>,
    /// Boxed: rare, and the body is moved often with its response.
    pub(super) trailers: Option<Box<HeaderMap>>,
    /// Keeps the request in flight until the body is sent or abandoned.
    pub(super) in_flight: Option<InFlight>,
    /// Written to the access log when the body is sent or abandoned.
    pub(super) record: Option<RequestRecord>,
    /// Sees the body as it passes. Boxed: few requests need it.
    pub(super) watch: Option<Box<BodyWatch>>,
}

impl FromBytes for ResponseBody {
    fn from_bytes(buffered: Bytes) -> Self {
        ResponseBody {
            buffered,
            ..ResponseBody::default()
        }
    }

    fn watched(mut self, mut watch: BodyWatch) -> Self {
        // It will not be polled.
        if self.is_end_stream() {
            watch.end();
        }
        self.watch = Some(Box::new(watch));
        self
    }
}

impl ResponseBody {
    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        is_http2: bool,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.buffered.is_empty() {
            let Some(rest) = &mut self.rest else {
                return Poll::Ready(self.trailers.take().map(|list| Ok(Frame::trailers(*list))));
            };
            match ready!(rest.poll_frame(context))
                .transpose()?
                .map(Frame::into_data)
            {
                Some(Ok(data)) if is_http2 && data.len() > MAX_HTTP2_FRAME_BYTES => {
                    self.buffered = data;
                }
                Some(Ok(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Err(other)) => return Poll::Ready(Some(Ok(other))),
                None => return Poll::Ready(None),
            }
        }
        let len = match is_http2 {
            true => self.buffered.len().min(MAX_HTTP2_FRAME_BYTES),
            false => self.buffered.len(),
        };
        Poll::Ready(Some(Ok(Frame::data(self.buffered.split_to(len)))))
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
        let is_http2 = this.in_flight.as_ref().is_some_and(InFlight::is_http2);
        let polled = this.poll_next(context, is_http2);
        if let (Some(record), Poll::Ready(Some(Ok(frame)))) = (&this.record, &polled) {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            record.record().add_sent(bytes);
        }
        if let Some(watch) = &mut this.watch {
            match &polled {
                Poll::Pending => {}
                Poll::Ready(None) => watch.end(),
                Poll::Ready(Some(Err(_))) => this.watch = None,
                Poll::Ready(Some(Ok(frame))) => {
                    watch.data(frame.data_ref().map_or(&[], |data| data));
                    if this.is_end_stream()
                        && let Some(watch) = &mut this.watch
                    {
                        watch.end();
                    }
                }
            }
        }
        if is_http2 {
            let is_data = |frame: &Frame<Bytes>| frame.is_data();
            record_body_poll(matches!(&polled, Poll::Ready(Some(Ok(frame))) if is_data(frame)));
        }
        polled
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
    metrics: Arc<UpstreamMetrics>,
}

impl UpstreamBody {
    pub(super) fn new(
        inner: Incoming,
        connection: Option<PooledConnection>,
        idle_timeout: Duration,
        deadline: Instant,
        metrics: Arc<UpstreamMetrics>,
    ) -> Self {
        let mut body = UpstreamBody {
            inner,
            connection,
            idle: IdleTimeout::new(idle_timeout),
            deadline,
            metrics,
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
            return self.fail();
        };
        self.idle.stop();
        if frame.is_none() || self.inner.is_end_stream() {
            self.release_connection();
        }
        match frame {
            None => Poll::Ready(None),
            Some(Err(_)) => self.fail(),
            Some(Ok(_)) if Instant::now() > self.deadline => self.fail(),
            Some(Ok(frame)) => Poll::Ready(Some(Ok(frame))),
        }
    }

    fn fail(&self) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.metrics.record_error(UpstreamErrorKind::Body);
        Poll::Ready(Some(Err(BodyError)))
    }
}
