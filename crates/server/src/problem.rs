//! The problems that the listeners report, each with a code that `docs/http-api.md` explains.
//! Details never repeat what may be a key.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use tallygate::QuotaError;
use tallygate::http::ProblemDetails;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) detail: Cow<'static, str>,
}

/// Defines every code with its status, its name on the wire and its title.
macro_rules! codes {
    ($($code:ident $status:ident $name:literal $title:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code { $($code),* }

        impl Code {
            #[cfg(test)]
            const ALL: &[Code] = &[$(Code::$code),*];

            /// Problem details with the code.
            pub(crate) fn details(self, detail: &str) -> ProblemDetails<'_> {
                let (status, problem_type, code, title) = match self {
                    $(Code::$code => (
                        StatusCode::$status,
                        concat!("urn:tallygate:problem:", $name),
                        $name,
                        $title,
                    ),)*
                };
                ProblemDetails {
                    code: Some(code),
                    ..ProblemDetails::new(problem_type, title, status, detail)
                }
            }
        }
    };
}

codes! {
    BadRequest BAD_REQUEST "bad-request" "Request not understood";
    MalformedJson BAD_REQUEST "malformed-json" "Malformed JSON";
    BadField BAD_REQUEST "bad-field" "Invalid field";
    BadBody BAD_REQUEST "bad-body" "Invalid request body";
    BadQuota BAD_REQUEST "bad-quota" "Invalid quota";
    BadAttribute BAD_REQUEST "bad-attribute" "Invalid attribute";
    BadQuery BAD_REQUEST "bad-query" "Invalid query parameter";
    SameCounterTwice BAD_REQUEST "same-counter-twice" "Duplicate counter";
    TooManyLimits BAD_REQUEST "too-many-limits" "Too many limits";
    TooManyItems BAD_REQUEST "too-many-items" "Too many items";
    MissingOriginal BAD_REQUEST "missing-original" "Missing original request";
    AmbiguousOriginal BAD_REQUEST "ambiguous-original" "Conflicting original request headers";
    MissingKey BAD_REQUEST "missing-key" "Missing key";
    TokenRequired UNAUTHORIZED "token-required" "Token required";
    UntrustedPeer FORBIDDEN "untrusted-peer" "Untrusted peer";
    ForeignOrigin FORBIDDEN "foreign-origin" "Foreign origin";
    Denied FORBIDDEN "denied" "Denied";
    NotFound NOT_FOUND "not-found" "Not found";
    UnknownRule NOT_FOUND "unknown-rule" "Unknown rule";
    UnknownBudget NOT_FOUND "unknown-budget" "Unknown budget";
    UnknownOverride NOT_FOUND "unknown-override" "Unknown override";
    UnknownKey NOT_FOUND "unknown-key" "Unknown key";
    UnknownAlgorithm BAD_REQUEST "unknown-algorithm" "Unknown algorithm";
    MethodNotAllowed METHOD_NOT_ALLOWED "method-not-allowed" "Method not allowed";
    BodyTooSlow REQUEST_TIMEOUT "body-too-slow" "Body too slow";
    IdConflict CONFLICT "id-conflict" "Id in use";
    TooManyOverrides CONFLICT "too-many-overrides" "Too many overrides";
    BodyTooLarge PAYLOAD_TOO_LARGE "body-too-large" "Body too large";
    TargetTooLong URI_TOO_LONG "target-too-long" "Target too long";
    WrongContentType UNSUPPORTED_MEDIA_TYPE "wrong-content-type" "Unsupported content type";
    TooManyLabs TOO_MANY_REQUESTS "too-many-labs" "Too many experiments";
    HeadTooLarge REQUEST_HEADER_FIELDS_TOO_LARGE "head-too-large" "Head too large";
    MethodNotSupported NOT_IMPLEMENTED "method-not-supported" "Method not supported";
    UpstreamFailed BAD_GATEWAY "upstream-failed" "Upstream failed";
    Busy SERVICE_UNAVAILABLE "busy" "Busy";
    Overloaded SERVICE_UNAVAILABLE "overloaded" "Overloaded";
    StoreUnavailable SERVICE_UNAVAILABLE "store-unavailable" "Limits cannot be checked";
    TooManyViewers SERVICE_UNAVAILABLE "too-many-viewers" "Too many viewers";
    Closed SERVICE_UNAVAILABLE "closed" "Closed";
    UpstreamTooSlow GATEWAY_TIMEOUT "upstream-too-slow" "Upstream too slow";
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        Problem { code, detail }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.details().status
    }

    pub(crate) fn json(&self) -> Vec<u8> {
        self.details().to_json().into_bytes()
    }

    pub(crate) fn response(&self) -> Response<Full<Bytes>> {
        let mut response = self.details().response().map(Full::from);
        let headers = response.headers_mut();
        if self.code == Code::TokenRequired {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(self.code, Code::BodyTooSlow | Code::BodyTooLarge) {
            // The rest of the body is not read.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn details(&self) -> ProblemDetails<'_> {
        self.code.details(&self.detail)
    }
}

impl From<QuotaError> for Problem {
    fn from(error: QuotaError) -> Self {
        let detail = format!("{}; {}", error.problem(), error.advice());
        Problem::new(Code::BadQuota, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_documented_with_its_status() {
        let docs = include_str!("../../../docs/http-api.md");
        let rows = docs.lines().filter(|line| line.starts_with("| `"));
        let rows: Vec<&str> = rows.filter(|row| row.matches('|').count() == 4).collect();
        for code in Code::ALL {
            let details = code.details("");
            let row = format!(
                "| `{}` | {} |",
                details.code.unwrap(),
                details.status.as_u16()
            );
            assert!(rows.iter().any(|line| line.starts_with(&row)), "{row}");
        }
        let is_code = |row: &&&str| {
            row.split('|')
                .nth(2)
                .is_some_and(|status| status.trim().parse::<u16>().is_ok())
        };
        assert_eq!(rows.iter().filter(is_code).count(), Code::ALL.len());
    }

    #[test]
    fn a_problem_has_the_same_code_in_every_field() {
        let problem = Problem::new(Code::UnknownRule, "there is no rule `x\"y`");
        let json: serde_json::Value = serde_json::from_slice(&problem.json()).unwrap();
        assert_eq!(json["status"], 404);
        assert_eq!(json["code"], "unknown-rule");
        assert_eq!(json["type"], "urn:tallygate:problem:unknown-rule");
        assert_eq!(json["detail"], "there is no rule `x\"y`");
        assert_eq!(problem.response().status(), 404);
    }
}
