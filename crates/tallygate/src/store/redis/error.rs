//! What can go wrong between a store and its servers, and what to do about it. No text here
//! repeats what a server or a caller said: it may hold a key or a password.

use std::borrow::Cow;
use std::fmt;

use redis::{ErrorKind, ServerErrorKind};

use super::url::Host;
use crate::store::{StoreError, StoreErrorKind};

/// Why a Redis store cannot be had.
#[derive(Clone, Debug)]
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

    /// Gives it a word to be known by.
    pub(super) fn called(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    pub(super) fn url(why: &str) -> Self {
        Self::new(
            StoreErrorKind::Misconfigured,
            format!("this is no URL of a store: {why}"),
            "write it like redis://user:password@host:6379/0, or rediss://, unix:///path, \
             redis-sentinel://host:26379/master, redis-cluster://host1,host2",
        )
    }

    pub(super) fn no_runtime() -> Self {
        Self::new(
            StoreErrorKind::Misconfigured,
            "there is no tokio runtime here",
            "make the store within one, as in #[tokio::main]",
        )
    }

    /// What went wrong, in a word.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// A word for it, where there is one: the server's own, such as `NOPERM`, or `TLS`, `VERSION`,
    /// `ARRANGEMENT`.
    pub fn code(&self) -> Option<&'static str> {
        self.code
    }

    /// What went wrong.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What to do about it.
    pub fn advice(&self) -> &str {
        self.advice
    }

    /// Translates what the client says.
    pub(super) fn client(error: &redis::RedisError) -> Self {
        Trouble::from(error).into()
    }
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.advice)
    }
}

impl std::error::Error for RedisError {}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        StoreError::of(error.kind, error)
    }
}

/// Why there is no connection where the certificates are at fault.
pub(super) const EXPIRED: &str = "the server's certificate has expired";
pub(super) const UNTRUSTED: &str = "the server's certificate is signed by nobody that is trusted";
pub(super) const OTHER_NAME: &str = "the server's certificate is for another name";
pub(super) const NO_CERTIFICATE: &str = "the server wants a client certificate";
pub(super) const NO_TLS: &str = "the server does not speak TLS";
pub(super) const PERHAPS_NO_TLS: &str = "no answer to TLS in time; perhaps it speaks none";

