//! Problems (RFC 9457) with codes that programs can rely on and `docs/http-api.md` explains. Knows
//! statuses; repeats nothing that may be a key.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;

/// Why a request cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) detail: Cow<'static, str>,
}

/// Every code, each with one status and one title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    MalformedJson,
    BadField,
    BadBody,
    BadQuota,
    BadAttribute,
    BadQuery,
    SameCounterTwice,
    TooManyLimits,
    TooManyItems,
    MissingOriginal,
    AmbiguousOriginal,
    MissingKey,
    TokenRequired,
    UntrustedPeer,
    ForeignOrigin,
    Denied,
    NotFound,
    UnknownRule,
    UnknownOverride,
    UnknownAlgorithm,
    MethodNotAllowed,
    BodyTooSlow,
    TooManyOverrides,
    BodyTooLarge,
    WrongContentType,
    TooManyLabs,
    StoreUnavailable,
    TooManyViewers,
    Busy,
    Closed,
}

impl Code {
    /// The status, the code as it is written, and the title.
    fn words(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Code::MalformedJson => (S::BAD_REQUEST, "malformed-json", "Not JSON"),
            Code::BadField => (S::BAD_REQUEST, "bad-field", "A field is wrong"),
            Code::BadBody => (S::BAD_REQUEST, "bad-body", "Not a question"),
            Code::BadQuota => (S::BAD_REQUEST, "bad-quota", "A quota is wrong"),
            Code::BadAttribute => (S::BAD_REQUEST, "bad-attribute", "An attribute is wrong"),
            Code::BadQuery => (S::BAD_REQUEST, "bad-query", "A query parameter is wrong"),
            Code::SameCounterTwice => (
                S::BAD_REQUEST,
                "same-counter-twice",
                "One counter asked twice",
            ),
            Code::TooManyLimits => (S::BAD_REQUEST, "too-many-limits", "Too many limits"),
            Code::TooManyItems => (S::BAD_REQUEST, "too-many-items", "Too many questions"),
            Code::MissingOriginal => (
                S::BAD_REQUEST,
                "missing-original",
                "The proxy does not say what was asked",
            ),
            Code::AmbiguousOriginal => (
                S::BAD_REQUEST,
                "ambiguous-original",
                "The headers disagree on what was asked",
            ),
            Code::MissingKey => (S::BAD_REQUEST, "missing-key", "Nobody to limit"),
            Code::TokenRequired => (S::UNAUTHORIZED, "token-required", "Administrators only"),
            Code::UntrustedPeer => (S::FORBIDDEN, "untrusted-peer", "Not a trusted proxy"),
            Code::ForeignOrigin => (
                S::FORBIDDEN,
                "foreign-origin",
                "Asked by a page of another site",
            ),
            Code::Denied => (S::FORBIDDEN, "denied", "Denied"),
            Code::NotFound => (S::NOT_FOUND, "not-found", "Nothing is here"),
            Code::UnknownRule => (S::NOT_FOUND, "unknown-rule", "No such rule"),
            Code::UnknownOverride => (S::NOT_FOUND, "unknown-override", "No such override"),
            Code::UnknownAlgorithm => (S::BAD_REQUEST, "unknown-algorithm", "No such algorithm"),
            Code::MethodNotAllowed => (
                S::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "Another method is meant",
            ),
            Code::BodyTooSlow => (
                S::REQUEST_TIMEOUT,
                "body-too-slow",
                "The body took too long",
            ),
            Code::TooManyOverrides => (S::CONFLICT, "too-many-overrides", "Too many overrides"),
            Code::BodyTooLarge => (
                S::PAYLOAD_TOO_LARGE,
                "body-too-large",
                "The body is too large",
            ),
            Code::WrongContentType => (
                S::UNSUPPORTED_MEDIA_TYPE,
                "wrong-content-type",
                "The body is not called JSON",
            ),
            Code::TooManyLabs => (
                S::TOO_MANY_REQUESTS,
                "too-many-labs",
                "Too many experiments",
            ),
            Code::Busy => (S::SERVICE_UNAVAILABLE, "busy", "Too much at once"),
            Code::StoreUnavailable => (
                S::SERVICE_UNAVAILABLE,
                "store-unavailable",
                "Limits cannot be checked",
            ),
            Code::TooManyViewers => (
                S::SERVICE_UNAVAILABLE,
                "too-many-viewers",
                "Too many look already",
            ),
            Code::Closed => (S::SERVICE_UNAVAILABLE, "closed", "Closed for now"),
        }
    }
}

#[derive(Serialize)]
struct Written<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        Problem { code, detail }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.code.words().0
    }

    /// As JSON.
    pub(crate) fn json(&self) -> Vec<u8> {
        let (status, code, title) = self.code.words();
        let written = Written {
            r#type: format!("urn:tallygate:problem:{code}"),
            title,
            status: status.as_u16(),
            detail: &self.detail,
            code,
        };
        serde_json::to_vec(&written).expect("texts and numbers are JSON")
    }

    pub(crate) fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(self.json()));
        *response.status_mut() = self.status();
        let content_type = HeaderValue::from_static("application/problem+json");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        if self.code == Code::TokenRequired {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(self.code, Code::BodyTooSlow | Code::BodyTooLarge) {
            // What is left of the body is not read.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Code; 30] = [
        Code::MalformedJson,
        Code::BadField,
        Code::BadBody,
        Code::BadQuota,
        Code::BadAttribute,
        Code::BadQuery,
        Code::SameCounterTwice,
        Code::TooManyLimits,
        Code::TooManyItems,
        Code::MissingOriginal,
        Code::AmbiguousOriginal,
        Code::MissingKey,
        Code::TokenRequired,
        Code::UntrustedPeer,
        Code::ForeignOrigin,
        Code::Denied,
        Code::NotFound,
        Code::UnknownRule,
        Code::UnknownOverride,
        Code::UnknownAlgorithm,
        Code::TooManyLabs,
        Code::Busy,
        Code::TooManyViewers,
        Code::MethodNotAllowed,
        Code::BodyTooSlow,
        Code::TooManyOverrides,
        Code::BodyTooLarge,
        Code::WrongContentType,
        Code::StoreUnavailable,
        Code::Closed,
    ];

    #[test]
    fn every_code_is_documented_with_its_status() {
        let docs = include_str!("../../../docs/http-api.md");
        let rows = docs.lines().filter(|line| line.starts_with("| `"));
        let rows: Vec<&str> = rows.filter(|row| row.matches('|').count() == 4).collect();
        for code in ALL {
            let (status, word, _) = code.words();
            let row = format!("| `{word}` | {} |", status.as_u16());
            assert!(rows.iter().any(|line| line.starts_with(&row)), "{row}");
        }
        let is_code = |row: &&&str| {
            row.split('|')
                .nth(2)
                .is_some_and(|status| status.trim().parse::<u16>().is_ok())
        };
        assert_eq!(rows.iter().filter(is_code).count(), ALL.len());
    }

    #[test]
    fn a_problem_says_the_same_in_every_field() {
        let problem = Problem::new(Code::UnknownRule, "there is no rule `x\"y`");
        let json: serde_json::Value = serde_json::from_slice(&problem.json()).unwrap();
        assert_eq!(json["status"], 404);
        assert_eq!(json["code"], "unknown-rule");
        assert_eq!(json["type"], "urn:tallygate:problem:unknown-rule");
        assert_eq!(json["detail"], "there is no rule `x\"y`");
        assert_eq!(problem.response().status(), 404);
    }
}
