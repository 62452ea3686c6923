//! Methods, targets and hosts that an upstream may read as others than the rules do. Public for fuzzing.

use std::net::Ipv6Addr;

use http::header::HOST;
use http::{Method, Request, Version};

/// Checks a method.
///
/// # Errors
/// What is wrong, for `CONNECT` and for a method with lower-case letters: methods are
/// case-sensitive, and some servers take `post` for `POST` all the same.
pub fn check_method(method: &Method) -> Result<(), &'static str> {
    if *method == Method::CONNECT {
        return Err("the gateway does not support CONNECT");
    }
    match method
        .as_str()
        .bytes()
        .any(|byte| byte.is_ascii_lowercase())
    {
        true => Err("methods have no lower-case letters"),
        false => Ok(()),
    }
}

/// Checks the form of the target.
///
/// # Errors
/// What is wrong, for a target that is neither a path nor a URL, and for `*` of any method but
/// `OPTIONS`.
pub fn check_target<B>(request: &Request<B>) -> Result<(), &'static str> {
    match request.uri().path() {
        "" => Err("the request's target is neither a path nor a URL"),
        "*" if *request.method() != Method::OPTIONS => Err("only OPTIONS may have the target `*`"),
        _ => Ok(()),
    }
}

/// Checks the host in the target and in `Host`, in every version of HTTP.
///
/// # Errors
/// What is wrong.
pub fn check_host<B>(request: &Request<B>) -> Result<(), &'static str> {
    let authority = request.uri().authority();
    let authority = authority.map(|authority| authority.as_str().as_bytes());
    if authority.is_some_and(|authority| !is_host(authority)) {
        return Err("the host in the request's target is malformed");
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, other) = (hosts.next(), hosts.next());
    if other.is_some() {
        return Err("the request names more than one host");
    }
    let Some(host) = host.map(|host| host.as_bytes()) else {
        return match (authority, request.version()) {
            (None, Version::HTTP_10) => Ok(()),
            (None, _) => Err("the request names no host"),
            (Some(_), Version::HTTP_11) => Err("the request has no Host"),
            (Some(_), _) => Ok(()),
        };
    };
    if !is_host(host) {
        return Err("the Host is malformed");
    }
    match authority {
        Some(authority) if !authority.eq_ignore_ascii_case(host) => {
            Err("the request's target and its Host differ")
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether a text is a name or an address, with or without a port. What else an authority may
/// contain, servers read differently: a user before `@`, a list, a port that is no number.
fn is_host(text: &[u8]) -> bool {
    let (is_name, port) = match text {
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|&byte| byte == b']');
            let (address, port) = rest.split_at(end.unwrap_or(rest.len()));
            let address = str::from_utf8(address).ok();
            let address = address.and_then(|text| text.parse::<Ipv6Addr>().ok());
            (address.is_some(), port.strip_prefix(b"]").unwrap_or(b"]"))
        }
        _ => {
            let in_name =
                |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            let (name, port) = text.split_at(text.iter().take_while(in_name).count());
            // The last label may be empty: the root.
            let mut labels = name
                .strip_suffix(b".")
                .unwrap_or(name)
                .split(|&byte| byte == b'.');
            (labels.all(|label| !label.is_empty()), port)
        }
    };
    let is_port = match port {
        [] => true,
        [b':', port @ ..] => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_name && is_port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_with_or_without_a_port() {
        for host in [
            "a",
            "API.example.com",
            "a.example.",
            "my_service:8080",
            "a-b.example:65535",
            "a:",
            "192.0.2.1:80",
            "[::1]",
            "[2001:db8::1]:80",
            "[::ffff:192.0.2.1]",
        ] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for text in [
            "",
            ":80",
            ".",
            "..:80",
            "a..",
            "a..b",
            ".a",
            "u@a",
            "a:80@x",
            "@",
            "a@",
            "a:80:90",
            "a:x",
            "a:80x",
            "a:123456",
            "a, b",
            "a,b",
            "a b",
            " a",
            "a/b",
            "a\\b",
            "a%40b",
            "a;b",
            "[::1",
            "[]",
            "[a]",
            "[::1]x",
            "[::1]:x",
            "[fe80::1%25eth0]",
            "::1",
            "caf\u{e9}",
            "a\0b",
            "a'b",
        ] {
            assert!(!is_host(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn methods_in_any_lower_case_are_refused() {
        for good in ["GET", "POST", "PROPFIND", "M-SEARCH", "X"] {
            assert!(check_method(&good.parse().unwrap()).is_ok(), "{good}");
        }
        for bad in [
            "get", "Post", "pOST", "propfind", "GETs", "CONNECT", "connect",
        ] {
            assert!(check_method(&bad.parse().unwrap()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_target_is_a_path_a_url_or_an_asterisk() {
        let check = |method: Method, uri: &str| {
            let request = Request::builder().method(method).uri(uri);
            check_target(&request.body(()).unwrap()).is_ok()
        };
        for uri in ["/", "/a?b", "//a/b", "http://a", "http://a?b", "http://a/b"] {
            assert!(check(Method::GET, uri), "{uri}");
        }
        for uri in ["a", "a:80", "user@a", "*"] {
            assert!(!check(Method::POST, uri), "{uri}");
        }
        assert!(check(Method::OPTIONS, "*"));
        assert!(!check(Method::OPTIONS, "a"));
    }

    #[test]
    fn every_version_but_http_1_0_needs_a_host() {
        let check = |version, uri: &str, host: Option<&str>| {
            let mut request = Request::builder().version(version).uri(uri);
            if let Some(host) = host {
                request = request.header(HOST, host);
            }
            check_host(&request.body(()).unwrap())
        };
        for (version, uri, host, is_good) in [
            (Version::HTTP_10, "/", None, true),
            (Version::HTTP_10, "/", Some(""), false),
            (Version::HTTP_10, "http://a/", None, true),
            (Version::HTTP_10, "http://a:80@x/", None, false),
            (Version::HTTP_10, "http://:80/", None, false),
            (Version::HTTP_10, "http://a/", Some("b"), false),
            (Version::HTTP_11, "/", None, false),
            (Version::HTTP_11, "/", Some("a"), true),
            (Version::HTTP_11, "/", Some("u@a"), false),
            (Version::HTTP_11, "http://a/", None, false),
            (Version::HTTP_11, "http://A/", Some("a"), true),
            (Version::HTTP_11, "http://a:80/", Some("a"), false),
            (Version::HTTP_11, "http://u@a/", Some("u@a"), false),
            (Version::HTTP_2, "/", None, false),
            (Version::HTTP_2, "/", Some("a"), true),
            (Version::HTTP_2, "http://a/", None, true),
            (Version::HTTP_2, "http://a/", Some("A"), true),
            (Version::HTTP_2, "http://a/", Some("b"), false),
            (Version::HTTP_2, "http://a:80@x/", None, false),
            (Version::HTTP_2, "http://a:80@x/", Some("a:80@x"), false),
            (Version::HTTP_2, "http://:80/", None, false),
        ] {
            let checked = check(version, uri, host);
            assert_eq!(checked.is_ok(), is_good, "{version:?} {uri} {host:?}");
        }
    }
}
