//! Which requests a rule is about. Knows nothing of limits.

use std::fmt;
use std::str::FromStr;

use http::{HeaderName, Method};

use super::{Glob, GrpcPattern, PathPattern, TextError};

/// Which requests a rule is about: all that is given must hold, and of a list any one; nothing
/// given is every request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Match {
    /// The methods. `GET` does not mean `HEAD`.
    pub methods: Vec<Method>,
    /// The hosts.
    pub hosts: Vec<HostPattern>,
    /// The paths.
    pub paths: Vec<PathPattern>,
    /// What the headers have to be; each of them must hold.
    pub headers: Vec<HeaderMatch>,
    /// The gRPC methods.
    pub grpc: Vec<GrpcPattern>,
}

/// A host, such as `example.com`, or all below one: `*.example.com`. The port does not count, nor
/// does upper or lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern(Glob);

/// What a header has to be.
#[derive(Clone, Debug, PartialEq)]
pub struct HeaderMatch {
    /// Which header.
    pub name: HeaderName,
    /// What it has to be.
    pub test: HeaderTest,
}

/// What a header has to be; of several with one name, any.
#[derive(Clone, Debug, PartialEq)]
pub enum HeaderTest {
    /// There.
    Present,
    /// Not there.
    Absent,
    /// Like any of these.
    Like(Vec<Glob>),
}

impl HostPattern {
    /// Whether a host is like it: a name without a port.
    pub fn matches(&self, host: &str) -> bool {
        self.0.matches(host.to_ascii_lowercase().as_bytes())
    }

    /// Whether every host that is like another is like it.
    pub fn covers(&self, other: &HostPattern) -> bool {
        self.0.covers(&other.0)
    }
}

impl FromStr for HostPattern {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let wrong = |why| {
            Err(TextError::new(
                text,
                why,
                "api.example.com or *.example.com",
            ))
        };
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        // An IPv6 address has colons of its own, within brackets.
        let bare = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        let fits = |byte: u8| match bare {
            Some(_) => byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'),
            None => byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'),
        };
        if name.is_empty() || name.starts_with('.') {
            return wrong("names no host");
        }
        if name.contains('*') {
            return wrong("has a `*` elsewhere than as `*.` at its start");
        }
        if bare.is_none() && name.contains(':') {
            return wrong("has a port or scheme, which is no part of a host");
        }
        if !bare.unwrap_or(name).bytes().all(fits) {
            return wrong("has characters that no host has (write others as punycode)");
        }
        if name.len() > 253 {
            return wrong("is longer than 253 characters");
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        Ok(HostPattern(match below {
            true => Glob::around([], format!(".{name}")),
            false => Glob::literal(name),
        }))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
