//! The host and port that a request is sent to.

use ::http::Uri;
use ::http::header::HOST;
use ::http::uri::Authority;

use crate::http::Head;
use crate::key::Key;

/// The host and port of a request as a key, from its target or else its `Host` header. Requests
/// with neither share one key.
pub(super) fn host_key(head: Head<'_>) -> Key<'_> {
    let uri = head.uri();
    let Some(authority) = uri.authority().cloned().or_else(|| host_header(head)) else {
        return Key::from_parts(["", ""]);
    };
    // Case and a trailing dot do not distinguish host names.
    let host = authority.host().to_ascii_lowercase();
    let host = host.strip_suffix('.').unwrap_or(&host);
    let port = authority.port_u16().or_else(|| default_port(uri));
    let port = port.map(|port| port.to_string()).unwrap_or_default();
    Key::from_parts([host, &port])
}

fn host_header(head: Head<'_>) -> Option<Authority> {
    let mut lines = head.headers().get_all(HOST).iter();
    let line = lines.next().filter(|_| lines.next().is_none())?;
    Authority::try_from(line.as_bytes()).ok()
}

fn default_port(uri: &Uri) -> Option<u16> {
    match uri.scheme_str()? {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(uri: &str, hosts: &[&[u8]]) -> Key<'static> {
        let mut request = ::http::Request::new(());
        *request.uri_mut() = uri.parse().unwrap();
        for host in hosts {
            let value = ::http::HeaderValue::from_bytes(host).unwrap();
            request.headers_mut().append(HOST, value);
        }
        host_key(Head::from(&request)).into_owned()
    }

    #[test]
    fn spellings_of_one_host_share_a_key() {
        let same = key("https://api.example.com/a", &[]);
        for uri in [
            "https://API.example.COM/b?c",
            "https://api.example.com:443/",
            "https://user:password@api.example.com/",
            "https://api.example.com./",
        ] {
            assert!(key(uri, &[]) == same, "{uri}");
        }
    }

    #[test]
    fn another_host_or_port_is_another_key() {
        let uris = [
            "https://a.example/",
            "http://a.example/",
            "https://a.example:8443/",
            "https://b.example/",
            "http://[::1]:80/",
            "/",
        ];
        for (i, a) in uris.iter().enumerate() {
            for (j, b) in uris.iter().enumerate() {
                assert_eq!(key(a, &[]) == key(b, &[]), i == j, "{a} and {b}");
            }
        }
    }

    #[test]
    fn a_target_without_a_host_uses_the_host_header() {
        let named = key("/path", &[b"A.example:8080"]);
        assert!(named == key("http://a.example:8080/", &[]));
        assert!(named == key("http://a.example:8080/", &[b"other.example"]));
    }

    #[test]
    fn requests_without_a_host_share_a_key() {
        let none = key("/", &[]);
        let bad: [&[&[u8]]; 5] = [
            &[b""],
            &[b"a b"],
            &[b"\xff\xfe"],
            &[b"http://x"],
            &[b"a", b"b"],
        ];
        for hosts in bad {
            assert!(key("/", hosts) == none, "{hosts:?}");
        }
    }
}
