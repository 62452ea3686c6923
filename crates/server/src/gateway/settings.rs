//! The settings of a gateway: upstreams, timeouts and limits.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::header::HeaderName;
use http::uri::Authority;
use tallygate::config::{GatewaySizes, GatewayTimeouts};
use tallygate::rules::Rules;
use thiserror::Error;

use super::{SingleFlight, Tls, tls};
use crate::access_log::AccessLog;
use crate::metrics::GatewayMetrics;
use crate::otlp::Tracer;

/// The settings of a gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where requests are forwarded to, round robin.
    pub upstreams: Vec<Upstream>,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Size limits.
    pub limits: Limits,
    /// Which `Host` the upstream sees.
    pub host: Host,
    /// A PEM file with the certificate authority for TLS upstreams. The system's by default.
    pub upstream_ca_cert: Option<PathBuf>,
    /// The peers whose forwarding headers are passed on.
    pub trusted: TrustedPeers,
    /// Which requests share one call to an upstream: the first match counts. None by default.
    pub single_flight: Vec<SingleFlight>,
    /// Whether trusted peers have to start their connections with a PROXY protocol header, version 1 or
    /// 2, before TLS. The client that it names takes the place of the socket's peer. Off by default.
    pub proxy_protocol: bool,
    /// TLS towards clients. None by default.
    pub tls: Option<Tls>,
    pub(crate) rule_headers: RuleHeaders,
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) access_log: Option<Arc<AccessLog>>,
    /// Metrics that are read elsewhere; their upstreams are those of these settings.
    pub(crate) metrics: Option<Arc<GatewayMetrics>>,
}

impl Settings {
    /// Settings with these upstreams and defaults otherwise.
    pub fn new(upstreams: impl IntoIterator<Item = Upstream>) -> Self {
        Settings {
            upstreams: upstreams.into_iter().collect(),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            host: Host::default(),
            upstream_ca_cert: None,
            trusted: TrustedPeers::default(),
            single_flight: Vec::new(),
            proxy_protocol: false,
            tls: None,
            rule_headers: RuleHeaders::default(),
            tracer: None,
            access_log: None,
            metrics: None,
        }
    }

    /// Validates the settings, including the files that they name.
    ///
    /// # Errors
    /// When there is no upstream, a limit is 0, or a certificate, its key or the certificate
    /// authorities for upstreams cannot be used.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.upstreams.is_empty() {
            return Err(SettingsError::NoUpstream);
        }
        let limits = &self.limits;
        let zero = [
            ("connections", limits.connections == 0),
            ("headers", limits.headers == 0),
            ("streams", limits.streams == 0),
        ];
        if let Some((limit, _)) = zero.into_iter().find(|(_, zero)| *zero) {
            return Err(SettingsError::Zero { limit });
        }
        if self.upstreams.iter().any(Upstream::is_tls) {
            tls::client_config(self.upstream_ca_cert.as_deref())?;
        }
        if let Some(tls) = &self.tls {
            tls.server_config()?;
        }
        Ok(())
    }
}

/// A server that requests are forwarded to: `http://host:port`, `h2c://host:port` for HTTP/2, and
/// `https://host:port` and `h2://host:port` for the same over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    pub(super) authority: Authority,
    pub(super) protocol: Protocol,
    pub(super) tls: bool,
}

impl Upstream {
    /// Whether connections to it use TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Its host and port.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl FromStr for Upstream {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let wrong = || SettingsError::Upstream;
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let (protocol, tls) = match uri.scheme_str() {
            Some("http") => (Protocol::Http1, false),
            Some("https") => (Protocol::Http1, true),
            Some("h2c") => (Protocol::Http2, false),
            Some("h2") => (Protocol::Http2, true),
            Some(_) | None => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if !bare || authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(wrong());
        }
        Ok(Upstream {
            authority: authority.clone(),
            protocol,
            tls,
        })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.protocol, self.tls) {
            (Protocol::Http1, false) => "http",
            (Protocol::Http1, true) => "https",
            (Protocol::Http2, false) => "h2c",
            (Protocol::Http2, true) => "h2",
        };
        write!(f, "{scheme}://{}", self.authority)
    }
}

