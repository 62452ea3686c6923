//! Forwards a request to an upstream and its response to the client. Limits were applied and
//! charged before, once, however many upstreams are tried.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::iter::successors;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{CONNECTION, HOST, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{Extensions, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::upgrade::{OnUpgrade, on};
use tallygate::http::Holds;
use tallygate::tower::FromBytes;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::body::{OutboundBody, ResponseBody, UploadLimits, UploadProgress, UpstreamBody};
use super::connection_state::ConnectionState;
use super::error::GatewayError;
use super::read_ahead::InboundBody;
use super::settings::Protocol;
use super::upstreams::{ServerIndex, UpstreamError, UpstreamResponse, UpstreamResult, Upstreams};
use super::{Host, Settings, SettingsError, headers, smuggling, tunnel};
use crate::metrics::{GatewayMetrics, UpstreamErrorKind};

#[derive(Clone, Debug)]
pub(super) struct Forward(Arc<Shared>);

pub(super) type ResponseFuture =
    Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>> + Send>>;

#[derive(Debug)]
struct Shared {
    upstreams: Upstreams,
    settings: Settings,
}

enum AttemptError {
    /// Nothing was sent.
    Connect(GatewayError),
    /// Something may have been sent.
    Sent(GatewayError),
}

impl Forward {
    pub(super) fn new(settings: Settings, metrics: &GatewayMetrics) -> Result<Self, SettingsError> {
        let upstreams = Upstreams::new(&settings, metrics)?;
        Ok(Forward(Arc::new(Shared {
            upstreams,
            settings,
        })))
    }
}

impl Service<Request<InboundBody>> for Forward {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<InboundBody>) -> ResponseFuture {
        let shared = Arc::clone(&self.0);
        // Outside of the future, which then does not hold the head.
        let pending = shared.send(request);
        Box::pin(async move {
            let response = shared.receive(pending).await;
            Ok(response.unwrap_or_else(|error| error.response().map(ResponseBody::from_bytes)))
        })
    }
}

struct Pending<F> {
    attempt: Attempt<F>,
    /// The head for a second attempt at another upstream, if the request can be repeated.
    retry_head: Option<Box<Parts>>,
    deadline: Instant,
    upgrade: Option<Upgrade>,
}

/// A request that wants to become a tunnel.
struct Upgrade {
    request: OnUpgrade,
    client: Arc<ConnectionState>,
    /// What the request holds of concurrency limits, until the tunnel is closed.
    holds: Option<Holds>,
}

struct Attempt<F> {
    server: ServerIndex,
    response: F,
    started: Instant,
    progress: Option<Arc<UploadProgress>>,
}

impl Shared {
    fn send(
        &self,
        mut request: Request<InboundBody>,
    ) -> Pending<impl Future<Output = UpstreamResult> + use<>> {
        let now = Instant::now();
        let is_empty = request.body().body.is_end_stream();
        let is_websocket = is_empty && headers::is_websocket(&request);
        let upgrade = is_websocket.then(|| on(&mut request));
        let (mut parts, InboundBody { connection, body }) = request.into_parts();
        body.start_forwarding();
        let holds = parts.extensions.remove::<Holds>();
        parts.extensions = Extensions::new();
        if let Some(authority) = parts.uri.authority()
            && !parts.headers.contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            parts.headers.insert(HOST, host);
        }
        headers::prepare_request(
            &mut parts.headers,
            is_websocket,
            &connection,
            &self.settings,
        );
        if !is_empty && parts.method.is_safe() {
            headers::frame_unexpected_body(&mut parts.headers);
        }

