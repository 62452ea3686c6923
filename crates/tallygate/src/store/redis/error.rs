//! Failures of a store and its servers. No message repeats text from a server or a caller: it may
//! hold a key or a password.

use std::borrow::Cow;
use std::fmt;

use redis::{ErrorKind, ServerErrorKind};

use super::url::Host;
use crate::error::debug_is_display;
use crate::store::{StoreError, StoreErrorKind};

/// Why a Redis store cannot be used.
#[derive(Clone)]
pub struct RedisError {
    kind: StoreErrorKind,
    code: Option<&'static str>,
    problem: Cow<'static, str>,
    advice: &'static str,
}

impl RedisError {
    pub(super) fn new(
        kind: StoreErrorKind,
        problem: impl Into<Cow<'static, str>>,
        advice: &'static str,
    ) -> Self {
        RedisError {
            kind,
            code: None,
            problem: problem.into(),
            advice,
        }
    }

    pub(super) fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    pub(super) fn invalid_url(reason: &str) -> Self {
        Self::new(
            StoreErrorKind::Misconfigured,
            format!("invalid store URL: {reason}"),
            "use redis://user:password@host:6379/0, or rediss://, unix:///path, \
             redis-sentinel://host:26379/master, redis-cluster://host1,host2, \
             redis+shards://host1,host2",
        )
    }

    pub(super) fn no_thread() -> Self {
        Self::new(
            StoreErrorKind::Other,
            "cannot start a thread for the connections",
            "raise the limit on threads of this process",
        )
    }

    /// The kind of failure.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Its code, if it has one: the server's, such as `NOPERM`, or `TLS`, `VERSION`, `TOPOLOGY`.
    pub fn code(&self) -> Option<&'static str> {
        self.code
    }

    /// Whether it stays until the configuration is changed: a wrong password, a missing permission,
    /// a certificate, the scheme of the URL.
    pub fn is_permanent(&self) -> bool {
        self.kind == StoreErrorKind::Misconfigured
    }

    /// What went wrong.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What to do about it.
    pub fn advice(&self) -> &str {
        self.advice
    }
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.advice)
    }
}

debug_is_display!(RedisError);

impl std::error::Error for RedisError {}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        StoreError::with_kind(error.kind, error)
    }
}

/// Reasons for a failed TLS handshake.
pub(super) const EXPIRED: &str = "the server's certificate has expired";
pub(super) const UNTRUSTED: &str = "the server's certificate is not signed by a trusted CA";
pub(super) const OTHER_NAME: &str = "the server's certificate is for another host name";
pub(super) const NO_CERTIFICATE: &str = "the server requires a client certificate";
pub(super) const NO_TLS: &str = "the server does not support TLS";
pub(super) const REQUIRES_TLS: &str = "the server requires TLS";
pub(super) const TLS_TIMEOUT: &str = "no reply to the TLS handshake in time";
/// The reason when a server, or a proxy in front of it, closes a connection during the handshake.
pub(super) const CLOSED: &str = "the server closed it; does it require TLS (rediss://)?";

/// Whether a server is up, but its TLS and the URL or the certificates do not fit.
pub(super) fn is_tls_mismatch(reason: &str) -> bool {
    reason.contains("certificate") || matches!(reason, NO_TLS | REQUIRES_TLS)
}

