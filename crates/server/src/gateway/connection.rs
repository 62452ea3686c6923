//! Serves one client connection: every request is validated, limited and forwarded.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tallygate::Store;
use tallygate::http::{Peer, Policy};
use tallygate::tower::{FromBytes, RateLimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tower_service::Service;

use super::body::ResponseBody;
use super::client_io::ClientIo;
use super::coalesce::Coalesce;
use super::connection_state::{ConnectionState, Deadline};
use super::error::GatewayError;
use super::{Limits, Settings, read_ahead, smuggling};
use crate::listener::{Accepted, ConnectionHandler, Phase};
use crate::otlp;

pub(super) struct GatewayHandler<P, S> {
    http: auto::Builder<TokioExecutor>,
    service: RateLimit<Coalesce, P, S>,
    pub(super) settings: Settings,
}

impl<P, S> GatewayHandler<P, S> {
    pub(super) fn new(service: RateLimit<Coalesce, P, S>, settings: Settings) -> Self {
        GatewayHandler {
            http: http_builder(&settings.limits),
            service,
            settings,
        }
    }
}

fn http_builder(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
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
        let state = Arc::new(ConnectionState::new(accepted, &self.settings.limits));
        let io = ClientIo::new(io, Arc::clone(&state), timeouts.write);
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
            let idle = match current {
                Phase::Running => timeouts.keep_alive,
                Phase::Draining => {
                    state.drain();
                    timeouts.linger.min(timeouts.keep_alive)
                }
                Phase::Aborting => return,
            };
            if current == Phase::Draining && state.is_http2() && !shutting_down {
                // GOAWAY names the last request, so that none is lost.
                connection.as_mut().graceful_shutdown();
                shutting_down = true;
            }
            let next_check = match state.check_deadline(timeouts, idle) {
                Deadline::At(next_check) => next_check,
                Deadline::HeadTimeout | Deadline::ResponseTimeout => return,
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
    /// Boxed: few requests are traced, and the other futures stay small.
    Traced(Pin<Box<T>>),
    Rejected(GatewayError),
}

/// Handles one request. Validates it before the future is built, which then need not hold it.
fn handle<P: Policy, S: Store>(
    handler: &Arc<GatewayHandler<P, S>>,
    state: &Arc<ConnectionState>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> + use<P, S> {
    let version = request.version();
    let mut in_flight = state.begin(version);
    let limits = &handler.settings.limits;
    let valid = smuggling::validate(&request, state.has_conflicting_framing(), limits);
    let handling = match (valid, &handler.settings.tracer) {
        (Ok(()), None) => Handling::Limited(limit(handler, Arc::clone(state), request)),
        (Ok(()), Some(_)) => {
            let traced = trace(Arc::clone(handler), Arc::clone(state), request);
            Handling::Traced(Box::pin(traced))
        }
        (Err(error), _) => Handling::Rejected(error),
    };
    async move {
        let mut response = match handling {
            Handling::Limited(limited) => limited.await,
            Handling::Traced(traced) => traced.await,
            Handling::Rejected(error) => error.response().map(ResponseBody::from_bytes),
        };
        in_flight.start_response();
        if version == Version::HTTP_2 {
            response.headers_mut().remove(CONNECTION);
        } else if in_flight.is_draining() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response.body_mut().in_flight = Some(in_flight);
        Ok(response)
    }
}

async fn trace<P: Policy, S: Store>(
    handler: Arc<GatewayHandler<P, S>>,
    state: Arc<ConnectionState>,
    mut request: Request<Incoming>,
) -> Response<ResponseBody> {
    let tracer = handler.settings.tracer.as_ref();
    let span = tracer.and_then(|tracer| {
        tracer.start(otlp::Listener::Gateway, request.method(), request.headers())
    });
    match span {
        None => limit(&handler, state, request).await,
        Some(span) => {
            span.propagate(request.headers_mut());
            span.run(async { limit(&handler, state, request).await })
                .await
        }
    }
}

/// Passes a request through the limits, unless its client disconnects first.
fn limit<P: Policy, S: Store>(
    handler: &GatewayHandler<P, S>,
    state: Arc<ConnectionState>,
    request: Request<Incoming>,
) -> impl Future<Output = Response<ResponseBody>> + use<P, S> {
    let (request, disconnect) = read_ahead::wrap(request, state);
    let response = handler.service.clone().call(request);
    async move {
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
}