/// Time limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From a request's first byte to the end of its head, and from a connection's start to the
    /// end of its first head. 10 s by default; enforced within twice that.
    pub header: Duration,
    /// Between two frames of a request's body. 30 s by default.
    pub body_idle: Duration,
    /// How long a body may take whatever its rate, before [`Limits::body_rate`] applies to it. 10 s
    /// by default.
    pub body_grace: Duration,
    /// Between two requests on a connection. 75 s by default; enforced within twice that.
    pub keep_alive: Duration,
    /// How long a client may take none of a response. Then an HTTP/1 connection is closed; an HTTP/2
    /// stream is reset, within twice that. 30 s by default.
    pub write: Duration,
    /// For connecting to an upstream. 5 s by default.
    pub connect: Duration,
    /// From the end of a request to the start of its response. 60 s by default.
    pub first_byte: Duration,
    /// Between two frames of a response's body. 60 s by default.
    pub answer_idle: Duration,
    /// From the admission of a request to the end of its response. 1 h by default.
    pub whole: Duration,
    /// How long an upgraded connection may be idle. 10 min by default.
    pub tunnel_idle: Duration,
    /// How long requests in flight may take after shutdown. 30 s by default.
    pub drain: Duration,
    /// How long an idle connection is kept after shutdown, for a request on its way; and how long a
    /// client that was answered before the end of its request may be silent before the connection
    /// is closed. 1 s by default.
    pub linger: Duration,
    /// How long a connection to an upstream is kept idle. 4 s by default: common servers close
    /// theirs after 5 s, and a request sent at that moment is lost.
    pub pool_idle: Duration,
    /// How long an upstream that accepts no connection is ejected; doubled with every further
    /// failure, up to thirty times as long. 1 s by default.
    pub down: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Timeouts {
            header: seconds(10),
            body_idle: seconds(30),
            body_grace: seconds(10),
            keep_alive: seconds(75),
            write: seconds(30),
            connect: seconds(5),
            first_byte: seconds(60),
            answer_idle: seconds(60),
            whole: seconds(3600),
            tunnel_idle: seconds(600),
            drain: seconds(30),
            linger: seconds(1),
            pool_idle: seconds(4),
            down: seconds(1),
        }
    }
}

impl From<&GatewayTimeouts> for Timeouts {
    fn from(config: &GatewayTimeouts) -> Self {
        let defaults = Timeouts::default();
        Timeouts {
            header: config.header.unwrap_or(defaults.header),
            body_idle: config.body_idle.unwrap_or(defaults.body_idle),
            body_grace: config.body_grace.unwrap_or(defaults.body_grace),
            keep_alive: config.keep_alive.unwrap_or(defaults.keep_alive),
            write: config.write.unwrap_or(defaults.write),
            connect: config.connect.unwrap_or(defaults.connect),
            first_byte: config.first_byte.unwrap_or(defaults.first_byte),
            answer_idle: config.answer_idle.unwrap_or(defaults.answer_idle),
            whole: config.whole.unwrap_or(defaults.whole),
            tunnel_idle: config.tunnel_idle.unwrap_or(defaults.tunnel_idle),
            pool_idle: config.pool_idle.unwrap_or(defaults.pool_idle),
            down: config.down.unwrap_or(defaults.down),
            ..defaults
        }
    }
}

/// Size limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Client connections, upgraded ones included. Beyond them idle ones are closed, the idlest
    /// first; if none is idle, others wait in the accept queue. 16,384 by default.
    pub connections: usize,
    /// Connections of one client, by the address of the socket's peer: an IPv4 address or an IPv6
    /// /64. Beyond them its idlest one is closed; if none is idle, the new one is. Trusted peers are
    /// exempt. 1,024 by default; 0: no bound.
    pub connections_per_client: usize,
    /// Bytes of a request's head: 431 beyond. 32 KiB by default, at least 8 KiB.
    pub head_bytes: usize,
    /// Headers of a request: 431 beyond. 100 by default.
    pub headers: usize,
    /// Bytes of a request's body: 413 beyond. 1 GiB by default.
    pub body_bytes: u64,
    /// Bytes a second that a request's body must have on average: 408 below. Waits for the upstream
    /// or a shaping delay do not count; gRPC and upgrades are exempt. 500 by default; 0: no bound.
    pub body_rate: u32,
    /// Concurrent requests on one HTTP/2 connection. 100 by default.
    pub streams: u32,
    /// Requests that a client may reset on one HTTP/2 connection; once these are also more than
    /// half of all, the connection is closed. 100 by default.
    pub resets: u64,
    /// Idle connections kept to each upstream. 256 by default.
    pub pool: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 16_384,
            connections_per_client: 1_024,
            head_bytes: 32 << 10,
            headers: 100,
            body_bytes: 1 << 30,
            body_rate: 500,
            streams: 100,
            resets: 100,
            pool: 256,
        }
    }
}

