//! The responses of the gateway itself: problem details with a stable type.

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Response, StatusCode};
use tallygate::http::ProblemDetails;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GatewayError {
    BadRequest(&'static str),
    MethodNotSupported,
    HeadTooLarge,
    BodyTooLarge,
    BodyTimeout,
    /// No upstream accepted a connection, or it closed before a response.
    UpstreamFailed,
    UpstreamTimeout,
}

impl GatewayError {
    pub(super) fn response(self) -> Response<Bytes> {
        let (status, problem_type, title, detail) = match self {
            GatewayError::BadRequest(detail) => (
                StatusCode::BAD_REQUEST,
                "urn:tallygate:problem:bad-request",
                "Request not understood",
                detail,
            ),
            GatewayError::MethodNotSupported => (
                StatusCode::NOT_IMPLEMENTED,
                "urn:tallygate:problem:method-not-supported",
                "Method not supported",
                "the gateway does not support CONNECT",
            ),
            GatewayError::HeadTooLarge => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "urn:tallygate:problem:head-too-large",
                "Head too large",
                "the request has more headers than the gateway forwards",
            ),
            GatewayError::BodyTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "urn:tallygate:problem:body-too-large",
                "Body too large",
                "the body is larger than the gateway forwards",
            ),
            GatewayError::BodyTimeout => (
                StatusCode::REQUEST_TIMEOUT,
                "urn:tallygate:problem:body-too-slow",
                "Body too slow",
                "the rest of the body did not arrive in time",
            ),
            GatewayError::UpstreamFailed => (
                StatusCode::BAD_GATEWAY,
                "urn:tallygate:problem:upstream-failed",
                "Upstream failed",
                "no upstream accepted the request; this is not the client's fault",
            ),
            GatewayError::UpstreamTimeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "urn:tallygate:problem:upstream-too-slow",
                "Upstream too slow",
                "the upstream did not respond in time; this is not the client's fault",
            ),
        };
        let mut response = ProblemDetails::new(problem_type, title, status, detail).response();
        if !status.is_server_error() || self == GatewayError::MethodNotSupported {
            // After a bad request the rest of the connection cannot be trusted.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response
    }
}
