//! Removes hop-by-hop headers and adds the `X-Forwarded-*` ones.
//!
//! No `Via` is added: some servers do not compress responses to requests that have one.

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName,
    HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Request, StatusCode, Version};

use super::connection_state::ConnectionState;
use super::settings::{RuleHeaders, Settings};

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

/// Whether a header says who the client is or what it asked for at first, in any spelling: only a
/// trusted peer's are passed on.
fn is_forwarding_header(name: &HeaderName) -> bool {
    let name = name.as_str();
    // All start with one of these letters, and most headers with another one.
    matches!(
        name.as_bytes().first(),
        Some(b'c' | b'd' | b'f' | b'p' | b't' | b'w' | b'x')
    ) && (is_forwarding_name(name) || is_respelled(name))
}

/// Whether a header is spelled differently and the same as one of them to CGI and WSGI, which make
/// one variable of `X-Real-IP` and `X_Real_IP`. No proxy writes such a header.
fn is_respelled(name: &str) -> bool {
    !is_plain(name) && is_forwarding_name(&name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"))
}

/// Whether CGI and WSGI tell a header from all others.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    name.bytes().all(is_plain)
}

fn is_forwarding_name(name: &str) -> bool {
    // Some proxies pass the authenticated user or the original request line in these.
    let prefixes = [
        "forwarded-",
        "x-envoy-original-",
        "x-forwarded-",
        "x-original-",
        "x-rewrite-",
    ];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
        || matches!(
            name,
            "cf-connecting-ip"
                | "cf-connecting-ipv6"
                | "cf-pseudo-ipv4"
                | "client-cert"
                | "client-cert-chain"
                | "client-ip"
                | "do-connecting-ip"
                | "fastly-client-ip"
                | "fly-client-ip"
                | "forwarded"
                | "proxy-client-ip"
                | "true-client-ip"
                | "wl-proxy-client-ip"
                | "x-appengine-user-ip"
                | "x-azure-clientip"
                | "x-azure-socketip"
                | "x-client-ip"
                | "x-cluster-client-ip"
                | "x-envoy-external-address"
                | "x-envoy-internal"
                | "x-forwarded"
                | "x-originating-ip"
                | "x-real-ip"
                | "x-remote-addr"
                | "x-remote-ip"
        )
}

/// Removes the matching headers. A request has few: testing each is faster than looking up every
/// name.
fn remove_if(headers: &mut HeaderMap, predicate: impl Fn(&HeaderName) -> bool) {
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

/// The protocol of upgrades that are forwarded.
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// Whether a request wants to become a WebSocket. Other protocols are not upgraded to: requests
/// inside HTTP/2 or TLS would bypass the limits.
pub(super) fn is_websocket<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    headers.contains_key(UPGRADE)
        && request.version() == Version::HTTP_11
        && request.method() == Method::GET
        && listed(headers).contains(&UPGRADE)
        && names_websocket(headers)
}

/// Whether `Upgrade` names this protocol and no other.
pub(super) fn names_websocket(headers: &HeaderMap) -> bool {
    let mut protocols = headers.get_all(UPGRADE).iter();
    let first = protocols.next();
    first.is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
        && protocols.next().is_none()
}

/// Removes from trailers, which some servers merge with the headers, what frames or routes a request,
/// names its client or is read by rules. Proxies write none of these as a trailer.
pub(super) fn prepare_trailers(trailers: &mut HeaderMap, rules: &RuleHeaders) {
    strip(trailers);
    remove_if(trailers, |name| {
        [HOST, CONTENT_LENGTH].contains(name)
            || is_forwarding_header(name)
            || rules.contains_in_any_spelling(name)
    });
}

/// Turns a client's headers into those that the upstream gets. Forwarding headers of a trusted peer
/// are kept and extended.
pub(super) fn prepare_request(
    headers: &mut HeaderMap,
    is_websocket: bool,
    client: &ConnectionState,
    settings: &Settings,
) {
    let trailers = headers.get_all(TE).iter().any(|te| {
        let mut codings = te.as_bytes().split(|&byte| byte == b',');
        codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    });
    strip(headers);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if is_websocket {
        insert_upgrade(headers);
    }
    // The gateway sends `100 Continue` itself.
    if headers
        .get(EXPECT)
        .is_some_and(|expects| expects.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    {
        headers.remove(EXPECT);
    }
    let is_trusted = settings.trusted.contains(client.address);
    remove_if(headers, |name| {
        let is_forwarding = match is_trusted {
            true => is_respelled(name.as_str()),
            false => is_forwarding_header(name),
        };
        is_forwarding || (!is_plain(name.as_str()) && settings.rule_headers.is_respelled(name))
    });
    join_cookies(headers);
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

/// Joins cookies to one line. HTTP/2 clients send a line for each, which servers of HTTP/1 would join by
/// commas, or of which they would use one.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let lines: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    let joined = HeaderValue::try_from(lines.join(&b"; "[..]));
    headers.insert(COOKIE, joined.expect("valid values stay valid when joined"));
}

pub(super) fn prepare_response(status: StatusCode, headers: &mut HeaderMap) {
    strip(headers);
    if status == StatusCode::SWITCHING_PROTOCOLS {
        insert_upgrade(headers);
    }
}

fn insert_upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

/// Gives a body its framing where hyper would send none, because methods like this one have none
/// mostly. Some servers ignore such a body and would take it for the next request: nothing follows it
/// on its connection.
pub(super) fn frame_unexpected_body(headers: &mut HeaderMap) {
    if !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
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