/// Why a call has no result, and whether it may have run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreFailure {
    /// Did not run: another node owns the slot now. An empty host name is the replying server's.
    Moved { slot: u16, to: Host },
    /// Did not run: these keys have been migrated; other keys of the slot may not have.
    Ask(Host),
    /// Did not run: some of the keys have been migrated.
    TryAgain,
    /// Did not run: the server does not have the script.
    NoScript,
    /// Did not run: the server accepts no writes.
    ReadOnly,
    /// Did not run: the server refuses for now, with this code.
    Unavailable(&'static str),
    /// Did not run: the server refuses permanently, with this code.
    Rejected(&'static str),
    /// Not sent: there is no connection.
    NotConnected(&'static str),
    /// Not sent: the circuit breaker of the server is open.
    BreakerOpen,
    /// Not sent: the queue is full.
    Overloaded,
    /// May have run: the connection broke.
    ConnectionLost,
    /// May have run: no reply in time.
    TimedOut,
    /// May have run: the reply is invalid.
    InvalidReply,
}

impl From<&redis::RedisError> for StoreFailure {
    fn from(error: &redis::RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(kind) => Self::from_server(kind, error),
            ErrorKind::AuthenticationFailed => StoreFailure::Rejected("WRONGPASS"),
            ErrorKind::Io if error.is_timeout() => StoreFailure::TimedOut,
            ErrorKind::Io if error.is_connection_refusal() => {
                StoreFailure::NotConnected("connection refused")
            }
            ErrorKind::Io => StoreFailure::ConnectionLost,
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => StoreFailure::InvalidReply,
            ErrorKind::InvalidClientConfig => StoreFailure::Rejected("TLS"),
            ErrorKind::RESP3NotSupported => StoreFailure::Rejected("HELLO"),
            ErrorKind::Extension => Self::from_code(error.code().unwrap_or_default()),
            _ => StoreFailure::ConnectionLost,
        }
    }
}

impl StoreFailure {
    fn from_server(kind: ServerErrorKind, error: &redis::RedisError) -> Self {
        let target = || {
            let (to, slot) = error.redirect_node()?;
            // No brackets, even around an IPv6 address.
            let (name, port) = to.rsplit_once(':')?;
            let (name, port) = (name.to_owned(), port.parse().ok()?);
            Some((Host { name, port }, slot))
        };
        match kind {
            // The server does not know the name of the other.
            ServerErrorKind::Moved | ServerErrorKind::Ask
                if target().is_some_and(|(to, _)| to.name == "?") =>
            {
                StoreFailure::Unavailable("CLUSTERDOWN")
            }
            ServerErrorKind::Moved => target().map_or(StoreFailure::InvalidReply, |(to, slot)| {
                StoreFailure::Moved { slot, to }
            }),
            ServerErrorKind::Ask => {
                target().map_or(StoreFailure::InvalidReply, |(to, _)| StoreFailure::Ask(to))
            }
            ServerErrorKind::TryAgain => StoreFailure::TryAgain,
            ServerErrorKind::NoScript => StoreFailure::NoScript,
            ServerErrorKind::ReadOnly => StoreFailure::ReadOnly,
            ServerErrorKind::BusyLoading => StoreFailure::Unavailable("LOADING"),
            ServerErrorKind::ClusterDown => StoreFailure::Unavailable("CLUSTERDOWN"),
            ServerErrorKind::MasterDown => StoreFailure::Unavailable("MASTERDOWN"),
            ServerErrorKind::NoPerm => StoreFailure::Rejected("NOPERM"),
            ServerErrorKind::CrossSlot => StoreFailure::Rejected("CROSSSLOT"),
            _ if is_permission_error(error.detail().unwrap_or_default()) => {
                StoreFailure::Rejected("NOPERM")
            }
            _ => StoreFailure::Rejected("ERR"),
        }
    }

    fn from_code(code: &str) -> Self {
        match code {
            "OOM" => StoreFailure::Unavailable("OOM"),
            "BUSY" => StoreFailure::Unavailable("BUSY"),
            "MISCONF" => StoreFailure::Unavailable("MISCONF"),
            "NOREPLICAS" => StoreFailure::Unavailable("NOREPLICAS"),
            "NOAUTH" => StoreFailure::Rejected("NOAUTH"),
            "WRONGPASS" => StoreFailure::Rejected("WRONGPASS"),
            "UNKILLABLE" => StoreFailure::Unavailable("UNKILLABLE"),
            _ => StoreFailure::Rejected("ERR"),
        }
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            StoreFailure::Moved { .. } => Some("MOVED"),
            StoreFailure::Ask(_) => Some("ASK"),
            StoreFailure::TryAgain => Some("TRYAGAIN"),
            StoreFailure::NoScript => Some("NOSCRIPT"),
            StoreFailure::ReadOnly => Some("READONLY"),
            StoreFailure::Rejected("SENTINEL" | "MASTER") => Some("TOPOLOGY"),
            StoreFailure::Rejected("HELLO") => Some("VERSION"),
            StoreFailure::Unavailable(code) | StoreFailure::Rejected(code) => Some(code),
            StoreFailure::NotConnected(reason)
                if reason.contains("certificate") || reason.contains("TLS") =>
            {
                Some("TLS")
            }
            StoreFailure::NotConnected(_)
            | StoreFailure::BreakerOpen
            | StoreFailure::Overloaded
            | StoreFailure::ConnectionLost
            | StoreFailure::TimedOut
            | StoreFailure::InvalidReply => None,
        }
    }

    pub(super) fn kind(&self) -> StoreErrorKind {
        self.clone().describe().kind
    }

    /// Completes a redirection without a host name: it means the server that replied.
    pub(super) fn with_default_host(mut self, replied: Option<&Host>) -> Self {
        if let StoreFailure::Moved { to, .. } | StoreFailure::Ask(to) = &mut self
            && to.name.is_empty()
            && let Some(host) = replied
        {
            to.name.clone_from(&host.name);
        }
        self
    }

    /// Whether the server failed, and not this process or the request. A call that missed its
    /// deadline shows a failure only if the server is silent.
    pub(super) fn is_of_server(&self, is_silent: impl FnOnce() -> bool) -> bool {
        match self {
            StoreFailure::Moved { .. }
            | StoreFailure::Ask(_)
            | StoreFailure::TryAgain
            | StoreFailure::NoScript
            | StoreFailure::Overloaded
            | StoreFailure::BreakerOpen => false,
            StoreFailure::TimedOut => is_silent(),
            StoreFailure::ReadOnly
            | StoreFailure::Unavailable(_)
            | StoreFailure::Rejected(_)
            | StoreFailure::NotConnected(_)
            | StoreFailure::ConnectionLost
            | StoreFailure::InvalidReply => true,
        }
    }

    /// Whether the call certainly did not run.
    pub(super) fn did_not_run(&self) -> bool {
        !matches!(
            self,
            StoreFailure::ConnectionLost | StoreFailure::TimedOut | StoreFailure::InvalidReply
        )
    }
}

