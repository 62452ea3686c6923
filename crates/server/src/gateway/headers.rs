//! Removes hop-by-hop headers and adds the `X-Forwarded-*` ones.
//!
//! No `Via` is added: some servers do not compress responses to requests that have one.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    UPGRADE,
};
use http::{Method, Request, StatusCode, Version};

use super::connection_state::ConnectionState;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whether a header is hop-by-hop even if `Connection` does not list it.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "http2-settings"
            | "te"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Whether a header names the original client or request: only a trusted peer's are passed on.
fn is_forwarding_header(name: &HeaderName) -> bool {
    let name = name.as_str();
    // Some proxies pass the authenticated user or the original request line in these.
    name.starts_with("x-forwarded-")
        || name.starts_with("x-original-")
        || matches!(
            name,
            "cf-connecting-ip"
                | "forwarded"
                | "true-client-ip"
                | "x-client-ip"
                | "x-cluster-client-ip"
                | "x-real-ip"
        )
}

/// Removes the matching headers. A request has few: testing each is faster than looking up every
/// name.
fn remove_if(headers: &mut HeaderMap, predicate: fn(&HeaderName) -> bool) {
    while let Some(name) = headers.keys().find(|name| predicate(name)).cloned() {
        headers.remove(name);
    }
}

fn strip(headers: &mut HeaderMap) {
    if let Some(first) = headers.get(CONNECTION) {
        // The usual values name no header.
        if !is_option(first.as_bytes()) || headers.get_all(CONNECTION).iter().nth(1).is_some() {
            for name in listed(headers) {
                headers.remove(name);
            }
        }
        headers.remove(CONNECTION);
    }
    remove_if(headers, is_hop_by_hop);
}

/// Whether an element of `Connection` names no header, or one that is removed anyway.
fn is_option(element: &[u8]) -> bool {
    element.eq_ignore_ascii_case(b"keep-alive") || element.eq_ignore_ascii_case(b"close")
}

/// The headers that `Connection` lists, but never `Host` and `Content-Length`.
fn listed(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter();
    let names = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    names
        .map(<[u8]>::trim_ascii)
        .filter(|name| !is_option(name))
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .filter(|name| ![HOST, CONTENT_LENGTH].contains(name))
        .collect()
}

/// The protocol that a request wants to upgrade to. HTTP/2 is not upgraded to: requests inside
/// would bypass the limits.
pub(super) fn upgrade<B>(request: &Request<B>) -> Option<HeaderValue> {
    let headers = request.headers();
    if request.version() != Version::HTTP_11 || request.method() != Method::GET {
        return None;
    }
    let mut protocols = headers.get_all(UPGRADE).iter();
    let protocol = protocols.next()?;
    let is_listed = listed(headers).contains(&UPGRADE);
    let is_single = protocols.next().is_none();
    let text = protocol.to_str().ok()?;
    let is_http = text
        .split(',')
        .any(|one| one.trim_ascii().to_ascii_lowercase().starts_with("h2"));
    (is_listed && is_single && !is_http).then(|| protocol.clone())
}

/// Turns a client's headers into those that the upstream gets. Forwarding headers of a trusted peer
/// are kept and extended.
pub(super) fn prepare_request(
    headers: &mut HeaderMap,
    upgrade: Option<&HeaderValue>,
    client: &ConnectionState,
    is_trusted: bool,
) {
    let trailers = headers.get_all(TE).iter().any(|te| {
        let mut codings = te.as_bytes().split(|&byte| byte == b',');
        codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    });
    strip(headers);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
    // The gateway sends `100 Continue` itself.
    if headers
        .get(EXPECT)
        .is_some_and(|expects| expects.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    {
        headers.remove(EXPECT);
    }
    if !is_trusted {
        remove_if(headers, is_forwarding_header);
    }
    append(headers, &X_FORWARDED_FOR, &client.address_header);
    if headers.contains_key(FORWARDED)
        && let Ok(element) = HeaderValue::try_from(forwarded(client))
    {
        append(headers, &FORWARDED, &element);
    }
    let scheme = HeaderValue::from_static(client.scheme);
    headers.entry(X_FORWARDED_PROTO).or_insert(scheme);
    if let Some(host) = headers.get(HOST).cloned() {
        headers.entry(X_FORWARDED_HOST).or_insert(host);
    }
}

pub(super) fn prepare_response(status: StatusCode, headers: &mut HeaderMap) {
    let upgrade = match status {
        StatusCode::SWITCHING_PROTOCOLS => headers.get(UPGRADE).cloned(),
        _ => None,
    };
    strip(headers);
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
}

/// Appends an element to a list header and joins its lines.
fn append(headers: &mut HeaderMap, name: &HeaderName, element: &HeaderValue) {
    if !headers.contains_key(name) {
        headers.insert(name, element.clone());
        return;
    }
    let mut list = Vec::new();
    for line in headers.get_all(name) {
        list.extend_from_slice(line.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    if let Ok(list) = HeaderValue::try_from(list) {
        headers.insert(name, list);
    }
}

/// The peer as an element of a `Forwarded` list.
fn forwarded(client: &ConnectionState) -> Vec<u8> {
    let address = client.address_header.as_bytes();
    let mut element = b"for=".to_vec();
    match address.contains(&b':') {
        true => element.extend([b"\"[", address, b"]\""].concat()),
        false => element.extend_from_slice(address),
    }
    element.extend_from_slice(b";proto=");
    element.extend_from_slice(client.scheme.as_bytes());
    element
}
