//! Headers on their way through: those for one connection only go no further, and the upstream is
//! told for whom a request is forwarded. Knows nothing of connections.
//!
//! No `Via` is added: servers exist that no longer compress their answers when they see one.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    UPGRADE,
};
use http::{Method, Request, StatusCode, Version};

use super::client::Client;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whether a header is for one connection only, whatever `Connection` says.
fn is_for_one_connection(name: &HeaderName) -> bool {
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

/// Whether a header says for whom a request is forwarded: only a trusted peer's are passed on.
fn is_claim(name: &HeaderName) -> bool {
    let name = name.as_str();
    // Some proxies tell the user they let in, or the request's own line, in headers of these kinds.
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

/// Removes the headers with such names. A request has few headers, and most have none of these: to
/// look at each is faster than to look all of them up.
fn remove(headers: &mut HeaderMap, such: fn(&HeaderName) -> bool) {
    while let Some(name) = headers.keys().find(|name| such(name)).cloned() {
        headers.remove(name);
    }
}

/// Removes what is for one connection only.
pub(super) fn strip(headers: &mut HeaderMap) {
    if let Some(first) = headers.get(CONNECTION) {
        // Nearly all say one of these and nothing else.
        if !is_no_name(first.as_bytes()) || headers.get_all(CONNECTION).iter().nth(1).is_some() {
            for name in listed(headers) {
                headers.remove(name);
            }
        }
        headers.remove(CONNECTION);
    }
    remove(headers, is_for_one_connection);
}

/// Whether what `Connection` says is no header's name, or one that is removed anyway.
fn is_no_name(said: &[u8]) -> bool {
    said.eq_ignore_ascii_case(b"keep-alive") || said.eq_ignore_ascii_case(b"close")
}

/// The headers that `Connection` says are for one connection only. Whom a request is for and how
/// long its body is are never.
fn listed(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter();
    let names = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    names
        .map(<[u8]>::trim_ascii)
        .filter(|name| !is_no_name(name))
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .filter(|name| ![HOST, CONTENT_LENGTH].contains(name))
        .collect()
}

/// The protocol that a request asks to go on with; none if it asks for none, or for HTTP/2, which
/// would lead around the limits.
pub(super) fn upgrade<B>(request: &Request<B>) -> Option<HeaderValue> {
    let headers = request.headers();
    if request.version() != Version::HTTP_11 || request.method() != Method::GET {
        return None;
    }
    let mut protocols = headers.get_all(UPGRADE).iter();
    let protocol = protocols.next()?;
    let asks = listed(headers).contains(&UPGRADE);
    let alone = protocols.next().is_none();
    let text = protocol.to_str().ok()?;
    let is_http = text
        .split(',')
        .any(|one| one.trim_ascii().to_ascii_lowercase().starts_with("h2"));
    (asks && alone && !is_http).then(|| protocol.clone())
}

/// Makes a request's headers those that the upstream gets; what a trusted peer says of whom it
/// forwards is kept.
pub(super) fn forward(
    headers: &mut HeaderMap,
    upgrade: Option<&HeaderValue>,
    client: &Client,
    trusted: bool,
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
    // The gateway says `100 Continue` itself, once the body is wanted.
    if headers
        .get(EXPECT)
        .is_some_and(|expects| expects.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    {
        headers.remove(EXPECT);
    }
    if !trusted {
        remove(headers, is_claim);
        headers.insert(X_FORWARDED_FOR, client.from.clone());
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(client.by));
        if let Some(host) = headers.get(HOST).cloned() {
            headers.insert(X_FORWARDED_HOST, host);
        }
        return;
    }
    append(headers, &X_FORWARDED_FOR, &client.from);
    if headers.contains_key(FORWARDED)
        && let Ok(element) = HeaderValue::try_from(forwarded(client))
    {
        append(headers, &FORWARDED, &element);
    }
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(client.by));
    }
    if !headers.contains_key(X_FORWARDED_HOST)
        && let Some(host) = headers.get(HOST).cloned()
    {
        headers.insert(X_FORWARDED_HOST, host);
    }
}

/// Makes an answer's headers those that the client gets.
pub(super) fn backward(status: StatusCode, headers: &mut HeaderMap) {
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

/// Adds an element to a list, in one line whatever the number of lines before.
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
fn forwarded(client: &Client) -> Vec<u8> {
    let from = client.from.as_bytes();
    let mut element = b"for=".to_vec();
    match from.contains(&b':') {
        true => element.extend([b"\"[", from, b"]\""].concat()),
        false => element.extend_from_slice(from),
    }
    element.extend_from_slice(b";proto=");
    element.extend_from_slice(client.by.as_bytes());
    element
}
