//! One client's connection, from its first byte to its last: every request on it is looked at,
//! limited and forwarded. Knows when a connection has to end; knows nothing of how it was accepted.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tallygate::Store;
use tallygate::http::{Peer, Policy};
use tallygate::tower::RateLimit;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::sleep_until;
use tower_service::Service;

use super::body::{Held, Reply};
use super::client::Client;
use super::client_io::Wire;
use super::coalesce::Flights;
use super::connection_state::{ConnectionState, Look};
use super::error::Problem;
use super::forward::Forward;
use super::read_ahead;
use super::smuggling::validate;
use super::tunnel::Tunnels;
use super::{Limits, Settings, Stage};
use crate::otlp;

/// How HTTP is spoken with clients.
pub(super) type Builder = auto::Builder<TokioExecutor>;

/// How HTTP is spoken with clients under these limits.
pub(super) fn builder(limits: &Limits) -> Builder {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        // It would run between requests too; the watch tells these times apart.
        .header_read_timeout(None)
        .max_buf_size(limits.head_bytes.max(8 << 10));
    // What hyper allows by itself costs no memory of its own.
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
        .keep_alive_interval(std::time::Duration::from_secs(30))
        .keep_alive_timeout(std::time::Duration::from_secs(20));
    builder
}

/// What a connection needs of its gateway.
pub(super) struct Serving<P, S> {
    pub(super) builder: Builder,
    pub(super) gated: RateLimit<Flights<Forward>, P, S>,
    pub(super) settings: Settings,
}

/// Serves a connection until it ends, or has to.
pub(super) async fn serve<P: Policy, S: Store, T>(
    serving: Arc<Serving<P, S>>,
    io: T,
    (peer, by): (SocketAddr, &'static str),
    watch: Arc<ConnectionState>,
    mut stage: watch::Receiver<Stage>,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let timeouts = &serving.settings.timeouts;
    let io = Wire::new(io, Arc::clone(&watch), timeouts.write);
    let tunnels = Tunnels {
        watch: Arc::clone(&watch),
        stage: stage.clone(),
    };
    let client = Arc::new(Client::new(peer, by, tunnels));
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        answer(&serving, &client, request)
    });
    let mut connection = pin!(
        serving
            .builder
            .serve_connection_with_upgrades(TokioIo::new(io), service)
    );
    let mut ending = false;
    loop {
        let now = *stage.borrow_and_update();
        let idle = match now {
            Stage::Open => timeouts.keep_alive,
            Stage::Draining => {
                watch.drain();
                timeouts.linger.min(timeouts.keep_alive)
            }
            Stage::Cut => return,
        };
        if now == Stage::Draining && watch.is_http2() && !ending {
            // The client is told which requests were the last: none is lost.
            connection.as_mut().graceful_shutdown();
            ending = true;
        }
        let again = match watch.look(timeouts, idle) {
            Look::Again(again) => again,
            Look::Late | Look::Stuck => return,
            Look::Idle if ending => return,
            Look::Idle => {
                connection.as_mut().graceful_shutdown();
                ending = true;
                tokio::time::Instant::now() + timeouts.header
            }
        };
        let aside = async {
            tokio::select! {
                () = sleep_until(again) => true,
                () = watch.enough.notified() => false,
                // Without a gateway nobody would tell it to end.
                told = stage.changed() => told.is_ok(),
            }
        };
        // Looked at when it has something to say, not whenever the connection has.
        let mut aside: FuturesUnordered<_> = [aside].into_iter().collect();
        let goes_on = tokio::select! {
            biased;
            // Errors are the client's: it left, or what it sent was answered with a 400 already.
            _ = connection.as_mut() => return,
            goes_on = aside.next() => goes_on,
        };
        if goes_on != Some(true) {
            return;
        }
    }
}

/// Answers one request. What can be done at once is done at once: the future has no room for the
/// request.
fn answer<P: Policy, S: Store>(
    serving: &Arc<Serving<P, S>>,
    client: &Arc<Client>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Held<Reply>>, Infallible>> + use<P, S> {
    let watch = &client.tunnels.watch;
    let version = request.version();
    let mut in_flight = watch.begin(version);
    let checked = validate(&request, watch.had_two_lengths(), &serving.settings.limits);
    let answered = match (checked, &serving.settings.tracer) {
        (Ok(()), None) => Answered::Gated(gated(serving, Arc::clone(client), request)),
        (Ok(()), Some(_)) => {
            let traced = traced(Arc::clone(serving), Arc::clone(client), request);
            Answered::Traced(Box::pin(traced))
        }
        (Err(problem), _) => Answered::Refused(problem),
    };
    async move {
        let mut response = match answered {
            Answered::Gated(gated) => gated.await,
            Answered::Traced(traced) => traced.await,
            Answered::Refused(problem) => refused(problem),
        };
        in_flight.answered();
        if version == Version::HTTP_2 {
            response.headers_mut().remove(CONNECTION);
        } else if in_flight.is_draining()
            && response.status() != http::StatusCode::SWITCHING_PROTOCOLS
        {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        Ok(response.map(|body| Held::new(body, in_flight)))
    }
}

/// How a request is answered.
enum Answered<G, T> {
    Gated(G),
    /// Few are: the others' answers need not have room for it.
    Traced(Pin<Box<T>>),
    Refused(Problem),
}

/// Answers a request that somebody may be told of.
async fn traced<P: Policy, S: Store>(
    serving: Arc<Serving<P, S>>,
    client: Arc<Client>,
    mut request: Request<Incoming>,
) -> Response<Reply> {
    let tracer = serving.settings.tracer.as_ref();
    let span = tracer.and_then(|tracer| {
        tracer.start(otlp::Listener::Gateway, request.method(), request.headers())
    });
    match span {
        None => gated(&serving, client, request).await,
        Some(span) => {
            span.propagate(request.headers_mut());
            let answer = async { gated(&serving, client, request).await };
            span.run(answer, Response::status).await
        }
    }
}

/// Answers a request that may go on to the limits, unless its client leaves before.
fn gated<P: Policy, S: Store>(
    serving: &Serving<P, S>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> impl Future<Output = Response<Reply>> + use<P, S> {
    let (request, leaves) = read_ahead::watched(request, client);
    let answered = serving.gated.clone().call(request);
    async move {
        match leaves {
            None => {
                let Ok(response) = answered.await;
                response
            }
            Some(leaves) => tokio::select! {
                biased;
                Ok(response) = answered => response,
                // Whatever it waits for is for others now.
                () = leaves => refused(Problem::BadRequest("the body broke off")),
            },
        }
    }
}

fn refused(problem: Problem) -> Response<Reply> {
    problem.response().map(Reply::Text)
}
