//! Requests that are refused before any limit is asked: those that two servers could read in two
//! ways. Knows what hyper has refused already; knows nothing of upstreams.

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{Method, Request, Version};

use super::Limits;
use super::error::Problem;

/// Refuses what has more than one meaning, or none.
///
/// # Errors
/// With what to answer.
pub(super) fn validate<B>(
    request: &Request<B>,
    two_lengths: bool,
    limits: &Limits,
) -> Result<(), Problem> {
    if request.method() == Method::CONNECT {
        return Err(Problem::Method);
    }
    host(request)?;
    let headers = request.headers();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let chunked = coding
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked");
        if !chunked || codings.next().is_some() {
            return bad("the only transfer coding that is understood is one `chunked`");
        }
        if two_lengths || headers.contains_key(CONTENT_LENGTH) {
            return bad("the request has both a length and a transfer coding");
        }
    }
    if headers.len() > limits.headers {
        // HTTP/2 has no such bound of its own.
        return Err(Problem::HeadTooLarge);
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else {
        return Ok(());
    };
    if lengths.next().is_some() {
        return bad("the request has more than one length");
    }
    let length = length.to_str().ok().and_then(|text| text.parse().ok());
    match length {
        Some(0..) if length > Some(limits.body_bytes) => Err(Problem::BodyTooLarge),
        Some(0..) => Ok(()),
        None => bad("the request's length is not a number"),
    }
}

/// The request has to be for one host, said in one way.
fn host<B>(request: &Request<B>) -> Result<(), Problem> {
    let named = request.uri().authority();
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, other) = (hosts.next(), hosts.next());
    if other.is_some() {
        return bad("the request names more than one host");
    }
    let Some(host) = host else {
        return match (named, request.version()) {
            (None, Version::HTTP_11) => bad("the request names no host"),
            (Some(_), Version::HTTP_11) => bad("the request has no Host"),
            (None | Some(_), _) => Ok(()),
        };
    };
    if named.is_none() && is_plain(host.as_bytes()) {
        return Ok(());
    }
    let is_host = |host: &Authority| !host.as_str().contains('@') && !host.host().is_empty();
    let Some(host) = Authority::try_from(host.as_bytes()).ok().filter(is_host) else {
        return bad("the Host is none");
    };
    match named {
        Some(named) if *named != host => bad("the request's target and its Host differ"),
        Some(_) | None => Ok(()),
    }
}

/// Whether a host is a name or an address of version 4, with or without a port: most are, and need
/// not be taken apart.
fn is_plain(host: &[u8]) -> bool {
    let name = host.iter();
    let name = name.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
    let (name, port) = host.split_at(name.count());
    let port = match port {
        [] => true,
        [b':', port @ ..] => matches!(port.len(), 1..=5) && port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    !name.is_empty() && port
}

fn bad(detail: &'static str) -> Result<(), Problem> {
    Err(Problem::BadRequest(detail))
}
