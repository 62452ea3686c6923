//! The servers behind the gateway: whose turn it is, and who is left alone for now. Knows nothing
//! of clients or limits.

use std::error::Error;
use std::future::Future;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::Either;
use http::header::HeaderValue;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;
use tokio_rustls::rustls::ClientConfig;

use super::body::Asked;
use super::pool::{Lent, Pool};
use super::settings::Speaks;
use super::{Settings, SettingsError, Upstream, tls};

/// The longest that an upstream is left alone, as a multiple of the shortest.
const MOST_PATIENCE: u32 = 30;

/// The servers behind the gateway.
#[derive(Debug)]
pub(super) struct Upstreams {
    all: Vec<Server>,
    next: AtomicUsize,
    started: Instant,
    down: Duration,
}

/// Whose turn it is: the number of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn(usize);

/// A server behind the gateway.
#[derive(Debug)]
pub(super) struct Server {
    authority: Authority,
    /// The authority as a `Host`.
    pub(super) host: HeaderValue,
    pub(super) speaks: Speaks,
    tls: bool,
    way: Way,
    /// Until when it is left alone, in milliseconds since the start; 0: it is well.
    down_until: AtomicU64,
    failures: AtomicU32,
}

/// How connections are made.
pub(super) type Https = HttpsConnector<HttpConnector>;

/// How requests get to a server.
#[derive(Debug)]
enum Way {
    Http1(Pool),
    /// All on one connection.
    Http2(Box<Client<Https, Asked>>),
}

/// What comes of asking an upstream.
pub(super) type Outcome = Result<Answer, Unanswered>;

/// An upstream's answer, and the connection that it comes on, unless others share that.
pub(super) type Answer = (Response<Incoming>, Option<Lent>);

/// Why an upstream did not answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// It did not take a connection: nothing was written to it.
    Unreached(Box<dyn Error + Send + Sync>),
    /// Something may have been.
    Broken,
}

impl Upstreams {
    pub(super) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        // Not read where nobody speaks it: a small container has no authorities.
        let tls = match settings.upstreams.iter().any(Upstream::is_tls) {
            true => tls::client(settings.upstream_ca_cert.as_deref())?,
            false => tls::nobody(),
        };
        let server = |upstream: &Upstream| Server::new(upstream, settings, tls.clone());
        Ok(Upstreams {
            all: settings.upstreams.iter().map(server).collect(),
            next: AtomicUsize::new(0),
            started: Instant::now(),
            down: settings.timeouts.down,
        })
    }

    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Whose turn it is.
    ///
    /// One that is down is left alone until its time is up; then one request tries it while
    /// others keep away. If all are down the turn is kept anyway: nobody is better.
    pub(super) fn pick(&self) -> Turn {
        let mut turns = self.turns();
        let first = turns.clone().next().expect("a gateway has an upstream");
        turns.find(|turn| self.is_open(*turn)).unwrap_or(first)
    }

    /// The server whose turn it is.
    pub(super) fn server(&self, turn: Turn) -> &Server {
        &self.all[turn.0]
    }

    /// Another one that is well; none if there is none.
    pub(super) fn other(&self, than: Turn) -> Option<Turn> {
        let mut others = self.turns().filter(|turn| *turn != than);
        others.find(|turn| self.is_open(*turn))
    }

    /// All of them, from the next one on.
    fn turns(&self) -> impl Iterator<Item = Turn> + Clone {
        let (first, len) = (self.next.fetch_add(1, Relaxed), self.all.len());
        (0..len).map(move |turn| Turn((first + turn) % len))
    }

    fn is_open(&self, turn: Turn) -> bool {
        let server = self.server(turn);
        let until = server.down_until.load(Relaxed);
        if until == 0 {
            return true;
        }
        let now = self.now();
        let later = now + self.patience(server.failures.load(Relaxed));
        until <= now
            && server
                .down_until
                .compare_exchange(until, later, Relaxed, Relaxed)
                .is_ok()
    }

    /// It did not take a connection.
    pub(super) fn failed(&self, turn: Turn, error: &(dyn Error + 'static)) {
        let server = self.server(turn);
        let failures = server.failures.fetch_add(1, Relaxed).saturating_add(1);
        let until = self.now() + self.patience(failures);
        if server.down_until.swap(until, Relaxed) == 0 {
            // The innermost cause is the one that can be mended: a port, a name, a certificate.
            let mut cause = error;
            while let Some(source) = cause.source() {
                cause = source;
            }
            let upstream = &server.authority;
            tracing::warn!(%upstream, %cause, "upstream takes no connections");
        }
    }

    /// It answered.
    pub(super) fn answered(&self, turn: Turn) {
        let server = self.server(turn);
        if server.down_until.load(Relaxed) != 0 && server.down_until.swap(0, Relaxed) != 0 {
            server.failures.store(0, Relaxed);
            tracing::info!(upstream = %server.authority, "upstream answers again");
        }
    }

    /// How long one that failed so often is left alone, in milliseconds; at least 1.
    fn patience(&self, failures: u32) -> u64 {
        let times = 1u32.checked_shl(failures.saturating_sub(1).min(8));
        let patience = self.down * times.unwrap_or(MOST_PATIENCE).min(MOST_PATIENCE);
        u64::try_from(patience.as_millis())
            .unwrap_or(u64::MAX >> 1)
            .clamp(1, u64::MAX >> 1)
    }

    fn now(&self) -> u64 {
        // Never 0, which stands for well.
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX >> 2) + 1
    }
}

