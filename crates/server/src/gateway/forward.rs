//! One request's way to an upstream and its answer's way back. Knows nothing of limits: whatever
//! comes here has been let through and counted, once, however many upstreams are tried.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{HOST, HeaderValue};
use http::request::Parts;
use http::{Extensions, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::upgrade::{OnUpgrade, on};
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use super::body::{Asked, Coming, Progress, Reply};
use super::client::{Client, Inbound};
use super::error::Problem;
use super::settings::Speaks;
use super::upstreams::{Answer, Outcome, Turn, Unanswered, Upstreams};
use super::{Host, Settings, SettingsError, headers, tunnel};

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

impl Service<Request<Inbound>> for Forward {
    type Response = Response<Reply>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Reply>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Inbound>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        // Outside of the future, which would have to hold the head, and be moved with it.
        let sent = shared.send(request);
        Box::pin(async move {
            let answer = shared.answer(sent).await;
            Ok(answer.unwrap_or_else(|problem| problem.response().map(Reply::Text)))
        })
    }
}

/// A request on its way.
struct Sent<A> {
    asking: Asking<A>,
    /// Its head once more, if another upstream may be asked.
    spare: Option<Box<Parts>>,
    until: Instant,
    upgrades: Option<(OnUpgrade, Arc<Client>)>,
}

/// An upstream that is being asked.
struct Asking<A> {
    turn: Turn,
    answer: A,
    since: Instant,
    progress: Option<Arc<Progress>>,
}

impl Shared {
    /// Sends a request on its way.
    fn send(&self, mut request: Request<Inbound>) -> Sent<impl Future<Output = Outcome> + use<>> {
        let now = Instant::now();
        let upgrade = headers::upgrade(&request);
        let upgrades = upgrade.as_ref().map(|_| on(&mut request));
        let (mut parts, Inbound { client, upload }) = request.into_parts();
        upload.claim();
        parts.extensions = Extensions::new();
        self.prepare(&mut parts, upgrade.as_ref(), &client);

        let empty = upload.is_end_stream();
        let again = empty && parts.method.is_idempotent() && self.upstreams.are_several();
        let spare = again.then(|| Box::new(parts.clone()));
        let (body, progress) = match empty {
            true => (Asked::empty(), None),
            false => {
                let most = self.settings.limits.body_bytes;
                let (body, progress) = Asked::new(upload, most, self.settings.timeouts.body_idle);
                (body, Some(progress))
            }
        };
        Sent {
            asking: self.ask(self.upstreams.pick(), parts, body, progress, now),
            spare,
            until: now + self.settings.timeouts.whole,
            upgrades: upgrades.map(|upgrade| (upgrade, client)),
        }
    }

    async fn answer(
        &self,
        sent: Sent<impl Future<Output = Outcome>>,
    ) -> Result<Response<Reply>, Problem> {
        let Sent {
            asking,
            spare,
            until,
            upgrades,
        } = sent;
        let turn = asking.turn;
        let asked = match (self.answered(asking, until).await, spare) {
            (Err(Failed::Unreached { late }), Some(parts)) => match self.upstreams.other(turn) {
                // Seldom: the others' futures need not have room for it.
                Some(other) => {
                    let asking = self.ask(other, *parts, Asked::empty(), None, Instant::now());
                    Box::pin(self.answered(asking, until)).await
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
        self.finish(answer, until, upgrades)
    }

    /// Makes a head the one that upstreams get, but for what differs between them.
    fn prepare(&self, parts: &mut Parts, upgrade: Option<&HeaderValue>, client: &Client) {
        if let Some(named) = parts.uri.authority()
            && !parts.headers.contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(named.as_str())
        {
            parts.headers.insert(HOST, host);
        }
        let trusted = self.settings.trusted.trusts(client.peer);
        headers::forward(&mut parts.headers, upgrade, client, trusted);
    }

    /// Asks one upstream.
    fn ask(
        &self,
        turn: Turn,
        mut parts: Parts,
        body: Asked,
        progress: Option<Arc<Progress>>,
        since: Instant,
    ) -> Asking<impl Future<Output = Outcome> + use<>> {
        let server = self.upstreams.server(turn);
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
        Asking {
            turn,
            answer: server.ask(parts, body, since),
            since,
            progress,
        }
    }

    /// Waits for an upstream's answer.
    async fn answered(
        &self,
        asking: Asking<impl Future<Output = Outcome>>,
        until: Instant,
    ) -> Result<Answer, Failed> {
        let Asking {
            turn,
            answer,
            since,
            progress,
        } = asking;
        let mut answer = pin!(answer);
        let first_byte = self.settings.timeouts.first_byte;
        let mut patience = since + first_byte;
        let answer = loop {
            match timeout_at(patience.min(until), answer.as_mut()).await {
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
                self.upstreams.answered(turn);
                Ok(answer)
            }
            Err(Unanswered::Unreached(error)) => {
                self.upstreams.failed(turn, &*error);
                let late = is_late(&*error);
                Err(Failed::Unreached { late })
            }
            Err(Unanswered::Broken) => Err(match progress.and_then(|body| body.fault()) {
                Some(problem) => Failed::Client(problem),
                None => Failed::Broken,
            }),
        }
    }

    /// Makes an upstream's answer the one that the client gets.
    fn finish(
        &self,
        (mut answer, mut lent): Answer,
        until: Instant,
        upgrades: Option<(OnUpgrade, Arc<Client>)>,
    ) -> Result<Response<Reply>, Problem> {
        let timeouts = &self.settings.timeouts;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            // An upstream that goes on with a protocol nobody asked for is not understood.
            let (upgrade, client) = upgrades.ok_or(Problem::UpstreamFailed)?;
            let tunnels = client.tunnels.clone();
            lent = None;
            tunnel::open(upgrade, on(&mut answer), timeouts.tunnel_idle, tunnels);
        }
        let (mut parts, body) = answer.into_parts();
        parts.version = Version::HTTP_11;
        parts.extensions = Extensions::new();
        headers::backward(parts.status, &mut parts.headers);
        let reply = Reply::Upstream(Coming::new(body, lent, timeouts.answer_idle, until));
        Ok(Response::from_parts(parts, reply))
    }
}

/// Whether a connection took too long, rather than being refused.
fn is_late(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::TimedOut;
        }
        cause = error.source();
    }
    false
}
