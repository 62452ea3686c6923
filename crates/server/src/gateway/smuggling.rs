//! Rejects requests that two servers could interpret differently (request smuggling), beyond those
//! that hyper rejects itself.

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{Method, Request, Version};

use super::Limits;
use super::error::GatewayError;

pub(super) fn validate<B>(
    request: &Request<B>,
    conflicting_framing: bool,
    limits: &Limits,
) -> Result<(), GatewayError> {
    if request.method() == Method::CONNECT {
        return Err(GatewayError::MethodNotSupported);
    }
    validate_host(request)?;
    let headers = request.headers();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let chunked = coding
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked");
        if !chunked || codings.next().is_some() {
            return bad("the only supported transfer coding is a single `chunked`");
        }
        if conflicting_framing || headers.contains_key(CONTENT_LENGTH) {
            return bad("the request has both a length and a transfer coding");
        }
    }
    if headers.len() > limits.headers {
        // HTTP/2 has no such bound of its own.
        return Err(GatewayError::HeadTooLarge);
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
        Some(0..) if length > Some(limits.body_bytes) => Err(GatewayError::BodyTooLarge),
        Some(0..) => Ok(()),
        None => bad("the request's length is not a number"),
    }
}

fn validate_host<B>(request: &Request<B>) -> Result<(), GatewayError> {
    let authority = request.uri().authority();
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, other) = (hosts.next(), hosts.next());
    if other.is_some() {
        return bad("the request names more than one host");
    }
    let Some(host) = host else {
        return match (authority, request.version()) {
            (None, Version::HTTP_11) => bad("the request names no host"),
            (Some(_), Version::HTTP_11) => bad("the request has no Host"),
            (None | Some(_), _) => Ok(()),
        };
    };
    if authority.is_none() && is_plain(host.as_bytes()) {
        return Ok(());
    }
    let is_host = |host: &Authority| !host.as_str().contains('@') && !host.host().is_empty();
    let Some(host) = Authority::try_from(host.as_bytes()).ok().filter(is_host) else {
        return bad("the Host is malformed");
    };
    match authority {
        Some(authority) if *authority != host => bad("the request's target and its Host differ"),
        Some(_) | None => Ok(()),
    }
}

/// Whether a host is a name or an IPv4 address, with or without a port: most are, and need no
/// parsing.
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

fn bad(detail: &'static str) -> Result<(), GatewayError> {
    Err(GatewayError::BadRequest(detail))
}

const LENGTH: &[u8] = b"content-length";
const CODING: &[u8] = b"transfer-encoding";

/// Finds heads with both `Content-Length` and `Transfer-Encoding` in the bytes of an HTTP/1
/// connection, in chunks of any size.
///
/// hyper drops `Content-Length` in that case. That is one valid reading, but a proxy in front may
/// have used the other one, so such a request is rejected.
///
/// The scanner does not tell heads from bodies. A body that looks like such a head is mistaken for
/// one, which only affects chunked requests that follow on the same connection.
#[derive(Debug, Default)]
pub(super) struct FramingScanner {
    /// The start of a line, as far as it can be one of the two names.
    name: [u8; CODING.len()],
    len: usize,
    skips_line: bool,
    has_length: bool,
    has_coding: bool,
}

impl FramingScanner {
    /// Whether these bytes complete a head with both headers.
    pub(super) fn finds_conflict(&mut self, mut bytes: &[u8]) -> bool {
        let mut found = false;
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.skips_line {
                let Some(end) = memchr::memchr(b'\n', bytes) else {
                    return found;
                };
                bytes = &bytes[end + 1..];
                (self.len, self.skips_line) = (0, false);
                continue;
            }
            bytes = rest;
            match byte {
                b'\n' => {
                    if self.len == 0 {
                        (self.has_length, self.has_coding) = (false, false);
                    }
                    self.len = 0;
                }
                // Part of a line end, or of a line that hyper rejects.
                b'\r' => {}
                b':' => {
                    let name = &self.name[..self.len];
                    self.has_length |= name.eq_ignore_ascii_case(LENGTH);
                    self.has_coding |= name.eq_ignore_ascii_case(CODING);
                    found |= self.has_length && self.has_coding;
                    self.skips_line = true;
                }
                _ if self.len == self.name.len() => self.skips_line = true,
                // Neither of the two: the first letter is enough for most lines.
                _ if self.len == 0 && !matches!(byte, b'C' | b'c' | b'T' | b't') => {
                    self.skips_line = true;
                }
                _ => {
                    self.name[self.len] = byte;
                    self.len += 1;
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &[u8] =
        b"POST / HTTP/1.1\r\nHost: a\r\ncontent-LENGTH: 5\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn a_head_with_both_is_found_in_chunks_of_any_size() {
        for size in 1..=BOTH.len() {
            let mut scanner = FramingScanner::default();
            let found = BOTH.chunks(size).any(|chunk| scanner.finds_conflict(chunk));
            assert!(found, "in chunks of {size}");
        }
    }

    #[test]
    fn two_heads_with_one_each_are_accepted() {
        let text = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n\r\nPOST / HTTP/1.1\r\n\
                     Transfer-Encoding: chunked\r\n\r\n";
        assert!(!FramingScanner::default().finds_conflict(text));
    }

    #[test]
    fn longer_names_and_values_are_ignored() {
        let text = b"GET / HTTP/1.1\r\nX-Content-Length: 2\r\nTransfer-Encoding-X: chunked\r\n\
                     a: content-length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(!FramingScanner::default().finds_conflict(text));
    }
}