impl Server {
    fn new(upstream: &Upstream, settings: &Settings, tls: ClientConfig) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(settings.timeouts.connect));
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http();
        let connector = match upstream.speaks {
            Speaks::Http1 => connector.enable_http1().wrap_connector(tcp),
            Speaks::Http2 => connector.enable_http2().wrap_connector(tcp),
        };
        let authority = upstream.authority.clone();
        let host = HeaderValue::from_str(authority.as_str());
        let way = match upstream.speaks {
            Speaks::Http1 => {
                let to = uri(
                    upstream.tls,
                    authority.clone(),
                    PathAndQuery::from_static("/"),
                );
                let (most, longest) = (settings.limits.pool, settings.timeouts.pool_idle);
                Way::Http1(Pool::new(to, connector, most, longest))
            }
            Speaks::Http2 => Way::Http2(Box::new(
                Client::builder(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .pool_timer(TokioTimer::new())
                    .pool_idle_timeout(settings.timeouts.pool_idle)
                    .http2_only(true)
                    .http2_keep_alive_interval(settings.timeouts.keep_alive)
                    .build(connector),
            )),
        };
        Server {
            authority,
            host: host.expect("an authority is visible ASCII"),
            speaks: upstream.speaks,
            tls: upstream.tls,
            way,
            down_until: AtomicU64::new(0),
            failures: AtomicU32::new(0),
        }
    }

    /// Asks it.
    pub(super) fn ask(
        &self,
        mut parts: Parts,
        body: Asked,
        now: Instant,
    ) -> impl Future<Output = Outcome> + use<> {
        match &self.way {
            Way::Http1(pool) => {
                if parts.uri.authority().is_some() {
                    parts.uri = Uri::from(path(parts.uri));
                }
                Either::Left(pool.send(Request::from_parts(parts, body), now))
            }
            Way::Http2(client) => {
                parts.uri = uri(self.tls, self.authority.clone(), path(parts.uri));
                let answer = client.request(Request::from_parts(parts, body));
                Either::Right(async {
                    match answer.await {
                        Ok(answer) => Ok((answer, None)),
                        Err(error) if error.is_connect() => {
                            Err(Unanswered::Unreached(error.into()))
                        }
                        Err(_) => Err(Unanswered::Broken),
                    }
                })
            }
        }
    }
}

/// What of an address a server is asked for.
fn path(uri: Uri) -> PathAndQuery {
    let path = uri.into_parts().path_and_query;
    path.unwrap_or_else(|| PathAndQuery::from_static("/"))
}

fn uri(tls: bool, authority: Authority, path: PathAndQuery) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(match tls {
        true => Scheme::HTTPS,
        false => Scheme::HTTP,
    });
    parts.authority = Some(authority);
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).expect("a scheme, an authority and a path make an address")
}
