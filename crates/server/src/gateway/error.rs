//! The responses of the gateway itself: problem details with a stable type.

use bytes::Bytes;
use http::Response;
use http::header::{CONNECTION, HeaderValue};
use tallygate::http::ProblemDetails;

use crate::problem::Code;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GatewayError {
    BadRequest(&'static str),
    MethodNotSupported(&'static str),
    HeadTooLarge,
    BodyTooLarge,
    BodyTimeout,
    /// No upstream accepted a connection, or it closed before a response.
    UpstreamFailed,
    /// Its response can be read in several ways, or switches to a protocol unasked.
    UpstreamMalformed,
    UpstreamTimeout,
}

impl GatewayError {
    pub(super) fn response(self) -> Response<Bytes> {
        let (code, detail) = match self {
            GatewayError::BadRequest(detail) => (Code::BadRequest, detail),
            GatewayError::MethodNotSupported(detail) => (Code::MethodNotSupported, detail),
            GatewayError::HeadTooLarge => (
                Code::HeadTooLarge,
                "the request has more headers than the gateway forwards",
            ),
            GatewayError::BodyTooLarge => (
                Code::BodyTooLarge,
                "the body is larger than the gateway forwards",
            ),
            GatewayError::BodyTimeout => (
                Code::BodyTooSlow,
                "the rest of the body did not arrive in time",
            ),
            GatewayError::UpstreamFailed => (
                Code::UpstreamFailed,
                "no upstream accepted the request; this is not the client's fault",
            ),
            GatewayError::UpstreamMalformed => (
                Code::UpstreamFailed,
                "the upstream's response is malformed; this is not the client's fault",
            ),
            GatewayError::UpstreamTimeout => (
                Code::UpstreamTooSlow,
                "the upstream did not respond in time; this is not the client's fault",
            ),
        };
        let problem = ProblemDetails {
            // As in refusals, the type says the same.
            code: None,
            ..code.details(detail)
        };
        let mut response = problem.response();
        let is_refused = matches!(self, GatewayError::MethodNotSupported(_));
        if !problem.status.is_server_error() || is_refused {
            // After a bad request the rest of the connection cannot be trusted.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response
    }
}