        let can_retry = is_empty && parts.method.is_idempotent() && self.upstreams.are_several();
        let retry_head = can_retry.then(|| Box::new(parts.clone()));
        let (body, progress) = match is_empty {
            true => (OutboundBody::empty(), None),
            false => {
                let limits = UploadLimits::new(&self.settings, &parts.headers);
                let rules = self.settings.rule_headers.clone();
                let (body, progress) = OutboundBody::new(body, limits, rules, now);
                (body, Some(progress))
            }
        };
        Pending {
            attempt: self.attempt(self.upstreams.pick(), parts, body, progress, now),
            retry_head,
            deadline: now + self.settings.timeouts.whole,
            upgrade: upgrade.map(|request| Upgrade {
                request,
                client: connection,
                holds,
            }),
        }
    }

    async fn receive(
        &self,
        pending: Pending<impl Future<Output = UpstreamResult>>,
    ) -> Result<Response<ResponseBody>, GatewayError> {
        let Pending {
            attempt,
            retry_head,
            deadline,
            upgrade,
        } = pending;
        let mut server = attempt.server;
        let mut result = self.wait(attempt, deadline).await;
        if let (Err(AttemptError::Connect(_)), Some(parts)) = (&result, retry_head)
            && let Some(other) = self.upstreams.other(server)
        {
            server = other;
            let body = OutboundBody::empty();
            let attempt = self.attempt(other, *parts, body, None, Instant::now());
            // Boxed: seldom needed, and the other futures stay small.
            result = Box::pin(self.wait(attempt, deadline)).await;
        }
        match result {
            Ok(response) => self.finish(server, response, deadline, upgrade),
            Err(AttemptError::Connect(error) | AttemptError::Sent(error)) => Err(error),
        }
    }

    fn attempt(
        &self,
        index: ServerIndex,
        mut parts: Parts,
        body: OutboundBody,
        progress: Option<Arc<UploadProgress>>,
        now: Instant,
    ) -> Attempt<impl Future<Output = UpstreamResult> + use<>> {
        let server = self.upstreams.server(index);
        match (server.protocol, self.settings.host) {
            (Protocol::Http1, host) => {
                parts.version = Version::HTTP_11;
                if host == Host::Upstream || !parts.headers.contains_key(HOST) {
                    parts.headers.insert(HOST, server.host.clone());
                }
            }
            // `:authority` names the upstream.
            (Protocol::Http2, _) => {
                parts.version = Version::HTTP_2;
                for name in [HOST, CONNECTION, TRANSFER_ENCODING, UPGRADE] {
                    parts.headers.remove(name);
                }
            }
        }
        Attempt {
            server: index,
            response: server.send(parts, body, now),
            started: now,
            progress,
        }
    }

    async fn wait(
        &self,
        attempt: Attempt<impl Future<Output = UpstreamResult>>,
        deadline: Instant,
    ) -> Result<UpstreamResponse, AttemptError> {
        let Attempt {
            server,
            response,
            started,
            progress,
        } = attempt;
        let record_error = |kind| self.upstreams.record_error(server, kind, started.elapsed());
        let mut response = pin!(response);
        let first_byte = self.settings.timeouts.first_byte;
        let mut first_byte_deadline = started + first_byte;
        let result = loop {
            let timeout = first_byte_deadline.min(deadline);
            if let Ok(result) = timeout_at(timeout, response.as_mut()).await {
                break result;
            }
            // While the upload makes progress, the upstream is not at fault.
            let later = progress.as_ref().map(|upload| upload.last() + first_byte);
            match later {
                Some(later) if later > first_byte_deadline && first_byte_deadline < deadline => {
                    first_byte_deadline = later;
                }
                Some(_) | None => {
                    record_error(UpstreamErrorKind::Timeout);
                    return Err(AttemptError::Sent(GatewayError::UpstreamTimeout));
                }
            }
        };
        match result {
            Ok(response) => {
                let status = response.0.status();
                self.upstreams
                    .record_success(server, status, started.elapsed());
                Ok(response)
            }
            Err(UpstreamError::Connect(error)) => {
                self.upstreams.record_failure(server, &*error);
                let (kind, error) = match is_timeout(&*error) {
                    true => (
                        UpstreamErrorKind::ConnectTimeout,
                        GatewayError::UpstreamTimeout,
                    ),
                    false => (UpstreamErrorKind::Connect, GatewayError::UpstreamFailed),
                };
                record_error(kind);
                Err(AttemptError::Connect(error))
            }
            Err(UpstreamError::Broken) => {
                let clients = progress.and_then(|upload| upload.error.get().copied());
                if clients.is_none() {
                    record_error(UpstreamErrorKind::Broken);
                }
                let error = clients.unwrap_or(GatewayError::UpstreamFailed);
                Err(AttemptError::Sent(error))
            }
        }
    }

    fn finish(
        &self,
        server: ServerIndex,
        (mut response, mut connection): UpstreamResponse,
        deadline: Instant,
        upgrade: Option<Upgrade>,
    ) -> Result<Response<ResponseBody>, GatewayError> {
        let timeouts = &self.settings.timeouts;
        // On an error the connection is not used again.
        smuggling::validate_response(response.headers())?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // A switch that the request did not ask for is an error.
            let upgrade = upgrade.filter(|_| headers::names_websocket(response.headers()));
            let upgrade = upgrade.ok_or(GatewayError::UpstreamMalformed)?;
            connection = None;
            let Upgrade {
                request,
                client,
                holds,
            } = upgrade;
            let upstream = on(&mut response);
            tunnel::spawn(request, upstream, timeouts.tunnel_idle, client, holds);
        }
        let (mut parts, body) = response.into_parts();
        parts.version = Version::HTTP_11;
        parts.extensions = Extensions::new();
        headers::prepare_response(parts.status, &mut parts.headers);
        let metrics = Arc::clone(&self.upstreams.server(server).metrics);
        let body = UpstreamBody::new(body, connection, timeouts.answer_idle, deadline, metrics);
        let body = ResponseBody {
            rest: Some(body),
            ..ResponseBody::default()
        };
        Ok(Response::from_parts(parts, body))
    }
}

/// Whether connecting timed out rather than being refused.
fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    successors(Some(error), |&error| error.source())
        .find_map(|error| error.downcast_ref::<io::Error>())
        .is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}
