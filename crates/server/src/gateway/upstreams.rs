//! The upstream servers: round robin, without those that accept no connections.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::Either;
use http::header::HeaderValue;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::body::OutboundBody;
use super::pool::{Pool, PooledConnection};
use super::settings::Protocol;
use super::{Settings, SettingsError, Upstream, tls};
use crate::access_log;
use crate::error::root_cause;
use crate::metrics::{GatewayMetrics, UpstreamErrorKind, UpstreamMetrics};

/// The maximum ejection time, as a multiple of the first one.
const MAX_EJECTION_FACTOR: u32 = 30;

#[derive(Debug)]
pub(super) struct Upstreams {
    servers: Vec<Server>,
    next: AtomicUsize,
    started: Instant,
    ejection: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerIndex(usize);

#[derive(Debug)]
pub(super) struct Server {
    authority: Authority,
    pub(super) host: HeaderValue,
    pub(super) protocol: Protocol,
    is_tls: bool,
    transport: Transport,
    /// In milliseconds since the start; 0: not ejected.
    ejected_until: AtomicU64,
    failures: AtomicU32,
    pub(super) metrics: Arc<UpstreamMetrics>,
}

pub(super) type Connector = HttpsConnector<HttpConnector>;

#[derive(Debug)]
enum Transport {
    Http1(Pool),
    /// One connection for all requests.
    Http2(Box<Client<Connector, OutboundBody>>),
}

pub(super) type UpstreamResult = Result<UpstreamResponse, UpstreamError>;

/// A response and its connection, unless that is shared.
pub(super) type UpstreamResponse = (Response<Incoming>, Option<PooledConnection>);

#[derive(Debug)]
pub(super) enum UpstreamError {
    /// It accepted no connection: nothing was sent.
    Connect(Box<dyn Error + Send + Sync>),
    /// Something may have been sent.
    Broken,
}

impl Upstreams {
    pub(super) fn new(
        settings: &Settings,
        metrics: &GatewayMetrics,
    ) -> Result<Self, SettingsError> {
        // Without TLS upstreams the system's authorities are not read: a small container has none.
        let tls = match settings.upstreams.iter().any(Upstream::is_tls) {
            true => tls::client_config(settings.upstream_ca_cert.as_deref())?,
            false => tls::client_config_with_roots(RootCertStore::empty()),
        };
        let server = |(index, upstream): (usize, &Upstream)| {
            let metrics = Arc::clone(metrics.upstream(index));
            Server::new(upstream, settings, tls.clone(), metrics)
        };
        Ok(Upstreams {
            servers: settings.upstreams.iter().enumerate().map(server).collect(),
            next: AtomicUsize::new(0),
            started: Instant::now(),
            ejection: settings.timeouts.down,
        })
    }

    pub(super) fn are_several(&self) -> bool {
        self.servers.len() > 1
    }

    /// Picks the next server.
    ///
    /// An ejected one is skipped until its time is up; then one request probes it. If all are
    /// ejected, the next one is picked anyway.
    pub(super) fn pick(&self) -> ServerIndex {
        let mut rotation = self.rotation();
        let first = rotation.clone().next().expect("a gateway has an upstream");
        rotation
            .find(|index| self.is_available(*index))
            .unwrap_or(first)
    }

    pub(super) fn server(&self, index: ServerIndex) -> &Server {
        &self.servers[index.0]
    }

    pub(super) fn other(&self, than: ServerIndex) -> Option<ServerIndex> {
        let mut others = self.rotation().filter(|index| *index != than);
        others.find(|index| self.is_available(*index))
    }

    fn rotation(&self) -> impl Iterator<Item = ServerIndex> + Clone {
        let (first, len) = (self.next.fetch_add(1, Relaxed), self.servers.len());
        (0..len).map(move |offset| ServerIndex((first + offset) % len))
    }

    fn is_available(&self, index: ServerIndex) -> bool {
        let server = self.server(index);
        let until = server.ejected_until.load(Relaxed);
        if until == 0 {
            return true;
        }
        let now = self.now();
        let later = now + self.ejection_millis(server.failures.load(Relaxed));
        until <= now
            && server
                .ejected_until
                .compare_exchange(until, later, Relaxed, Relaxed)
                .is_ok()
    }

