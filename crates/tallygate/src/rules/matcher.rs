//! Which requests a rule applies to.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use ::http::{HeaderName, Method};

use super::request_view::RequestView;
use super::{Glob, GrpcPattern, Path, PathPattern, RequestFn, TextError};

/// Which requests a rule applies to. Every non-empty field has to match; a list matches if one of
/// its elements does. The default matches every request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matcher {
    /// The methods, compared without case: some servers take `post` for `POST`. `GET` does not
    /// include `HEAD`.
    pub methods: Vec<Method>,
    /// The hosts. A request with several, in its target and its headers, matches by any of them.
    pub hosts: Vec<HostPattern>,
    /// The paths.
    pub paths: Vec<PathPattern>,
    /// Conditions on headers; all of them have to hold.
    pub headers: Vec<HeaderMatcher>,
    /// The gRPC methods.
    pub grpc: Vec<GrpcPattern>,
    /// A function.
    pub custom: Option<RequestFn<bool>>,
}

/// A host, such as `example.com`, or its subdomains: `*.example.com`. Ports are ignored, and so is
/// case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern(Glob);

/// A condition on a header.
#[derive(Clone, Debug, PartialEq)]
pub struct HeaderMatcher {
    /// The name of the header.
    pub name: HeaderName,
    /// The condition.
    pub condition: HeaderCondition,
}

/// A condition on the values of a header.
#[derive(Clone, Debug, PartialEq)]
pub enum HeaderCondition {
    /// There is a value.
    Present,
    /// There is no value.
    Absent,
    /// A value matches one of these.
    Matches(Vec<Glob>),
}

/// The pattern that the path of a request matches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Route<'r> {
    Path {
        pattern: &'r PathPattern,
        /// The index of the path variant that matches.
        variant: usize,
    },
    Grpc(&'r GrpcPattern),
    /// The rule applies to every path.
    Any,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Matched<'r> {
    pub(super) route: Route<'r>,
    /// Whether it matches with every host and every path variant.
    pub(super) certain: bool,
}

/// The first condition that a request does not match.
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
    /// The function.
    Custom,
}

impl Matcher {
    /// Whether it matches every request.
    pub fn is_all(&self) -> bool {
        *self == Matcher::default()
    }

    /// Whether every path pattern has a parameter, and there is one.
    pub(crate) fn has_parameter(&self, name: &str) -> bool {
        let has = |path: &PathPattern| path.parameter_names().any(|own| own == name);
        !self.paths.is_empty() && self.paths.iter().all(has)
    }

    /// Whether it matches every request that another one matches.
    pub fn covers(&self, narrow: &Matcher) -> bool {
        covers_all(&self.methods, &narrow.methods, same_method)
            && covers_all(&self.hosts, &narrow.hosts, |a, b| a.covers(b))
            && covers_all(&self.paths, &narrow.paths, |a, b| a.covers(b))
            && covers_all(&self.grpc, &narrow.grpc, |a, b| a.covers(b))
            && self.headers.iter().all(|wide| {
                let mut narrow = narrow.headers.iter();
                narrow.any(|narrow| wide.covers(narrow))
            })
            && (self.custom.is_none() || self.custom == narrow.custom)
    }

