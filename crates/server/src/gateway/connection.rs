//! Serves one client connection: every request is validated, limited and forwarded.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tallygate::Store;
use tallygate::http::{Head, Peer, Policy};
use tallygate::tower::{FromBytes, RateLimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tower_service::Service;

use super::body::{ResponseBody, UploadLimits};
use super::client_io::ClientIo;
use super::coalesce::Coalesce;
use super::connection_state::{ConnectionState, Deadline};
use super::error::GatewayError;
use super::read_ahead::{Disconnect, JsonMemory};
use super::stream_executor::StreamExecutor;
use super::{Limits, Settings, Timeouts, read_ahead, smuggling};
use crate::access_log::{self, RequestRecord};
use crate::listener::{Accepted, ClientSocket, ConnectionHandler, Phase};
use crate::metrics::GatewayMetrics;
use crate::otlp;

/// How much of the bodies of an HTTP/2 connection is buffered while they are held back. More would
/// be faster over long distances, but all connections together may take this much.
const HTTP2_WINDOW_BYTES: u32 = 256 << 10;
/// How long a connection that is closed to make room has for a request on its way.
const EVICTION_GRACE: Duration = Duration::from_millis(250);

pub(super) struct GatewayHandler<P, S> {
    http: auto::Builder<StreamExecutor>,
    service: RateLimit<Coalesce, P, S>,
    policy: Arc<P>,
    json_memory: JsonMemory,
    pub(super) settings: Settings,
    pub(super) metrics: Arc<GatewayMetrics>,
}

impl<P, S> GatewayHandler<P, S> {
    pub(super) fn new(
        service: RateLimit<Coalesce, P, S>,
        policy: Arc<P>,
        settings: Settings,
        metrics: Arc<GatewayMetrics>,
    ) -> Self {
        GatewayHandler {
            http: http_builder(&settings.limits, &settings.timeouts),
            service,
            policy,
            json_memory: JsonMemory::default(),
            settings,
            metrics,
        }
    }
}

fn http_builder(limits: &Limits, timeouts: &Timeouts) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(StreamExecutor::new(timeouts.write));
    builder
        .http1()
        // hyper's timeout would also run between requests; `ConnectionState` has one for each.
        .header_read_timeout(None)
        .max_buf_size(limits.head_bytes.max(8 << 10));
    // hyper allocates for any other number than its default.
    if limits.headers != Limits::default().headers {
        builder.http1().max_headers(limits.headers);
    }
    let head_bytes = u32::try_from(limits.head_bytes).unwrap_or(u32::MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(head_bytes)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES)
        .max_pending_accept_reset_streams(20)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

impl<P: Policy, S: Store> ConnectionHandler for GatewayHandler<P, S> {
    async fn serve<T>(self: Arc<Self>, io: T, accepted: Accepted)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (peer, mut phase) = (accepted.peer, accepted.phase.clone());
        let timeouts = &self.settings.timeouts;
        let metrics = Arc::clone(&self.metrics);
        let state = ConnectionState::new(accepted, &self.settings.limits, metrics);
        let state = Arc::new(state);
        let activity = Arc::clone(state.activity());
        let socket = ClientSocket::new(io, activity, timeouts.write, timeouts.linger);
        let io = ClientIo::new(socket, Arc::clone(&state));
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            handle(&self, &state, request)
        });
        let connection = self
            .http
            .serve_connection_with_upgrades(TokioIo::new(io), service);
        let mut connection = pin!(connection);
        let mut shutting_down = false;
        loop {
            let current = *phase.borrow_and_update();
            let is_closing = state.activity().is_closing();
            let idle = match current {
                Phase::Running if !is_closing => timeouts.keep_alive,
                Phase::Running | Phase::Draining => {
                    state.drain();
                    let linger = timeouts.linger.min(timeouts.keep_alive);
                    match is_closing {
                        true => linger.min(EVICTION_GRACE),
                        false => linger,
                    }
                }
                Phase::Aborting => return,
            };
            // GOAWAY names the last request, so that none is lost.
            let leaves = state.is_http2() && current == Phase::Draining || is_closing;
            if leaves && !shutting_down {
                connection.as_mut().graceful_shutdown();
                shutting_down = true;
            }
            let next_check = match state.check_deadline(timeouts, idle) {
                Deadline::At(next_check) => next_check,
                Deadline::HeadTimeout => return,
                Deadline::Idle if shutting_down => return,
                Deadline::Idle => {
                    connection.as_mut().graceful_shutdown();
                    shutting_down = true;
                    Instant::now() + timeouts.header
                }
            };
            let interrupt = async {
                tokio::select! {
                    () = sleep_until(next_check) => true,
                    () = state.too_many_resets.notified() => false,
                    () = state.activity().closing() => true,
                    // An error means that the listener is gone.
                    changed = phase.changed() => changed.is_ok(),
                }
            };
            // `FuturesUnordered` polls it only when woken, not with every poll of the connection.
            let mut interrupt: FuturesUnordered<_> = [interrupt].into_iter().collect();
            let goes_on = tokio::select! {
                biased;
                // Errors are the client's: it left, or was answered with a 400.
                _ = connection.as_mut() => return,
                goes_on = interrupt.next() => goes_on,
            };
            if goes_on != Some(true) {
                return;
            }
        }
    }
}

