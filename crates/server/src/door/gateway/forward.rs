//! One request's way to an upstream and its answer's way back. Knows nothing of limits: whatever
//! comes here has been let through and counted, once, however many upstreams are tried.

use std::convert::Infallible;
use std::error::Error as _;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{HOST, HeaderValue};
use http::request::Parts;
use http::{Extensions, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, on};
use hyper_util::client::legacy;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::body::{Asked, Coming, Progress, Reply};
use super::early::Upload;
use super::headers::{self, Came};
use super::problem::Problem;
use super::settings::Speaks;
use super::tunnel::{self, Tunnels};
use super::upstreams::{Server, Upstreams};
use super::{Host, Settings, SettingsError};

/// Sends requests to the upstreams.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    upstreams: Upstreams,
    settings: Settings,
}

/// Why an upstream did not answer.
enum Failed {
    /// Nothing was written to it.
    Unreached { late: bool },
    /// Something may have been.
    Broken,
    /// It took too long.
    Late,
    /// The client's body stopped.
    Client(Problem),
}

impl Forward {
    pub(super) fn new(settings: Settings) -> Result<Self, SettingsError> {
        let upstreams = Upstreams::new(&settings)?;
        Ok(Forward {
            shared: Arc::new(Shared {
                upstreams,
                settings,
            }),
        })
    }
}

impl Service<Request<Upload>> for Forward {
    type Response = Response<Reply>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Reply>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Upload>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let answer = shared.answer(request).await;
            Ok(answer.unwrap_or_else(|problem| problem.response().map(Reply::Text)))
        })
    }
}

impl Shared {
    async fn answer(&self, mut request: Request<Upload>) -> Result<Response<Reply>, Problem> {
        let until = Instant::now() + self.settings.timeouts.whole;
        let upgrade = headers::upgrade(&request);
        let client = upgrade.as_ref().map(|_| on(&mut request));
        let (mut parts, body) = request.into_parts();
        body.claim();
        let extensions = std::mem::take(&mut parts.extensions);
        self.prepare(&mut parts, upgrade.as_ref(), &extensions);

        let empty = body.is_end_stream();
        let again = empty && parts.method.is_idempotent() && self.upstreams.are_several();
        let spare = again.then(|| parts.clone());
        let (body, progress) = match empty {
            true => (Asked::empty(), None),
            false => {
                let most = self.settings.limits.body_bytes;
                let (body, progress) = Asked::new(body, most, self.settings.timeouts.body_idle);
                (body, Some(progress))
            }
        };
        let server = self.upstreams.pick();
        let first = self.ask(server, parts, body, progress, until).await;
        let asked = match (first, spare) {
            (Err(Failed::Unreached { late }), Some(parts)) => match self.upstreams.other(server) {
                // Seldom: the others' futures need not have room for it.
                Some(other) => {
                    let again = self.ask(other, parts, Asked::empty(), None, until);
                    Box::pin(again).await
                }
                None => Err(Failed::Unreached { late }),
            },
            (asked, _) => asked,
        };
        let answer = asked.map_err(|failed| match failed {
            Failed::Unreached { late: true } | Failed::Late => Problem::UpstreamLate,
            Failed::Unreached { late: false } | Failed::Broken => Problem::UpstreamFailed,
            Failed::Client(problem) => problem,
        })?;
        self.finish(answer, until, client, &extensions)
    }

    /// Makes a head the one that upstreams get, but for what differs between them.
    fn prepare(&self, parts: &mut Parts, upgrade: Option<&HeaderValue>, extensions: &Extensions) {
        let named = || HeaderValue::from_str(parts.uri.authority()?.as_str()).ok();
        let host = match parts.headers.get(HOST) {
            Some(host) => Some(host.clone()),
            None => named(),
        };
        let came = extensions.get::<Came>();
        let came = came.expect("every request says where it came from");
        headers::forward(&mut parts.headers, host.as_ref(), upgrade, came);
        match host {
            Some(host) => parts.headers.insert(HOST, host),
            None => parts.headers.remove(HOST),
        };
    }

    /// Asks one upstream.
    async fn ask(
        &self,
        server: &Server,
        mut parts: Parts,
        body: Asked,
        progress: Option<Arc<Progress>>,
        until: Instant,
    ) -> Result<Response<Incoming>, Failed> {
        parts.uri = server.uri(parts.uri.into_parts().path_and_query);
        match (server.speaks, self.settings.host) {
            (Speaks::Http1, host) => {
                parts.version = Version::HTTP_11;
                if host == Host::Upstream || !parts.headers.contains_key(HOST) {
                    parts.headers.insert(HOST, server.host.clone());
                }
            }
            // Its own name is in the address already.
            (Speaks::Http2, _) => {
                parts.version = Version::HTTP_2;
                for name in [HOST, http::header::CONNECTION, http::header::UPGRADE] {
                    parts.headers.remove(name);
                }
            }
        }
        let mut asked = std::pin::pin!(server.client.request(Request::from_parts(parts, body)));
        let first_byte = self.settings.timeouts.first_byte;
        let mut patience = Instant::now() + first_byte;
        let answer = loop {
            match timeout_at(patience.min(until), asked.as_mut()).await {
                Ok(answer) => break answer,
                Err(_) => {
                    // As long as the body moves, the upstream is not the slow one.
                    let moved = progress.as_ref().map(|body| body.last() + first_byte);
                    match moved {
                        Some(later) if later > patience && patience < until => patience = later,
                        Some(_) | None => return Err(Failed::Late),
                    }
                }
            }
        };
        match answer {
            Ok(answer) => {
                self.upstreams.answered(server);
                Ok(answer)
            }
            Err(error) if error.is_connect() => {
                self.upstreams.failed(server, &error);
                let late = is_late(&error);
                Err(Failed::Unreached { late })
            }
            Err(_) => Err(match progress.and_then(|body| body.fault()) {
                Some(problem) => Failed::Client(problem),
                None => Failed::Broken,
            }),
        }
    }

    /// Makes an upstream's answer the one that the client gets.
    fn finish(
        &self,
        mut answer: Response<Incoming>,
        until: Instant,
        client: Option<OnUpgrade>,
        extensions: &Extensions,
    ) -> Result<Response<Reply>, Problem> {
        let timeouts = &self.settings.timeouts;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            // An upstream that goes on with a protocol nobody asked for is not understood.
            let (client, tunnels) = client
                .zip(extensions.get::<Tunnels>())
                .ok_or(Problem::UpstreamFailed)?;
            tunnel::open(
                client,
                on(&mut answer),
                timeouts.tunnel_idle,
                tunnels.clone(),
            );
        }
        let (mut parts, body) = answer.into_parts();
        parts.version = Version::HTTP_11;
        parts.extensions = Extensions::new();
        headers::backward(parts.status, &mut parts.headers);
        let reply = Reply::Upstream(Coming::new(body, timeouts.answer_idle, until));
        Ok(Response::from_parts(parts, reply))
    }
}

/// Whether a connection took too long, rather than being refused.
fn is_late(error: &legacy::Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::TimedOut;
        }
        source = error.source();
    }
    false
}
