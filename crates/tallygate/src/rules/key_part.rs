//! The parts of a key and their sources.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ::http::HeaderName;

use super::{RequestFn, Rule, TextError, extract};
use crate::http::{Network, is_secret};
use crate::key::Key;

/// The maximum number of parts of a key, and of sources of a part.
pub const MAX_PARTS: usize = 16;

/// One part of a key: a source, and others to try if it has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub(super) sources: Vec<PartSource>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartSource {
    pub(super) source: Source,
    pub(super) secret: bool,
}

/// The source of a part of a key.
///
/// An empty value counts as missing, and so do conflicting duplicates: which of them the
/// application uses is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The client's address.
    Ip,
    /// A header.
    Header(HeaderName),
    /// A cookie.
    Cookie(String),
    /// A query parameter, decoded.
    Query(String),
    /// A parameter of the rule's path pattern, decoded.
    Path(String),
    /// A claim of a JWT in a header: as JSON, as base64url of JSON, or as the whole token. It is
    /// not verified: the proxy in front must do so, and must remove the header that clients send.
    /// If [proxies are named](crate::http::ClientAddress), it is missing in requests of others.
    Claim {
        /// The header.
        header: HeaderName,
        /// The name of the claim: a string, an integer or a boolean at the top level.
        name: String,
    },
    /// The path pattern of the rule that matches; without paths its gRPC pattern, and `*` without
    /// either.
    Route,
    /// The method in upper case.
    Method,
    /// The host in lower case, without a port.
    Host,
    /// A constant.
    Constant(String),
    /// The result of a function; `None` counts as missing.
    Custom(RequestFn<Option<Key<'static>>>),
}

impl Part {
    /// Returns a part with one source.
    pub fn new(source: Source) -> Self {
        Part {
            sources: vec![PartSource::new(source)],
        }
    }

    /// Adds a source to try if the ones before have no value.
    #[must_use]
    pub fn or(mut self, source: Source) -> Self {
        self.sources.push(PartSource::new(source));
        self
    }

    /// Why no client can have a listed text as the value of the first source: `is empty`.
    pub fn invalid_text(&self, text: &str) -> Option<&'static str> {
        match self.sources().next()? {
            Source::Ip if text.parse::<IpAddr>().is_ok() => None,
            Source::Ip if text.parse::<Network>().is_ok() => Some("is a network, not an address"),
            Source::Ip => Some("is not an address"),
            Source::Constant(constant) if constant == text => None,
            Source::Constant(_) => Some("is not the constant of this part"),
            Source::Header(_)
            | Source::Cookie(_)
            | Source::Query(_)
            | Source::Path(_)
            | Source::Claim { .. }
            | Source::Route
            | Source::Method
            | Source::Host
            | Source::Custom(_) => text.trim_ascii().is_empty().then_some("is empty"),
        }
    }

    /// The sources, in order.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().map(|own| &own.source)
    }
}

impl Rule {
    /// The source of each part of a key that was extracted for this rule, such as the second one of
    /// `{ header: x-api-key, or: ip }`. `None` for a part that had no value.
    pub fn key_sources(&self, key: &Key<'_>) -> Vec<Option<&Source>> {
        extract::key_sources(&self.key, key)
    }
}

impl PartSource {
    fn new(source: Source) -> Self {
        PartSource {
            secret: source.is_secret(),
            source,
        }
    }
}

impl Source {
    /// Whether the value may be a secret: cookies, and names such as `authorization` or
    /// `x-api-key`. Stores keep a hash of it, and it is never shown.
    pub fn is_secret(&self) -> bool {
        match self {
            Source::Cookie(_) => true,
            Source::Header(name) => is_secret(name.as_str()),
            Source::Query(name) | Source::Path(name) => is_secret(name),
            Source::Ip
            | Source::Claim { .. }
            | Source::Route
            | Source::Method
            | Source::Host
            | Source::Constant(_)
            | Source::Custom(_) => false,
        }
    }
}

impl FromStr for Source {
    type Err = TextError;

    /// Parses the sources that are a single word: `ip`, `route`, `method`, `host`.
    fn from_str(text: &str) -> Result<Self, TextError> {
        match text {
            "ip" => Ok(Source::Ip),
            "route" => Ok(Source::Route),
            "method" => Ok(Source::Method),
            "host" => Ok(Source::Host),
            _ => Err(TextError::new(
                text,
                "is not a part of a key",
                "ip, or { header: x-user }",
            )),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Ip => f.write_str("ip"),
            Source::Header(name) => write!(f, "header {name}"),
            Source::Cookie(name) => write!(f, "cookie {name}"),
            Source::Query(name) => write!(f, "query {name}"),
            Source::Path(name) => write!(f, "path {name}"),
            Source::Claim { header, name } => write!(f, "claim {name} of {header}"),
            Source::Route => f.write_str("route"),
            Source::Method => f.write_str("method"),
            Source::Host => f.write_str("host"),
            Source::Constant(text) => write!(f, "constant {text}"),
            Source::Custom(_) => f.write_str("function"),
        }
    }
}
