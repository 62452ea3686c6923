//! What a gateway is told: where requests go, how long anything may take, how much of anything
//! there may be. Knows nothing of the file that this is written in.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::Authority;

use super::{SingleFlight, Tls, tls};
use crate::otlp::Tracer;

/// What a gateway is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where requests go, in turn.
    pub upstreams: Vec<Upstream>,
    /// How long anything may take.
    pub timeouts: Timeouts,
    /// How much of anything there may be.
    pub limits: Limits,
    /// Which `Host` the upstream sees.
    pub host: Host,
    /// A PEM file with the authority to trust with upstreams that speak TLS. The system's unless
    /// told otherwise.
    pub upstream_ca_cert: Option<PathBuf>,
    /// Whose word about clients is passed on.
    pub trusted: Trusted,
    /// Which requests share one call to an upstream: the first that says yes counts. None unless
    /// told otherwise.
    pub single_flight: Vec<SingleFlight>,
    /// Speaks TLS with clients. Not unless told otherwise.
    pub tls: Option<Tls>,
    /// What requests are traced with.
    pub(crate) tracer: Option<Arc<Tracer>>,
}

impl Settings {
    /// Sends requests to these upstreams, everything else as it is unless told otherwise.
    pub fn new(upstreams: impl IntoIterator<Item = Upstream>) -> Self {
        Settings {
            upstreams: upstreams.into_iter().collect(),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            host: Host::default(),
            upstream_ca_cert: None,
            trusted: Trusted::default(),
            single_flight: Vec::new(),
            tls: None,
            tracer: None,
        }
    }

    /// Says whether a gateway can be made of them; reads the files that they name.
    ///
    /// # Errors
    /// When there is no upstream, a limit is 0, or a certificate, its key or the authorities that
    /// vouch for upstreams cannot be used.
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
            tls::client(self.upstream_ca_cert.as_deref())?;
        }
        self.tls.clone().map_or(Ok(()), |tls| tls.check())
    }
}

/// A server that requests are sent to: `http://host:port`, `h2c://host:port` for HTTP/2, and
/// `https://host:port` and `h2://host:port` for the same over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    pub(super) authority: Authority,
    pub(super) speaks: Speaks,
    pub(super) tls: bool,
}

impl Upstream {
    /// Whether it speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }
}

/// What an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    Http1,
    Http2,
}

impl FromStr for Upstream {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let wrong = || SettingsError::Upstream;
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let (speaks, tls) = match uri.scheme_str() {
            Some("http") => (Speaks::Http1, false),
            Some("https") => (Speaks::Http1, true),
            Some("h2c") => (Speaks::Http2, false),
            Some("h2") => (Speaks::Http2, true),
            Some(_) | None => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if !bare || authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(wrong());
        }
        let authority = authority.clone();
        Ok(Upstream {
            authority,
            speaks,
            tls,
        })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.speaks, self.tls) {
            (Speaks::Http1, false) => "http",
            (Speaks::Http1, true) => "https",
            (Speaks::Http2, false) => "h2c",
            (Speaks::Http2, true) => "h2",
        };
        write!(f, "{scheme}://{}", self.authority)
    }
}

