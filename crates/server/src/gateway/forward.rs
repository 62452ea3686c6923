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

use http::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{Extensions, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::upgrade::{OnUpgrade, on};
use tallygate::tower::FromBytes;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::body::{OutboundBody, ResponseBody, UploadProgress, UpstreamBody};
use super::connection_state::ConnectionState;
use super::error::GatewayError;
use super::read_ahead::InboundBody;
use super::settings::Protocol;
use super::upstreams::{ServerIndex, UpstreamError, UpstreamResponse, UpstreamResult, Upstreams};
use super::{Host, Settings, SettingsError, headers, tunnel};

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
    pub(super) fn new(settings: Settings) -> Result<Self, SettingsError> {
        let upstreams = Upstreams::new(&settings)?;
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
    upgrade: Option<(OnUpgrade, Arc<ConnectionState>)>,
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
        let protocol = headers::upgrade(&request);
        let upgrade = protocol.as_ref().map(|_| on(&mut request));
        let (mut parts, InboundBody { connection, body }) = request.into_parts();
        body.start_forwarding();
        parts.extensions = Extensions::new();
        if let Some(authority) = parts.uri.authority()
            && !parts.headers.contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            parts.headers.insert(HOST, host);
        }
        let is_trusted = self.settings.trusted.contains(connection.address);
        headers::prepare_request(
            &mut parts.headers,
            protocol.as_ref(),
            &connection,
            is_trusted,
        );

        let is_empty = body.is_end_stream();
        let can_retry = is_empty && parts.method.is_idempotent() && self.upstreams.are_several();
        let retry_head = can_retry.then(|| Box::new(parts.clone()));
        let (body, progress) = match is_empty {
            true => (OutboundBody::empty(), None),
            false => {
                let Settings {
                    limits, timeouts, ..
                } = &self.settings;
                let (body, progress) =
                    OutboundBody::new(body, limits.body_bytes, timeouts.body_idle, now);
                (body, Some(progress))
            }
        };
        Pending {
            attempt: self.attempt(self.upstreams.pick(), parts, body, progress, now),
            retry_head,
            deadline: now + self.settings.timeouts.whole,
            upgrade: upgrade.map(|upgrade| (upgrade, connection)),
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
        let first = attempt.server;
        let mut result = self.wait(attempt, deadline).await;
        if let (Err(AttemptError::Connect(_)), Some(parts)) = (&result, retry_head)
            && let Some(other) = self.upstreams.other(first)
        {
            let body = OutboundBody::empty();
            let attempt = self.attempt(other, *parts, body, None, Instant::now());
            // Boxed: seldom needed, and the other futures stay small.
            result = Box::pin(self.wait(attempt, deadline)).await;
        }
        match result {
            Ok(response) => self.finish(response, deadline, upgrade),
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
                for name in [HOST, CONNECTION, UPGRADE] {
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
                Some(_) | None => return Err(AttemptError::Sent(GatewayError::UpstreamTimeout)),
            }
        };
        match result {
            Ok(response) => {
                self.upstreams.record_success(server);
                Ok(response)
            }
            Err(UpstreamError::Connect(error)) => {
                self.upstreams.record_failure(server, &*error);
                Err(AttemptError::Connect(match is_timeout(&*error) {
                    true => GatewayError::UpstreamTimeout,
                    false => GatewayError::UpstreamFailed,
                }))
            }
            Err(UpstreamError::Broken) => {
                let error = progress.and_then(|upload| upload.error.get().copied());
                let error = error.unwrap_or(GatewayError::UpstreamFailed);
                Err(AttemptError::Sent(error))
            }
        }
    }

    fn finish(
        &self,
        (mut response, mut connection): UpstreamResponse,
        deadline: Instant,
        upgrade: Option<(OnUpgrade, Arc<ConnectionState>)>,
    ) -> Result<Response<ResponseBody>, GatewayError> {
        let timeouts = &self.settings.timeouts;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // A switch without an upgrade in the request is an error.
            let (upgrade, client) = upgrade.ok_or(GatewayError::UpstreamFailed)?;
            connection = None;
            tunnel::spawn(upgrade, on(&mut response), timeouts.tunnel_idle, client);
        }
        let (mut parts, body) = response.into_parts();
        parts.version = Version::HTTP_11;
        parts.extensions = Extensions::new();
        headers::prepare_response(parts.status, &mut parts.headers);
        let body = UpstreamBody::new(body, connection, timeouts.answer_idle, deadline);
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
