//! What a key is made of. Knows nothing of limits.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::http::{Network, is_secret};
use http::HeaderName;

use super::TextError;

/// The most parts of a key, and the most sources of a part.
pub const MAX_PARTS: usize = 16;

/// One part of a key: where it is found, and where else if it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    first: Source,
    or: Vec<Source>,
}

/// Where a part of a key is found.
///
/// A value that is empty is not there. One that is there twice and differs is not there either:
/// nobody can tell which of them the application will believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The client's address.
    Ip,
    /// A header.
    Header(HeaderName),
    /// A cookie.
    Cookie(String),
    /// A parameter of the query, decoded.
    Query(String),
    /// A parameter of the rule's path, decoded.
    Path(String),
    /// A claim of a JWT that whoever is in front of us has verified and passes on in a header:
    /// as JSON, as base64url of it, or as the whole token. Nothing is verified here.
    Claim {
        /// Which header.
        header: HeaderName,
        /// Which claim: a text, a whole number, true or false, at the top.
        name: String,
    },
    /// Which of the rule's paths it was, as the rule writes it; without paths its gRPC method,
    /// and `*` if it has none either.
    Route,
    /// The method.
    Method,
    /// The host, in lower case, without a port.
    Host,
    /// Always the same.
    Constant(String),
}

impl Part {
    /// A part found in one place.
    pub fn new(source: Source) -> Self {
        Part {
            first: source,
            or: Vec::new(),
        }
    }

    /// Adds where it is found if it is in none of the places before.
    #[must_use]
    pub fn or(mut self, source: Source) -> Self {
        self.or.push(source);
        self
    }

    /// What is wrong with a text in a list that no client can have in the first place, if so, as it
    /// goes after the text: `is empty`.
    pub fn never_says(&self, text: &str) -> Option<&'static str> {
        match &self.first {
            Source::Ip if text.parse::<IpAddr>().is_ok() => None,
            Source::Ip if text.parse::<Network>().is_ok() => Some("is a network, and no address"),
            Source::Ip => Some("is no address"),
            Source::Constant(always) if always == text => None,
            Source::Constant(_) => Some("is not what this part always is"),
            Source::Header(_)
            | Source::Cookie(_)
            | Source::Query(_)
            | Source::Path(_)
            | Source::Claim { .. }
            | Source::Route
            | Source::Method
            | Source::Host => text.trim_ascii().is_empty().then_some("is empty"),
        }
    }

    /// Where it is found, in order.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        std::iter::once(&self.first).chain(&self.or)
    }
}

impl Source {
    /// Whether what is found there may be a secret: cookies, and names such as `authorization` or
    /// `x-api-key`. Stores keep a hash of it, and nobody is shown it.
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
            | Source::Constant(_) => false,
        }
    }
}

impl FromStr for Source {
    type Err = TextError;

    /// Reads those that are a word: `ip`, `route`, `method`, `host`.
    fn from_str(text: &str) -> Result<Self, TextError> {
        match text {
            "ip" => Ok(Source::Ip),
            "route" => Ok(Source::Route),
            "method" => Ok(Source::Method),
            "host" => Ok(Source::Host),
            _ => Err(TextError::new(
                text,
                "is no part of a key",
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
        }
    }
}