    pub(super) fn record_failure(&self, index: ServerIndex, error: &(dyn Error + 'static)) {
        let server = self.server(index);
        let failures = server.failures.fetch_add(1, Relaxed).saturating_add(1);
        let until = self.now() + self.ejection_millis(failures);
        if server.ejected_until.swap(until, Relaxed) == 0 {
            let cause = root_cause(error);
            let upstream = &server.authority;
            tracing::warn!(%upstream, %cause, "upstream accepts no connections");
        }
    }

    /// Records that a request got no response.
    pub(super) fn record_error(
        &self,
        index: ServerIndex,
        kind: UpstreamErrorKind,
        elapsed: Duration,
    ) {
        let server = self.server(index);
        server.metrics.record_error(kind);
        if let Some(record) = access_log::current() {
            record.set_upstream(server.authority.as_str(), elapsed, Some(kind.name()));
        }
    }

    /// Records the head of a response.
    pub(super) fn record_success(&self, index: ServerIndex, status: StatusCode, elapsed: Duration) {
        let server = self.server(index);
        server.metrics.record_response(status, elapsed);
        if let Some(record) = access_log::current() {
            record.set_upstream(server.authority.as_str(), elapsed, None);
        }
        if server.ejected_until.load(Relaxed) != 0 && server.ejected_until.swap(0, Relaxed) != 0 {
            server.failures.store(0, Relaxed);
            tracing::info!(upstream = %server.authority, "upstream responds again");
        }
    }

    /// How long a server is ejected for after so many failures, in milliseconds; at least 1.
    fn ejection_millis(&self, failures: u32) -> u64 {
        let factor = (1u32 << failures.saturating_sub(1).min(8)).min(MAX_EJECTION_FACTOR);
        u64::try_from((self.ejection * factor).as_millis())
            .unwrap_or(u64::MAX >> 1)
            .clamp(1, u64::MAX >> 1)
    }

    fn now(&self) -> u64 {
        // Never 0, which stands for not ejected.
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX >> 2) + 1
    }
}

impl Server {
    fn new(
        upstream: &Upstream,
        settings: &Settings,
        tls: ClientConfig,
        metrics: Arc<UpstreamMetrics>,
    ) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(settings.timeouts.connect));
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http();
        let authority = upstream.authority.clone();
        let host = HeaderValue::from_str(authority.as_str());
        let transport = match upstream.protocol {
            Protocol::Http1 => {
                let root = PathAndQuery::from_static("/");
                Transport::Http1(Pool::new(
                    build_uri(upstream.tls, authority.clone(), root),
                    connector.enable_http1().wrap_connector(tcp),
                    settings.limits.pool,
                    settings.timeouts.pool_idle,
                ))
            }
            Protocol::Http2 => Transport::Http2(Box::new(
                Client::builder(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .pool_timer(TokioTimer::new())
                    .pool_idle_timeout(settings.timeouts.pool_idle)
                    .http2_only(true)
                    .http2_keep_alive_interval(settings.timeouts.keep_alive)
                    .build(connector.enable_http2().wrap_connector(tcp)),
            )),
        };
        Server {
            authority,
            host: host.expect("an authority is visible ASCII"),
            protocol: upstream.protocol,
            is_tls: upstream.tls,
            transport,
            ejected_until: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            metrics,
        }
    }

    pub(super) fn send(
        &self,
        mut parts: Parts,
        body: OutboundBody,
        now: Instant,
    ) -> impl Future<Output = UpstreamResult> + use<> {
        match &self.transport {
            Transport::Http1(pool) => {
                if parts.uri.authority().is_some() {
                    parts.uri = Uri::from(path_and_query(parts.uri));
                }
                Either::Left(pool.send(Request::from_parts(parts, body), now))
            }
            Transport::Http2(client) => {
                let path = path_and_query(parts.uri);
                parts.uri = build_uri(self.is_tls, self.authority.clone(), path);
                let response = client.request(Request::from_parts(parts, body));
                Either::Right(async {
                    match response.await {
                        Ok(response) => Ok((response, None)),
                        Err(error) if error.is_connect() => {
                            Err(UpstreamError::Connect(error.into()))
                        }
                        Err(_) => Err(UpstreamError::Broken),
                    }
                })
            }
        }
    }
}

fn path_and_query(uri: Uri) -> PathAndQuery {
    let path = uri.into_parts().path_and_query;
    path.unwrap_or_else(|| PathAndQuery::from_static("/"))
}

fn build_uri(is_tls: bool, authority: Authority, path: PathAndQuery) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(match is_tls {
        true => Scheme::HTTPS,
        false => Scheme::HTTP,
    });
    parts.authority = Some(authority);
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).expect("a scheme, an authority and a path make a URI")
}
