//! Problem details (RFC 9457): the body of every error response.

use std::borrow::Cow;
use std::fmt::Write as _;

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Response, StatusCode};
use bytes::Bytes;

/// How many headers a refusal has, so that the map is allocated once.
const USUAL_HEADERS: usize = 8;

/// Problem details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemDetails<'a> {
    /// A URI that identifies the kind of problem.
    pub problem_type: &'a str,
    /// A summary of the kind of problem.
    pub title: &'a str,
    /// The response's status.
    pub status: StatusCode,
    /// What is wrong with this request.
    pub detail: &'a str,
    /// The limit that refused, as the one member of `violated-policies`.
    pub violated_policy: Option<&'a str>,
    /// The last part of the type, as `code`.
    pub code: Option<&'a str>,
}

impl<'a> ProblemDetails<'a> {
    /// Problem details without extension members.
    pub fn new(problem_type: &'a str, title: &'a str, status: StatusCode, detail: &'a str) -> Self {
        ProblemDetails {
            problem_type,
            title,
            status,
            detail,
            violated_policy: None,
            code: None,
        }
    }

    /// The body.
    pub fn to_json(&self) -> String {
        let policy = self.violated_policy.map(escape);
        let (policy_start, policy, policy_end) = match &policy {
            Some(policy) => (r#","violated-policies":[""#, &**policy, r#""]"#),
            None => ("", "", ""),
        };
        let (code_start, code, code_end) = match self.code {
            Some(code) => (r#","code":""#, code, r#"""#),
            None => ("", "", ""),
        };
        // One allocation of the exact length.
        [
            r#"{"type":""#,
            self.problem_type,
            r#"","title":""#,
            self.title,
            r#"","status":"#,
            self.status.as_str(),
            r#","detail":""#,
            &escape(self.detail),
            r#"""#,
            policy_start,
            policy,
            policy_end,
            code_start,
            code,
            code_end,
            "}",
        ]
        .concat()
    }

    /// The response.
    pub fn response(&self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(self.to_json()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.reserve(USUAL_HEADERS);
        let content_type = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, content_type);
        response
    }
}

/// Escapes a text for a JSON string.
fn escape(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    // `fold` instead of `all`: without an early exit the loop is vectorised.
    if text.bytes().fold(true, |all, byte| all & is_plain(byte)) {
        return text.into();
    }
    let mut escaped = String::with_capacity(2 * text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => escaped.extend(['\\', character]),
            '\0'..='\x1f' => write!(escaped, "\\u{:04x}", u32::from(character))
                .expect("writing to a `String` cannot fail"),
            _ => escaped.push(character),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_json_with_its_extension_members() {
        let problem = ProblemDetails {
            violated_policy: Some("a\\b"),
            code: Some("x"),
            ..ProblemDetails::new("urn:x", "X", StatusCode::BAD_REQUEST, "say \"no\"\n")
        };
        assert_eq!(
            problem.to_json(),
            r#"{"type":"urn:x","title":"X","status":400,"detail":"say \"no\"\u000a","violated-policies":["a\\b"],"code":"x"}"#
        );
    }
}