/// How long anything may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From a request's first byte to the end of its head, and from a connection's start to the
    /// end of its first head. 10 s unless told otherwise; at most twice that passes.
    pub header: Duration,
    /// Between two parts of a request's body. 30 s unless told otherwise.
    pub body_idle: Duration,
    /// Between two requests on a connection. 75 s unless told otherwise; at most twice that passes.
    pub keep_alive: Duration,
    /// How long a client may take to make room for more of an answer. 30 s unless told otherwise.
    pub write: Duration,
    /// Until an upstream has taken a connection. 5 s unless told otherwise.
    pub connect: Duration,
    /// From the last of a request to the first of its answer. 60 s unless told otherwise.
    pub first_byte: Duration,
    /// Between two parts of an answer's body. 60 s unless told otherwise.
    pub answer_idle: Duration,
    /// From when a request was let through to the end of its answer. An hour unless told otherwise.
    pub whole: Duration,
    /// How long nothing may pass through an upgraded connection. 10 min unless told otherwise.
    pub tunnel_idle: Duration,
    /// How long requests in flight may go on once the gateway stops. 30 s unless told otherwise.
    pub drain: Duration,
    /// How long an idle connection is kept once the gateway stops, so that a request which is on
    /// its way arrives. 1 s unless told otherwise.
    pub linger: Duration,
    /// How long a connection to an upstream is kept idle. 4 s unless told otherwise: common servers
    /// close theirs after 5 s, and a request that meets this is lost.
    pub pool_idle: Duration,
    /// How long an upstream that did not take a connection is left alone; twice as long every
    /// time it happens again, up to thirty times as long. 1 s unless told otherwise.
    pub down: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Timeouts {
            header: seconds(10),
            body_idle: seconds(30),
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

/// How much of anything there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections from clients, upgraded ones included. Others wait in the system's queue until
    /// one ends. 16,384 unless told otherwise.
    pub connections: usize,
    /// Bytes of a request's head: 431 beyond. 32 KiB unless told otherwise, at least 8 KiB.
    pub head_bytes: usize,
    /// Headers of a request: 431 beyond. 100 unless told otherwise.
    pub headers: usize,
    /// Bytes of a request's body: 413 beyond. 1 GiB unless told otherwise.
    pub body_bytes: u64,
    /// Requests at once on one HTTP/2 connection. 100 unless told otherwise.
    pub streams: u32,
    /// Requests that a client may give up on one HTTP/2 connection; once these are also more than
    /// half of all, the connection is closed. 100 unless told otherwise.
    pub given_up: u64,
    /// Idle connections kept to each upstream. 256 unless told otherwise.
    pub pool: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 16_384,
            head_bytes: 32 << 10,
            headers: 100,
            body_bytes: 1 << 30,
            streams: 100,
            given_up: 100,
            pool: 256,
        }
    }
}

/// Which `Host` an upstream sees. `X-Forwarded-Host` has the client's in any case, and an upstream
/// that speaks HTTP/2 sees its own in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Host {
    /// The one that the client named.
    #[default]
    Client,
    /// Its own.
    Upstream,
}

/// Whose word about clients is passed on: what a trusted peer says of whom it forwards is kept
/// and added to, what anybody else says is replaced. Nobody is trusted unless told otherwise.
#[derive(Clone, Default)]
pub struct Trusted(Option<Arc<IsTrusted>>);

type IsTrusted = dyn Fn(IpAddr) -> bool + Send + Sync;

impl Trusted {
    /// Trusts the peers that a function says yes to; it is asked for every request.
    pub fn when(is_trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Trusted(Some(Arc::new(is_trusted)))
    }

    pub(super) fn trusts(&self, peer: IpAddr) -> bool {
        self.0
            .as_ref()
            .is_some_and(|is_trusted| is_trusted(peer.to_canonical()))
    }
}

impl fmt::Debug for Trusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "Trusted(some)",
            None => "Trusted(nobody)",
        })
    }
}

/// Why a gateway cannot be made.
// An upstream's text may hold a password: it is in no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// A text is no upstream.
    Upstream,
    /// There is no upstream.
    NoUpstream,
    /// A limit is 0.
    Zero {
        /// Its name.
        limit: &'static str,
    },
    /// The authorities that the system trusts cannot be read.
    Roots {
        /// What is wrong.
        why: String,
    },
    /// A certificate or its key cannot be used.
    Tls {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::Upstream => f.write_str(
                "an upstream is a scheme (http or https, or h2c or h2 for HTTP/2 without or with \
                 TLS), a host and a port, without user, path or query; write it like \
                 http://127.0.0.1:3000",
            ),
            SettingsError::NoUpstream => f.write_str("a gateway needs at least 1 upstream"),
            SettingsError::Zero { limit } => write!(f, "the gateway's {limit} 0 is below 1"),
            SettingsError::Roots { why } => write!(
                f,
                "the system's certificate authorities cannot be used: {why}; name one with \
                 --upstream-ca-cert"
            ),
            SettingsError::Tls { file, why } => {
                write!(f, "{} cannot be used for TLS: {why}", file.display())
            }
        }
    }
}

impl std::error::Error for SettingsError {}

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
