//! Which requests a rule is about. Knows nothing of limits.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use http::{HeaderName, Method};

use super::request_view::Asked;
use super::{Glob, GrpcPattern, Path, PathPattern, TextError};

/// Which requests a rule is about: all that is given must hold, and of a list any one; nothing
/// given is every request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Match {
    /// The methods. `GET` does not mean `HEAD`.
    pub methods: Vec<Method>,
    /// The hosts. A request that names several, in its target and its headers, is for each.
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

/// What a request's path was like.
#[derive(Clone, Copy, Debug)]
pub(super) enum Route<'r> {
    Path {
        pattern: &'r PathPattern,
        /// Which reading of the path is like it.
        reading: usize,
    },
    Grpc(&'r GrpcPattern),
    /// The rule is about every path.
    Any,
}

/// How a request fits a match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit<'r> {
    pub(super) route: Route<'r>,
    /// Whether it does whichever of its hosts the application believes, and however it reads the
    /// path.
    pub(super) sure: bool,
}

/// The first thing that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The method.
    Method,
    /// The host.
    Host,
    /// The path.
    Path,
    /// This header.
    Header(HeaderName),
    /// The gRPC method.
    Grpc,
}

impl Match {
    /// Whether it is every request.
    pub fn is_all(&self) -> bool {
        *self == Match::default()
    }

    /// Whether every request that another match is about is one that it is about.
    pub fn covers(&self, narrow: &Match) -> bool {
        all(&self.methods, &narrow.methods, |a, b| a == b)
            && all(&self.hosts, &narrow.hosts, |a, b| a.covers(b))
            && all(&self.paths, &narrow.paths, |a, b| a.covers(b))
            && all(&self.grpc, &narrow.grpc, |a, b| a.covers(b))
            && self.headers.iter().all(|wide| {
                let mut narrow = narrow.headers.iter();
                narrow.any(|narrow| wide.follows(narrow))
            })
    }

    pub(super) fn fit(&self, asked: &Asked<'_>) -> Result<Fit<'_>, Mismatch> {
        if !self.methods.is_empty() && !self.methods.contains(asked.method()) {
            return Err(Mismatch::Method);
        }
        let mut route = Route::Any;
        if !self.grpc.is_empty() {
            let path = asked.paths().plain();
            let mut like = self.grpc.iter().filter(|grpc| grpc.matches(path));
            route = Route::Grpc(like.next().ok_or(Mismatch::Grpc)?);
        }
        let mut sure = true;
        if !self.paths.is_empty() {
            // Nobody knows how the application reads it, so any reading will do.
            let readings = asked.paths().all();
            let like = |path: &Path<'_>| self.paths.iter().find(|pattern| pattern.matches(path));
            let mut found = readings.iter().enumerate();
            let first = found.find_map(|(reading, path)| Some((reading, like(path)?)));
            let (reading, pattern) = first.ok_or(Mismatch::Path)?;
            route = Route::Path { pattern, reading };
            sure = reading == 0 && found.all(|(_, path)| like(path).is_some());
        }
        if !self.hosts.is_empty() {
            let like = |name: &Cow<'_, [u8]>| self.hosts.iter().any(|host| host.0.matches(name));
            // Who names several hosts is taken for a client of each.
            if !asked.hosts().iter().any(like) {
                return Err(Mismatch::Host);
            }
            sure &= asked.hosts().iter().all(like);
        }
        let fails = |header: &&HeaderMatch| !header.holds(asked);
        match self.headers.iter().find(fails) {
            Some(header) => Err(Mismatch::Header(header.name.clone())),
            None => Ok(Fit { route, sure }),
        }
    }
}

/// Whether of two lists of alternatives, of which an empty one is everything, the first has all.
fn all<T>(wide: &[T], narrow: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
    let covered = |narrow: &T| wide.iter().any(|wide| covers(wide, narrow));
    wide.is_empty() || !narrow.is_empty() && narrow.iter().all(covered)
}

impl<'r> Route<'r> {
    pub(super) fn text(self) -> Cow<'r, [u8]> {
        match self {
            Route::Path { pattern, .. } => Cow::Borrowed(pattern.as_str().as_bytes()),
            Route::Grpc(pattern) => Cow::Owned(pattern.to_string().into_bytes()),
            Route::Any => Cow::Borrowed(b"*"),
        }
    }
}

impl HeaderMatch {
    /// Whether it holds wherever another does.
    fn follows(&self, other: &HeaderMatch) -> bool {
        self.name == other.name
            && match (&self.test, &other.test) {
                (HeaderTest::Absent, HeaderTest::Absent)
                | (HeaderTest::Present, HeaderTest::Present | HeaderTest::Like(_)) => true,
                (HeaderTest::Like(wide), HeaderTest::Like(narrow)) => {
                    all(wide, narrow, Glob::covers)
                }
                (HeaderTest::Like(_), HeaderTest::Present)
                | (HeaderTest::Present | HeaderTest::Like(_), HeaderTest::Absent)
                | (HeaderTest::Absent, HeaderTest::Present | HeaderTest::Like(_)) => false,
            }
    }

    fn holds(&self, asked: &Asked<'_>) -> bool {
        let mut values = asked.headers().get_all(&self.name).iter();
        match &self.test {
            HeaderTest::Present => values.next().is_some(),
            HeaderTest::Absent => values.next().is_none(),
            HeaderTest::Like(globs) => {
                values.any(|value| globs.iter().any(|glob| glob.matches(value.as_bytes())))
            }
        }
    }
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
        let address = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .filter(|_| !below);
        let is_address = address.is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if name.is_empty() || name.starts_with('.') {
            return wrong("names no host");
        }
        if name.contains('*') {
            return wrong("has a `*` elsewhere than as `*.` at its start");
        }
        if !is_address && name.contains(':') {
            return wrong("has a port or scheme, which is no part of a host");
        }
        if !is_address && !name.bytes().all(fits) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_and_nothing_else() {
        for (text, shown) in [
            ("example.com", "example.com"),
            ("Example.COM", "example.com"),
            ("*.Example.com", "*.example.com"),
            ("example.com.", "example.com"),
            ("localhost", "localhost"),
            ("192.0.2.1", "192.0.2.1"),
            ("[2001:db8::1]", "[2001:db8::1]"),
        ] {
            let host: HostPattern = text.parse().unwrap();
            assert_eq!(host.to_string(), shown);
        }
        for wrong in [
            "",
            "*",
            "*.",
            ".",
            "a.*.com",
            "*a.com",
            "**.com",
            "a:80",
            "http://a",
            "a/b",
            "é.com",
            "[::1]:80",
            "[x]",
            "[]",
            "a b",
            ".com",
            &"a".repeat(254),
        ] {
            assert!(wrong.parse::<HostPattern>().is_err(), "{wrong}");
        }
        let below: HostPattern = "*.example.com".parse().unwrap();
        assert!(below.matches("A.example.com") && !below.matches("example.com"));
        assert!(below.covers(&"a.example.com".parse().unwrap()));
        assert!(below.covers(&"*.a.example.com".parse().unwrap()));
        assert!(!below.covers(&"example.com".parse().unwrap()));
    }
}