/// What came of a call that was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Not run: the slot lives there now.
    Moved { slot: u16, to: Host },
    /// Not run: these keys have moved there already, others may not have.
    Ask(Host),
    /// Not run: some of the keys have moved already.
    TryAgain,
    /// Not run: the script is not known there.
    NoScript,
    /// Not run: that server no longer takes writes.
    ReadOnly,
    /// Not run: the server refuses for now, under this code.
    NotNow(&'static str),
    /// Not run: the server refuses for good, under this code.
    Refused(&'static str),
    /// Not sent: there is no connection.
    Down(&'static str),
    /// Not sent: too many are waiting.
    Overloaded,
    /// Perhaps run: the connection broke.
    Broken,
    /// Perhaps run: no answer came in time.
    Silent,
    /// Perhaps run: the answer makes no sense.
    Garbled,
}

impl From<&redis::RedisError> for Trouble {
    fn from(error: &redis::RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(kind) => Self::from_server(kind, error),
            ErrorKind::AuthenticationFailed => Trouble::Refused("WRONGPASS"),
            ErrorKind::Io if error.is_timeout() => Trouble::Silent,
            ErrorKind::Io if error.is_connection_refusal() => Trouble::Down("connection refused"),
            ErrorKind::Io => Trouble::Broken,
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Trouble::Garbled,
            ErrorKind::InvalidClientConfig => Trouble::Refused("TLS"),
            ErrorKind::RESP3NotSupported => Trouble::Refused("HELLO"),
            ErrorKind::Extension => Self::from_code(error.code().unwrap_or_default()),
            _ => Trouble::Broken,
        }
    }
}

impl Trouble {
    fn from_server(kind: ServerErrorKind, error: &redis::RedisError) -> Self {
        let target = || {
            let (to, slot) = error.redirect_node()?;
            // Without brackets, also around an address that has colons of its own.
            let (name, port) = to.rsplit_once(':')?;
            let (name, port) = (name.to_owned(), port.parse().ok()?);
            Some((Host { name, port }, slot)).filter(|(to, _)| !to.name.is_empty())
        };
        match kind {
            ServerErrorKind::Moved => {
                target().map_or(Trouble::Garbled, |(to, slot)| Trouble::Moved { slot, to })
            }
            ServerErrorKind::Ask => target().map_or(Trouble::Garbled, |(to, _)| Trouble::Ask(to)),
            ServerErrorKind::TryAgain => Trouble::TryAgain,
            ServerErrorKind::NoScript => Trouble::NoScript,
            ServerErrorKind::ReadOnly => Trouble::ReadOnly,
            ServerErrorKind::BusyLoading => Trouble::NotNow("LOADING"),
            ServerErrorKind::ClusterDown => Trouble::NotNow("CLUSTERDOWN"),
            ServerErrorKind::MasterDown => Trouble::NotNow("MASTERDOWN"),
            ServerErrorKind::NoPerm => Trouble::Refused("NOPERM"),
            ServerErrorKind::CrossSlot => Trouble::Refused("CROSSSLOT"),
            _ if lacks_right(error.detail().unwrap_or_default()) => Trouble::Refused("NOPERM"),
            _ => Trouble::Refused("ERR"),
        }
    }

    fn from_code(code: &str) -> Self {
        match code {
            "OOM" => Trouble::NotNow("OOM"),
            "BUSY" => Trouble::NotNow("BUSY"),
            "MISCONF" => Trouble::NotNow("MISCONF"),
            "NOREPLICAS" => Trouble::NotNow("NOREPLICAS"),
            "NOAUTH" => Trouble::Refused("NOAUTH"),
            "WRONGPASS" => Trouble::Refused("WRONGPASS"),
            "UNKILLABLE" => Trouble::NotNow("UNKILLABLE"),
            _ => Trouble::Refused("ERR"),
        }
    }

    /// The server's word for it; `TLS` where the two could not agree on a connection.
    fn code(&self) -> Option<&'static str> {
        match self {
            Trouble::Moved { .. } => Some("MOVED"),
            Trouble::Ask(_) => Some("ASK"),
            Trouble::TryAgain => Some("TRYAGAIN"),
            Trouble::NoScript => Some("NOSCRIPT"),
            Trouble::ReadOnly => Some("READONLY"),
            Trouble::Refused("SENTINEL" | "MASTER") => Some("ARRANGEMENT"),
            Trouble::Refused("HELLO") => Some("VERSION"),
            Trouble::NotNow(code) | Trouble::Refused(code) => Some(code),
            Trouble::Down(why) if why.contains("certificate") || why.contains("TLS") => Some("TLS"),
            Trouble::Down(_)
            | Trouble::Overloaded
            | Trouble::Broken
            | Trouble::Silent
            | Trouble::Garbled => None,
        }
    }

    /// Whether it is certain that nothing was counted.
    pub(super) fn not_run(&self) -> bool {
        !matches!(self, Trouble::Broken | Trouble::Silent | Trouble::Garbled)
    }
}

/// What a script that lacks a right fails with has a code that says nothing.
fn lacks_right(text: &str) -> bool {
    let said = [
        "ACL failure in script",
        "can't run this command",
        "can't access",
    ];
    said.iter().any(|said| text.contains(said))
}

impl From<Trouble> for RedisError {
    fn from(trouble: Trouble) -> Self {
        RedisError {
            code: trouble.code(),
            ..trouble.in_words()
        }
    }
}

