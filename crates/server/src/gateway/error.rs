//! What the gateway itself answers: problem details (RFC 9457) with a stable type. Knows nothing
//! of what the limits say, which have answers of their own.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

/// Why the gateway answers in the upstream's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The request can be read in more than one way, or in none.
    BadRequest(&'static str),
    /// The method is not for gateways.
    Method,
    /// There are more headers than allowed.
    HeadTooLarge,
    /// The body is larger than allowed.
    BodyTooLarge,
    /// The client stopped sending its body.
    BodyLate,
    /// No upstream took a connection, or it broke before an answer.
    UpstreamFailed,
    /// The upstream did not answer in time.
    UpstreamLate,
}

impl Problem {
    /// The answer. Connections whose requests make no sense are closed: whatever follows on them
    /// makes none either.
    pub(super) fn response(self) -> Response<Bytes> {
        let text = serde_json::json!({
            "type": self.kind(),
            "title": self.title(),
            "status": self.status().as_u16(),
            "detail": self.detail(),
        });
        let mut response = Response::new(Bytes::from(text.to_string()));
        *response.status_mut() = self.status();
        let problem = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, problem);
        if self.ends_connection() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response
    }

    fn status(self) -> StatusCode {
        match self {
            Problem::BadRequest(_) => StatusCode::BAD_REQUEST,
            Problem::Method => StatusCode::NOT_IMPLEMENTED,
            Problem::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Problem::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Problem::BodyLate => StatusCode::REQUEST_TIMEOUT,
            Problem::UpstreamFailed => StatusCode::BAD_GATEWAY,
            Problem::UpstreamLate => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Problem::BadRequest(_) => "urn:tallygate:problem:bad-request",
            Problem::Method => "urn:tallygate:problem:method-not-supported",
            Problem::HeadTooLarge => "urn:tallygate:problem:head-too-large",
            Problem::BodyTooLarge => "urn:tallygate:problem:body-too-large",
            Problem::BodyLate => "urn:tallygate:problem:body-too-slow",
            Problem::UpstreamFailed => "urn:tallygate:problem:upstream-failed",
            Problem::UpstreamLate => "urn:tallygate:problem:upstream-too-slow",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Problem::BadRequest(_) => "Request not understood",
            Problem::Method => "Method not supported",
            Problem::HeadTooLarge => "Head too large",
            Problem::BodyTooLarge => "Body too large",
            Problem::BodyLate => "Body too slow",
            Problem::UpstreamFailed => "Upstream failed",
            Problem::UpstreamLate => "Upstream too slow",
        }
    }

    fn detail(self) -> &'static str {
        match self {
            Problem::BadRequest(detail) => detail,
            Problem::Method => "the gateway opens no connections for others: CONNECT is refused",
            Problem::HeadTooLarge => "the request has more headers than the gateway passes on",
            Problem::BodyTooLarge => "the body is larger than the gateway passes on",
            Problem::BodyLate => "the rest of the body did not come in time",
            Problem::UpstreamFailed => {
                "no server behind the gateway took the request; this is not the client's fault"
            }
            Problem::UpstreamLate => {
                "the server behind the gateway did not answer in time; this is not the client's \
                 fault"
            }
        }
    }

    fn ends_connection(self) -> bool {
        match self {
            Problem::BadRequest(_)
            | Problem::Method
            | Problem::HeadTooLarge
            | Problem::BodyTooLarge
            | Problem::BodyLate => true,
            Problem::UpstreamFailed | Problem::UpstreamLate => false,
        }
    }
}