/// Permission errors inside a script have no code of their own.
fn is_permission_error(text: &str) -> bool {
    let phrases = [
        "ACL failure in script",
        "can't run this command",
        "can't access",
    ];
    phrases.iter().any(|phrase| text.contains(phrase))
}

impl From<StoreFailure> for RedisError {
    fn from(failure: StoreFailure) -> Self {
        RedisError {
            code: failure.code(),
            ..failure.describe()
        }
    }
}

impl StoreFailure {
    fn describe(self) -> RedisError {
        use StoreErrorKind::{Garbled, Misconfigured, Overloaded, Refused, Timeout, Unreachable};
        match self {
            StoreFailure::Moved { .. } | StoreFailure::Ask(_) => RedisError::new(
                Refused,
                "the cluster kept redirecting the request",
                "check it with `redis-cli --cluster check`; use redis-cluster:// for a cluster, not \
                 redis://",
            ),
            // No failure: its servers reply, and may know that the request is to be refused.
            StoreFailure::TryAgain => RedisError::new(
                Timeout,
                "a slot is being migrated, and the keys of the counter are on two servers",
                "wait until the migration has ended; check it with `redis-cli --cluster check`",
            ),
            StoreFailure::NoScript => RedisError::new(
                Refused,
                "the server keeps losing its scripts",
                "find the client that calls SCRIPT FLUSH",
            ),
            StoreFailure::ReadOnly => RedisError::new(
                Refused,
                "READONLY: this server is a replica",
                "use the master, or redis-sentinel:// or redis-cluster:// to follow it",
            ),
            StoreFailure::Unavailable("OOM") => RedisError::new(
                Refused,
                "OOM: the server is out of memory and evicts nothing",
                "raise maxmemory",
            ),
            StoreFailure::Unavailable("LOADING") => RedisError::new(
                Refused,
                "LOADING: the server is loading its data",
                "wait until it has finished",
            ),
            StoreFailure::Unavailable("BUSY") => RedisError::new(
                Refused,
                "BUSY: a script is blocking the server",
                "end it with SCRIPT KILL",
            ),
            StoreFailure::Unavailable("MISCONF") => RedisError::new(
                Refused,
                "MISCONF: the server cannot write its snapshot and accepts no writes",
                "check its log and its disk",
            ),
            StoreFailure::Unavailable("CLUSTERDOWN") => RedisError::new(
                Refused,
                "CLUSTERDOWN: some slots are not covered",
                "check it with `redis-cli --cluster check`",
            ),
            StoreFailure::Unavailable(code) => RedisError::new(
                Refused,
                format!("{code}: the server refuses for now"),
                "check its log",
            ),
            StoreFailure::Rejected("NOPERM") => RedisError::new(
                Misconfigured,
                "NOPERM: the user lacks a permission",
                "ACL SETUSER name ~tallygate:* +eval +evalsha +script|load +time +get +mget \
                 +getrange +set +setrange +del +pexpireat +info +ping, for Sentinel +role, for a cluster \
                 +cluster|slots +asking, to clear a namespace +scan +unlink, to count replicas +zadd \
                 +zremrangebyscore +zcard +pexpire, with hash tags +zrange, for concurrency limits and \
                 shares +hmget +hset +hdel +hlen +hgetall +unlink +zadd +zrange +zrem \
                 +zremrangebyscore +zcard +pexpire",
            ),
            StoreFailure::Rejected("NOAUTH") => RedisError::new(
                Misconfigured,
                "NOAUTH: the server requires a password",
                "add it to the URL: redis://user:password@host",
            ),
            StoreFailure::Rejected("WRONGPASS") => RedisError::new(
                Misconfigured,
                "WRONGPASS: the user or the password is wrong",
                "correct it in the URL; percent-encode reserved characters",
            ),
            StoreFailure::Rejected("CROSSSLOT") => RedisError::new(
                Misconfigured,
                "CROSSSLOT: this server is part of a cluster",
                "use redis-cluster:// instead of redis://",
            ),
            StoreFailure::Rejected("TLS") => RedisError::new(
                Misconfigured,
                "TLS: a certificate or key cannot be used",
                "both must be in PEM format",
            ),
            StoreFailure::Rejected("HELLO") => RedisError::new(
                Misconfigured,
                "the server does not support HELLO 3",
                "upgrade it to Redis 6.2 or Valkey 7.2 or later",
            ),
            StoreFailure::Rejected("SENTINEL") => RedisError::new(
                Misconfigured,
                "this server is not a sentinel",
                "use redis:// for a single server; the default port of a sentinel is 26379",
            ),
            StoreFailure::Rejected("MASTER") => RedisError::new(
                Misconfigured,
                "the sentinels know no master with that name",
                "correct the name in the URL: redis-sentinel://host:26379/name",
            ),
            StoreFailure::Rejected("DB") => RedisError::new(
                Misconfigured,
                "the server has no database with that number",
                "correct the number at the end of the URL; 0 always exists",
            ),
            StoreFailure::Rejected(code) => RedisError::new(
                Refused,
                format!("{code}: the server refuses"),
                "run `tallygate doctor` for details",
            ),
            StoreFailure::NotConnected(reason) => RedisError::new(
                match is_tls_mismatch(reason) {
                    true => Misconfigured,
                    false => Unreachable,
                },
                format!("no connection: {reason}"),
                match reason {
                    EXPIRED => "renew it on the server",
                    UNTRUSTED => "trust the CA that signed it (tallygate: --ca-cert FILE)",
                    OTHER_NAME => "use a host name in the URL that the certificate covers",
                    NO_CERTIFICATE => {
                        "provide one (tallygate: --client-cert FILE --client-key FILE)"
                    }
                    NO_TLS => "use redis:// instead of rediss://",
                    REQUIRES_TLS => "use rediss:// instead of redis://",
                    TLS_TIMEOUT => {
                        "is the server up, and does it support TLS? Without TLS, use redis://"
                    }
                    _ => "is the server up, and are host, port and scheme correct?",
                },
            ),
            StoreFailure::BreakerOpen => RedisError::new(
                Unreachable,
                "the server has not answered lately",
                "is the server up? It is probed until it answers",
            ),
            StoreFailure::Overloaded => RedisError::new(
                Overloaded,
                "too many requests are queued for the server",
                "the server or the network is too slow for this traffic",
            ),
            StoreFailure::ConnectionLost => RedisError::new(
                Unreachable,
                "the connection broke",
                "is the server up, and does it require TLS (rediss://)?",
            ),
            StoreFailure::TimedOut => RedisError::new(
                Timeout,
                "no reply in time",
                "does the server hang, or is the network down?",
            ),
            StoreFailure::InvalidReply => RedisError::new(
                Garbled,
                "the reply is invalid",
                "is it a Redis or Valkey server, version 6.2 or later?",
            ),
        }
    }
}

impl From<StoreFailure> for StoreError {
    fn from(failure: StoreFailure) -> Self {
        RedisError::from(failure).into()
    }
}
