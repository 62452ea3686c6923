//! Patterns for gRPC methods, which are paths of two segments.

use std::fmt;
use std::str::FromStr;

use super::path::Path;
use super::{Glob, TextError};

const EXAMPLE: &str = "shop.v1.Carts/Checkout or shop.v1.Carts/*";

/// A pattern for gRPC methods: `shop.v1.Carts/Checkout`, `shop.v1.Carts/*`, `shop.v1.*`.
///
/// It matches the path only, so that it applies to gRPC-Web too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcPattern {
    service: Glob,
    method: Glob,
}

impl GrpcPattern {
    /// Whether it matches the path of a method.
    pub fn matches(&self, path: &Path<'_>) -> bool {
        match path.segments() {
            [service, method] => self.service.matches(service) && self.method.matches(method),
            _ => false,
        }
    }

    /// Whether it matches every method that another one matches.
    pub fn covers(&self, other: &GrpcPattern) -> bool {
        self.service.covers(&other.service) && self.method.covers(&other.method)
    }
}

impl FromStr for GrpcPattern {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let wrong = |reason| TextError::new(text, reason, EXAMPLE);
        let (service, method) = text.split_once('/').unwrap_or((text, "*"));
        if service.is_empty() || service == "*" {
            return Err(wrong("names no service"));
        }
        if method.is_empty() {
            return Err(wrong("names no method after the `/`"));
        }
        let is_allowed =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'*');
        if !service.bytes().chain(method.bytes()).all(is_allowed) {
            return Err(wrong("is not a service and method"));
        }
        let glob = |text: &str| {
            text.parse()
                .map_err(|_| wrong("has more than one `*` in a name"))
        };
        Ok(GrpcPattern {
            service: glob(service)?,
            method: glob(method)?,
        })
    }
}

impl fmt::Display for GrpcPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let pattern: GrpcPattern = pattern.parse().unwrap();
        pattern.matches(&Path::new(path))
    }

    #[test]
    fn a_method_is_a_path_of_two_segments() {
        assert!(matches("a.B/C", "/a.B/C"));
        assert!(!matches("a.B/C", "/a.B/D"));
        assert!(!matches("a.B/C", "/a.B/C/x"));
        assert!(matches("a.B", "/a.B/Anything") && matches("a.*", "/a.B/C"));
        assert!(!matches("a.*", "/ab/C") && !matches("a.*", "/a.B"));
        for wrong in ["", "*", "*/C", "/a.B/C", "a.B/", "a/b/c", "a.*.*", "a b/c"] {
            assert!(wrong.parse::<GrpcPattern>().is_err(), "{wrong:?}");
        }
    }
}