    pub(super) fn check(&self, view: &RequestView<'_>) -> Result<Matched<'_>, Mismatch> {
        let method = view.head.method();
        let matches = |own: &Method| same_method(own, method);
        if !self.methods.is_empty() && !self.methods.iter().any(matches) {
            return Err(Mismatch::Method);
        }
        let mut route = Route::Any;
        if !self.grpc.is_empty() {
            let path = view.paths().standard();
            let mut found = self.grpc.iter().filter(|grpc| grpc.matches(path));
            route = Route::Grpc(found.next().ok_or(Mismatch::Grpc)?);
        }
        let mut certain = true;
        if !self.paths.is_empty() {
            // Which variant the application reads is unknown: any of them matches.
            let find = |path: &Path<'_>| self.paths.iter().find(|pattern| pattern.matches(path));
            let mut variants = view.paths().all().iter().enumerate();
            let first = variants.find_map(|(variant, path)| Some((variant, find(path)?)));
            let (variant, pattern) = first.ok_or(Mismatch::Path)?;
            route = Route::Path { pattern, variant };
            certain = variant == 0 && variants.all(|(_, path)| find(path).is_some());
        }
        if !self.hosts.is_empty() {
            let matches = |name: &Cow<'_, [u8]>| self.hosts.iter().any(|host| host.0.matches(name));
            if !view.hosts().iter().any(matches) {
                return Err(Mismatch::Host);
            }
            certain &= view.hosts().iter().all(matches);
        }
        let mut headers = self.headers.iter();
        if let Some(header) = headers.find(|header| !header.matches(view)) {
            return Err(Mismatch::Header(header.name.clone()));
        }
        match &self.custom {
            Some(custom) if !custom.call(view.head) => Err(Mismatch::Custom),
            Some(_) | None => Ok(Matched { route, certain }),
        }
    }
}

/// Whether some server may take one method for the other.
pub(super) fn same_method(a: &Method, b: &Method) -> bool {
    a == b || a.as_str().eq_ignore_ascii_case(b.as_str())
}

/// Whether one list of alternatives covers another; an empty list matches everything.
fn covers_all<T>(wide: &[T], narrow: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
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

impl HeaderMatcher {
    /// Whether it holds for every request that another one holds for.
    fn covers(&self, other: &HeaderMatcher) -> bool {
        self.name == other.name
            && match (&self.condition, &other.condition) {
                (HeaderCondition::Matches(wide), HeaderCondition::Matches(narrow)) => {
                    covers_all(wide, narrow, Glob::covers)
                }
                (HeaderCondition::Present, HeaderCondition::Matches(_)) => true,
                (wide, narrow) => wide == narrow,
            }
    }

    fn matches(&self, view: &RequestView<'_>) -> bool {
        let mut values = view.head.headers().get_all(&self.name).iter();
        match &self.condition {
            HeaderCondition::Present => values.next().is_some(),
            HeaderCondition::Absent => values.next().is_none(),
            HeaderCondition::Matches(globs) => {
                // HTTP/2 may carry white space around a value, which HTTP/1 does not.
                values.any(|value| {
                    let value = value.as_bytes().trim_ascii();
                    globs.iter().any(|glob| glob.matches(value))
                })
            }
        }
    }
}

impl HostPattern {
    /// Whether it matches a host, a name without a port.
    pub fn matches(&self, host: &str) -> bool {
        self.0.matches(host.to_ascii_lowercase().as_bytes())
    }

    /// Whether it matches every host that another one matches.
    pub fn covers(&self, other: &HostPattern) -> bool {
        self.0.covers(&other.0)
    }
}

impl FromStr for HostPattern {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        const EXAMPLE: &str = "api.example.com or *.example.com";
        let wrong = |reason| Err(TextError::new(text, reason, EXAMPLE));
        let (subdomains, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        // The colons of an IPv6 address are inside brackets.
        let address = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .filter(|_| !subdomains);
        let is_address = address.is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if name.is_empty() || name.starts_with('.') {
            return wrong("names no host");
        }
        if name.contains('*') {
            return wrong("has a `*` elsewhere than as `*.` at its start");
        }
        if !is_address && name.contains(':') {
            return wrong("has a port or scheme, which is not part of a host");
        }
        if !is_address && !name.bytes().all(fits) {
            return wrong("has characters that no host has (write others as punycode)");
        }
        if name.len() > 253 {
            return wrong("is longer than 253 characters");
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        Ok(HostPattern(match subdomains {
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
    fn a_host_pattern_is_a_name_without_port_or_scheme() {
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
        let subdomains: HostPattern = "*.example.com".parse().unwrap();
        assert!(subdomains.matches("A.example.com") && !subdomains.matches("example.com"));
        assert!(subdomains.covers(&"a.example.com".parse().unwrap()));
        assert!(subdomains.covers(&"*.a.example.com".parse().unwrap()));
        assert!(!subdomains.covers(&"example.com".parse().unwrap()));
    }
}