enum Handling<L, T> {
    Limited(L),
    /// Traced or logged. Boxed: few requests are traced, and the other futures stay small.
    Observed(Pin<Box<T>>),
    Rejected(GatewayError),
}

/// Handles one request. Validates it before the future is built, which then need not hold it.
fn handle<P: Policy, S: Store>(
    handler: &Arc<GatewayHandler<P, S>>,
    state: &Arc<ConnectionState>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> + use<P, S> {
    let version = request.version();
    let mut in_flight = state.begin(version, !request.body().is_end_stream());
    let limits = &handler.settings.limits;
    let is_ambiguous = version != Version::HTTP_2 && state.is_ambiguous();
    let log = handler.settings.access_log.as_ref();
    let record = log.map(|log| log.start(otlp::Listener::Gateway, &request));
    let valid = smuggling::validate(&request, is_ambiguous, limits);
    let is_observed = handler.settings.tracer.is_some() || record.is_some();
    let handling = match valid {
        Ok(()) if is_observed => {
            let trace = trace(Arc::clone(handler), Arc::clone(state), request);
            let observed = observe(record.as_ref(), trace);
            Handling::Observed(Box::pin(observed))
        }
        Ok(()) => Handling::Limited(limit(handler, Arc::clone(state), request)),
        Err(error) => Handling::Rejected(error),
    };
    async move {
        let mut response = match handling {
            Handling::Limited(limited) => limited.await,
            Handling::Observed(observed) => observed.await,
            Handling::Rejected(error) => error.response().map(ResponseBody::from_bytes),
        };
        in_flight.start_response(response.status());
        if version == Version::HTTP_2 {
            response.headers_mut().remove(CONNECTION);
        } else if in_flight.is_draining() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        if let Some(record) = &record {
            record.record().set_status(response.status());
        }
        response.body_mut().in_flight = Some(in_flight);
        response.body_mut().record = record;
        Ok(response)
    }
}

/// Handles a request; what it records is part of its record, if it has one.
fn observe<F: Future>(
    record: Option<&RequestRecord>,
    request: F,
) -> impl Future<Output = F::Output> + use<F> {
    match record {
        Some(record) => Either::Left(record.scope(request)),
        None => Either::Right(request),
    }
}

async fn trace<P: Policy, S: Store>(
    handler: Arc<GatewayHandler<P, S>>,
    state: Arc<ConnectionState>,
    mut request: Request<Incoming>,
) -> Response<ResponseBody> {
    let tracer = handler.settings.tracer.as_ref();
    let span = tracer.and_then(|tracer| {
        let peer = request.extensions().get().map(|Peer(peer)| peer.ip());
        let is_trusted = peer.is_some_and(|peer| handler.settings.trusted.contains(peer));
        let trusted = is_trusted.then(|| request.headers());
        tracer.start(otlp::Listener::Gateway, request.method(), trusted)
    });
    match span {
        None => limit(&handler, state, request).await,
        Some(span) => {
            span.propagate(request.headers_mut());
            if let Some(record) = access_log::current() {
                record.set_trace_id(span.trace_id());
            }
            span.run(async { limit(&handler, state, request).await })
                .await
        }
    }
}

/// Passes a request through the limits, unless its client disconnects first.
fn limit<P: Policy, S: Store>(
    handler: &Arc<GatewayHandler<P, S>>,
    state: Arc<ConnectionState>,
    request: Request<Incoming>,
) -> impl Future<Output = Response<ResponseBody>> + use<P, S> {
    let paths = match request.body().is_end_stream() {
        true => Vec::new(),
        false => handler.policy.json_paths(&Head::from(&request)),
    };
    if paths.is_empty() {
        let (request, disconnect) = read_ahead::wrap(request, state);
        let response = handler.service.clone().call(request);
        return Either::Left(respond(response, disconnect));
    }
    // Boxed: few requests are read, and the other futures stay small.
    let handler = Arc::clone(handler);
    Either::Right(Box::pin(async move {
        let limits = UploadLimits::new(&handler.settings, request.headers());
        let read = read_ahead::read_json(request, state, paths, limits, &handler.json_memory);
        match read.await {
            Ok((request, disconnect)) => {
                respond(handler.service.clone().call(request), disconnect).await
            }
            Err(error) => error.response().map(ResponseBody::from_bytes),
        }
    }))
}

async fn respond(
    response: impl Future<Output = Result<Response<ResponseBody>, Infallible>>,
    disconnect: Option<Disconnect>,
) -> Response<ResponseBody> {
    match disconnect {
        None => {
            let Ok(response) = response.await;
            response
        }
        Some(disconnect) => tokio::select! {
            biased;
            Ok(response) = response => response,
            // Dropping `response` removes it from the queue.
            () = disconnect => GatewayError::BadRequest("the body broke off")
                .response()
                .map(ResponseBody::from_bytes),
        },
    }
}
