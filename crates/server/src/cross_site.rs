//! Refuses requests that a page of another site makes in the name of its visitor (CSRF), for the API
//! and admin ports.

use http::{HeaderMap, HeaderValue, Method, header};

use crate::problem::{Code, Problem};

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Refuses a request that is not a read and that a browser attributes to another site. Programs send
/// neither header, and are not refused.
///
/// # Errors
/// The problem to respond with.
pub(crate) fn check(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if matches!(*method, Method::GET | Method::HEAD) || !is_cross_site(headers) {
        return Ok(());
    }
    let detail = "the request comes from a page of another site";
    Err(Problem::new(Code::ForeignOrigin, detail))
}

fn is_cross_site(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    // Old browsers do not send it, nor does any over plain HTTP to another machine.
    let mut origins = headers.get_all(header::ORIGIN).iter();
    sites.any(|site| site != "same-origin" && site != "none")
        || origins.any(|origin| !is_own_origin(origin.as_bytes(), headers))
}

/// Whether an origin is the host that the request is for. Another port is another origin.
fn is_own_origin(origin: &[u8], headers: &HeaderMap) -> bool {
    let schemes = [(&b"http://"[..], &b":80"[..]), (b"https://", b":443")];
    let authority = schemes
        .into_iter()
        .find_map(|(scheme, port)| Some((origin.strip_prefix(scheme)?, port)));
    let mut hosts = headers.get_all(header::HOST).iter();
    match (
        authority,
        hosts.next().map(HeaderValue::as_bytes),
        hosts.next(),
    ) {
        (Some((authority, default_port)), Some(host), None) => {
            let without_port = |authority: &'_ [u8]| {
                authority
                    .strip_suffix(default_port)
                    .unwrap_or(authority)
                    .to_ascii_lowercase()
            };
            without_port(authority) == without_port(host)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_compared_with_its_default_port_and_without_case() {
        for (origin, hosts, own) in [
            ("http://a", &["a"][..], true),
            ("http://a:80", &["A"], true),
            ("https://a", &["a:443"], true),
            ("http://[::1]:8080", &["[::1]:8080"], true),
            ("http://a", &["a:443"], false),
            ("https://a", &["a:80"], false),
            ("http://a:8080", &["a:8090"], false),
            ("http://a.b", &["a"], false),
            ("http://a", &["a", "b"], false),
            ("http://a", &[], false),
            ("http://", &[], false),
            ("null", &["null"], false),
            ("file://a", &["a"], false),
            ("", &[""], false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            for host in hosts {
                headers.append(header::HOST, host.parse().unwrap());
            }
            assert_eq!(
                check(&Method::POST, &headers).is_ok(),
                own,
                "{origin} {hosts:?}"
            );
            assert!(check(&Method::GET, &headers).is_ok());
        }
    }
}