impl From<&GatewaySizes> for Limits {
    fn from(config: &GatewaySizes) -> Self {
        let defaults = Limits::default();
        Limits {
            connections: config.connections.unwrap_or(defaults.connections),
            connections_per_client: config
                .connections_per_client
                .unwrap_or(defaults.connections_per_client),
            head_bytes: config.head_bytes.unwrap_or(defaults.head_bytes),
            headers: config.headers.unwrap_or(defaults.headers),
            body_bytes: config.body_bytes.unwrap_or(defaults.body_bytes),
            body_rate: config.body_rate.unwrap_or(defaults.body_rate),
            streams: config.streams.unwrap_or(defaults.streams),
            pool: config.pool.unwrap_or(defaults.pool),
            ..defaults
        }
    }
}

/// Which `Host` an upstream sees. `X-Forwarded-Host` always has the client's; an HTTP/2 upstream
/// always sees its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Host {
    /// The client's.
    #[default]
    Client,
    /// The upstream's own.
    Upstream,
}

/// The peers whose forwarding headers are kept and extended; those of others are replaced. None by
/// default.
#[derive(Clone, Default)]
pub struct TrustedPeers(Option<Arc<IsTrusted>>);

type IsTrusted = dyn Fn(IpAddr) -> bool + Send + Sync;

impl TrustedPeers {
    /// Trusts the peers that a predicate accepts. Called for every request.
    pub fn when(is_trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        TrustedPeers(Some(Arc::new(is_trusted)))
    }

    pub(super) fn contains(&self, peer: IpAddr) -> bool {
        self.0
            .as_ref()
            .is_some_and(|is_trusted| is_trusted(peer.to_canonical()))
    }
}

impl fmt::Debug for TrustedPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "TrustedPeers(some)",
            None => "TrustedPeers(none)",
        })
    }
}

/// The rules whose headers reach upstreams in no other spelling.
#[derive(Clone, Default)]
pub(crate) struct RuleHeaders(Option<Arc<CurrentRules>>);

type CurrentRules = dyn Fn() -> Arc<Rules> + Send + Sync;

impl RuleHeaders {
    pub(crate) fn new(rules: impl Fn() -> Arc<Rules> + Send + Sync + 'static) -> Self {
        RuleHeaders(Some(Arc::new(rules)))
    }

    /// Whether applications may take a header for one that rules read, and that it is not.
    pub(super) fn is_respelled(&self, name: &HeaderName) -> bool {
        let rules = self.0.as_ref();
        rules.is_some_and(|rules| rules().header_names().is_respelled(name))
    }

    /// Whether rules read a header, or one that applications may take it for.
    pub(super) fn contains_in_any_spelling(&self, name: &HeaderName) -> bool {
        let rules = self.0.as_ref();
        rules.is_some_and(|rules| rules().header_names().contains_in_any_spelling(name))
    }
}

impl fmt::Debug for RuleHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuleHeaders")
    }
}

/// Why settings are invalid.
// Upstream URLs may hold a password: no error repeats one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// A text is not an upstream URL.
    #[error(
        "an upstream is a scheme (http or https, or h2c or h2 for HTTP/2 without or with TLS), a \
         host and a port, without user, path or query; write it like http://127.0.0.1:3000"
    )]
    Upstream,
    /// There is no upstream.
    #[error("a gateway needs at least 1 upstream")]
    NoUpstream,
    /// A limit is 0.
    #[error("the gateway's {limit} 0 is below 1")]
    Zero {
        /// Its name.
        limit: &'static str,
    },
    /// The system's certificate authorities cannot be read.
    #[error(
        "the system's certificate authorities cannot be used: {reason}; name one with \
         --upstream-ca-cert"
    )]
    Roots {
        /// What is wrong.
        reason: String,
    },
    /// A certificate or its key cannot be used.
    #[error("{} cannot be used for TLS: {reason}", file.display())]
    Tls {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_scheme_a_host_and_a_port() {
        let right = [
            "http://a:1",
            "h2c://127.0.0.1:80",
            "http://[::1]:3000",
            "https://a",
            "h2://a:443",
        ];
        for text in right {
            let upstream: Upstream = text.parse().unwrap();
            assert_eq!(upstream.to_string(), text);
        }
        let wrong = [
            "",
            "a:1",
            "/x",
            "ftp://a",
            "http://",
            "http://user:secret@a",
            "http://a/path",
            "http://a?query",
        ];
        for text in wrong {
            let error = text.parse::<Upstream>().unwrap_err();
            assert!(!error.to_string().contains("secret"), "{text}");
        }
    }
}
