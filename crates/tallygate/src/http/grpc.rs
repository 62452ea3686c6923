//! gRPC refusals: a status with `RetryInfo`. Encodes the few protobuf fields by hand, without
//! generated code.

use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use ::http::{Method, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::refusal::{IN_FLIGHT_RETRY, OVERLOAD_RETRY};
use super::{Head, Refusal};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// What `grpc-message` cannot contain besides non-ASCII characters.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

const INVALID_ARGUMENT: u8 = 3;
const PERMISSION_DENIED: u8 = 7;
const RESOURCE_EXHAUSTED: u8 = 8;
const INTERNAL: u8 = 13;
const UNAVAILABLE: u8 = 14;

/// The content type of the response to a gRPC request. `None` if it is not one: gRPC requests have
/// the method POST, whatever the content type is.
pub(super) fn content_type(head: &Head<'_>) -> Option<&'static str> {
    let value = head.headers().get(CONTENT_TYPE)?.as_bytes();
    let rest = value.strip_prefix(b"application/grpc")?;
    if head.method() != Method::POST {
        return None;
    }
    match rest {
        [] | [b'+' | b';', ..] => Some("application/grpc"),
        rest if rest.starts_with(b"-web-text") => Some("application/grpc-web-text"),
        rest if rest.starts_with(b"-web") => Some("application/grpc-web"),
        _ => None,
    }
}

/// Builds a trailers-only response.
pub(super) fn response(refusal: &Refusal<'_>, content_type: &'static str) -> Response<Bytes> {
    let (code, retry_after) = match refusal {
        Refusal::Quota { retry_after, .. } => (RESOURCE_EXHAUSTED, Some(*retry_after)),
        Refusal::InFlight { .. } => (RESOURCE_EXHAUSTED, Some(IN_FLIGHT_RETRY)),
        Refusal::NeverFits { .. } => (RESOURCE_EXHAUSTED, None),
        Refusal::Overloaded => (UNAVAILABLE, Some(OVERLOAD_RETRY)),
        Refusal::Unavailable
        | Refusal::TooManyWaiting
        | Refusal::TooManyLimits { .. }
        | Refusal::Closed => (UNAVAILABLE, None),
        Refusal::Denied { .. } => (PERMISSION_DENIED, None),
        Refusal::NoAddress { .. } => (INTERNAL, None),
        Refusal::NoKey { .. } | Refusal::TooManySegments => (INVALID_ARGUMENT, None),
    };
    let message = refusal.detail();
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(STATUS, HeaderValue::from(u16::from(code)));
    let escaped = utf8_percent_encode(&message, ESCAPED).to_string();
    let escaped = HeaderValue::try_from(escaped).expect("printable ASCII is valid in a header");
    headers.insert(MESSAGE, escaped);
    if let Some(retry_after) = retry_after {
        let details = STANDARD_NO_PAD.encode(status(code, &message, retry_after));
        if let Ok(details) = HeaderValue::try_from(details) {
            headers.insert(DETAILS, details);
        }
    }
    response
}

/// `google.rpc.Status` with a `RetryInfo`.
fn status(code: u8, message: &str, retry_after: Duration) -> Vec<u8> {
    let mut delay = Vec::new();
    number(&mut delay, 1, retry_after.as_secs());
    number(&mut delay, 2, retry_after.subsec_nanos().into());
    let mut retry_info = Vec::new();
    text(&mut retry_info, 1, &delay);
    let mut any = Vec::new();
    text(&mut any, 1, RETRY_INFO.as_bytes());
    text(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    number(&mut status, 1, code.into());
    text(&mut status, 2, message.as_bytes());
    text(&mut status, 3, &any);
    status
}

/// Writes a varint field.
fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    if value != 0 {
        out.push(field << 3);
        varint(out, value);
    }
}

/// Writes a length-delimited field: a string or a message.
fn text(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use ::http::Request;

    use super::*;

    #[test]
    fn only_post_requests_with_a_grpc_content_type_are_grpc() {
        let detected = |method: Method, value: &'static str| {
            let mut request = Request::new(());
            *request.method_mut() = method;
            let value = HeaderValue::from_static(value);
            request.headers_mut().insert(CONTENT_TYPE, value);
            content_type(&Head::from(&request))
        };
        for (value, expected) in [
            ("application/grpc", Some("application/grpc")),
            ("application/grpc+proto", Some("application/grpc")),
            ("application/grpc-web+proto", Some("application/grpc-web")),
            ("application/grpcish", None),
            ("application/json", None),
        ] {
            assert_eq!(detected(Method::POST, value), expected);
            assert_eq!(detected(Method::GET, value), None);
        }
    }

    #[test]
    fn a_message_is_escaped() {
        let rule = "50% \u{e9}\n";
        let response = response(&Refusal::Denied { rule }, "application/grpc");
        let message = &response.headers()[MESSAGE];
        assert_eq!(message, "`50%25 %C3%A9%0A` denies this client");
    }
}