impl Trouble {
    fn in_words(self) -> RedisError {
        use StoreErrorKind::{Garbled, Misconfigured, Overloaded, Refused, Timeout, Unreachable};
        match self {
            Trouble::Moved { .. } | Trouble::Ask(_) | Trouble::TryAgain => RedisError::new(
                Refused,
                "the cluster kept sending the request elsewhere",
                "is it being rearranged? `redis-cli --cluster check` tells; a cluster wants \
                 redis-cluster://, not redis://",
            ),
            Trouble::NoScript => RedisError::new(
                Refused,
                "the server loses its scripts as fast as they are sent",
                "find who calls SCRIPT FLUSH",
            ),
            Trouble::ReadOnly => RedisError::new(
                Refused,
                "READONLY: this server is a replica",
                "name the master, or use redis-sentinel:// or redis-cluster:// to follow it",
            ),
            Trouble::NotNow("OOM") => RedisError::new(
                Refused,
                "OOM: the server is out of memory and evicts nothing",
                "raise maxmemory",
            ),
            Trouble::NotNow("LOADING") => RedisError::new(
                Refused,
                "LOADING: the server is still reading its data",
                "wait until it is done",
            ),
            Trouble::NotNow("BUSY") => RedisError::new(
                Refused,
                "BUSY: somebody's script does not end",
                "SCRIPT KILL ends it",
            ),
            Trouble::NotNow("MISCONF") => RedisError::new(
                Refused,
                "MISCONF: the server cannot write its snapshot and takes no writes",
                "look at its log and its disk",
            ),
            Trouble::NotNow("CLUSTERDOWN") => RedisError::new(
                Refused,
                "CLUSTERDOWN: some slots have no server",
                "`redis-cli --cluster check` tells which",
            ),
            Trouble::NotNow(code) => RedisError::new(
                Refused,
                format!("{code}: the server refuses for now"),
                "look at its log",
            ),
            Trouble::Refused("NOPERM") => RedisError::new(
                Misconfigured,
                "NOPERM: the user lacks a right",
                "ACL SETUSER name ~tallygate:* +eval +evalsha +time +get +mget +getrange +set \
                 +setrange +del +pexpireat +info +ping, for Sentinel +role, for a cluster \
                 +cluster|slots +asking, to clear a namespace +scan +unlink, to count replicas +zadd \
                 +zremrangebyscore +zcard +pexpire",
            ),
            Trouble::Refused("NOAUTH") => RedisError::new(
                Misconfigured,
                "NOAUTH: the server wants a password",
                "put it into the URL: redis://user:password@host",
            ),
            Trouble::Refused("WRONGPASS") => RedisError::new(
                Misconfigured,
                "WRONGPASS: the user or the password is wrong",
                "mend it in the URL; percent-encode what is special in URLs",
            ),
            Trouble::Refused("CROSSSLOT") => RedisError::new(
                Misconfigured,
                "CROSSSLOT: this is a server of a cluster",
                "use redis-cluster:// instead of redis://",
            ),
            Trouble::Refused("TLS") => RedisError::new(
                Misconfigured,
                "TLS: a certificate or key cannot be used",
                "they have to be PEM texts",
            ),
            Trouble::Refused("HELLO") => RedisError::new(
                Misconfigured,
                "the server does not understand the greeting HELLO 3",
                "upgrade it to Redis 6.2 or Valkey 7.2 or later",
            ),
            Trouble::Refused("SENTINEL") => RedisError::new(
                Misconfigured,
                "this is no sentinel",
                "use redis:// for a single server; sentinels listen on port 26379 unless told \
                 otherwise",
            ),
            Trouble::Refused("MASTER") => RedisError::new(
                Misconfigured,
                "the sentinels know no master of that name",
                "mend the name in the URL: redis-sentinel://host:26379/name",
            ),
            Trouble::Refused("DB") => RedisError::new(
                Misconfigured,
                "the server has no database of that number",
                "mend the number at the end of the URL; 0 is always there",
            ),
            Trouble::Refused(code) => RedisError::new(
                Refused,
                format!("{code}: the server refuses"),
                "`tallygate doctor` tells more",
            ),
            Trouble::Down(why) => RedisError::new(
                Unreachable,
                format!("no connection: {why}"),
                match why {
                    EXPIRED => "renew it on the server",
                    UNTRUSTED => "name the CA that signed it (tallygate: --ca-cert FILE)",
                    OTHER_NAME => "use a name in the URL that the certificate is for",
                    NO_CERTIFICATE => "show one (tallygate: --client-cert FILE --client-key FILE)",
                    NO_TLS => "use the scheme without the second s: redis://",
                    PERHAPS_NO_TLS => {
                        "is the server up, and does it speak TLS? Without, it is redis://"
                    }
                    _ => "is the server up, and are host, port and scheme right?",
                },
            ),
            Trouble::Overloaded => RedisError::new(
                Overloaded,
                "too many requests are waiting for the server",
                "it, or the way to it, is too slow for this traffic",
            ),
            Trouble::Broken => RedisError::new(
                Unreachable,
                "the connection broke",
                "is the server up, and does it want TLS (rediss://)?",
            ),
            Trouble::Silent => RedisError::new(
                Timeout,
                "no answer in time",
                "is the server hung, or the way to it cut?",
            ),
            Trouble::Garbled => RedisError::new(
                Garbled,
                "the answer makes no sense",
                "is that a Redis or Valkey server, 6.2 or later?",
            ),
        }
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        RedisError::from(trouble).into()
    }
}
