//! Reading requests and writing JSON responses, for the API and admin ports.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use serde::de::DeserializeOwned;

use crate::problem::{Code, Problem};

/// The response of a handler, or the problem to respond with.
pub(super) type HandlerResult = Result<Response<Full<Bytes>>, Problem>;

const JSON: &str = "application/json";

const BODY_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn read_body(
    headers: &HeaderMap,
    body: Incoming,
    max_bytes: usize,
) -> Result<Bytes, Problem> {
    // Pages of other sites can send other types, or none, without asking first.
    if !body.is_end_stream() && !has_json_type(headers) {
        let detail = "the body's content type is not application/json; with curl, add \
                      -H 'content-type: application/json'";
        return Err(Problem::new(Code::WrongContentType, detail));
    }
    let too_large = || {
        let detail = format!("the body is larger than {max_bytes} bytes");
        Problem::new(Code::BodyTooLarge, detail)
    };
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large());
    }
    let read = Limited::new(body, max_bytes).collect();
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => {
            let detail = "the body is incomplete";
            Err(Problem::new(Code::MalformedJson, detail))
        }
        Err(_) => {
            let detail = format!("the body took longer than {} s", BODY_TIMEOUT.as_secs());
            Err(Problem::new(Code::BodyTooSlow, detail))
        }
    }
}

fn has_json_type(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(content_type), None) = (types.next(), types.next()) else {
        return false;
    };
    let mut parts = content_type.as_bytes().split(|byte| *byte == b';');
    let essence = parts.next().unwrap_or_default().trim_ascii();
    essence.eq_ignore_ascii_case(JSON.as_bytes())
}

/// Parses JSON. Errors never repeat a value, which may be a key.
pub(super) fn parse_json<T: DeserializeOwned>(json: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(json).map_err(|error| {
        let position = format!("(line {} column {})", error.line(), error.column());
        let text = error.to_string();
        if !error.is_data() {
            let reason = text.split(" at line ").next().unwrap_or_default();
            // A syntax error names what was expected, not what was found.
            return Problem::new(Code::MalformedJson, format!("{reason} {position}"));
        }
        let named = ["unknown field", "duplicate field", "missing field"];
        let text = text.split(" at line ").next().unwrap_or_default();
        let detail = match text.rsplit_once(", expected ") {
            _ if named.iter().any(|name| text.starts_with(name)) => truncate(text),
            // What was found may be a key.
            Some((_, expected)) => format!("a value is not {}", truncate(expected)),
            None => "a value is wrong".to_owned(),
        };
        Problem::new(Code::BadField, format!("{detail} {position}"))
    })
}

/// How much of a client's text a response repeats.
const MAX_ECHOED_CHARS: usize = 200;

fn truncate(text: &str) -> String {
    text.chars().take(MAX_ECHOED_CHARS).collect()
}

pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = with_type(JSON, Full::from(body.into()));
    *response.status_mut() = status;
    response
}

pub(super) fn with_type<B>(content_type: &'static str, body: B) -> Response<B> {
    let mut response = Response::new(body);
    let content_type = HeaderValue::from_static(content_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

pub(super) fn json_value(status: StatusCode, value: &serde_json::Value) -> Response<Full<Bytes>> {
    json(status, format!("{value}\n"))
}

pub(super) fn ok(value: &serde_json::Value) -> Response<Full<Bytes>> {
    json_value(StatusCode::OK, value)
}

pub(super) fn method_not_allowed(allowed: &[Method]) -> Response<Full<Bytes>> {
    let names: Vec<&str> = allowed.iter().map(Method::as_str).collect();
    let names = names.join(", ");
    let detail = format!("only {names} is supported here");
    let mut response = Problem::new(Code::MethodNotAllowed, detail).response();
    if let Ok(names) = HeaderValue::from_str(&names) {
        response.headers_mut().insert(header::ALLOW, names);
    }
    response
}

/// Parses the parameters of a query. Unknown and duplicate ones are errors.
pub(super) fn parse_query<const N: usize>(
    query: Option<&str>,
    known: [&str; N],
) -> Result<[Option<String>; N], Problem> {
    let mut values = [const { None }; N];
    for pair in query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(index) = known.iter().position(|known| *known == name) else {
            let detail = match known.is_empty() {
                true => "there are no query parameters here".to_owned(),
                false => format!("the query parameters here are: {}", known.join(", ")),
            };
            return Err(Problem::new(Code::BadQuery, detail));
        };
        if values[index].replace(percent_decode(value)?).is_some() {
            let detail = format!("`{}` is given twice", known[index]);
            return Err(Problem::new(Code::BadQuery, detail));
        }
    }
    Ok(values)
}

/// The parts of a key, separated by `,` and percent-encoded.
pub(super) fn key_parts(text: &str) -> Result<Vec<String>, Problem> {
    text.split(',').map(percent_decode).collect()
}

// By hand: the crate percent-encoding accepts malformed escapes.
pub(super) fn percent_decode(text: &str) -> Result<String, Problem> {
    let error = || {
        Problem::new(
            Code::BadQuery,
            "a part of the URL is not UTF-8 text, percent-encoded",
        )
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = rest.next().and_then(|digit| char::from(digit).to_digit(16));
            digit
                .and_then(|digit| u8::try_from(digit).ok())
                .ok_or_else(error)
        };
        bytes.push(digit()? << 4 | digit()?);
    }
    String::from_utf8(bytes).map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_duplicate_and_malformed_parameters_are_errors() {
        assert_eq!(parse_query(None, ["status"]), Ok([None]));
        assert_eq!(
            parse_query(Some("status=200"), ["status"]),
            Ok([Some("200".into())])
        );
        assert_eq!(
            parse_query(Some("a=%C3%A9&&"), ["a"]),
            Ok([Some("é".into())])
        );
        for invalid in [
            "x=1",
            "status=1&status=1",
            "status=%",
            "status=%zz",
            "status=%ff",
        ] {
            let problem = parse_query(Some(invalid), ["status"]).unwrap_err();
            assert_eq!(problem.code, Code::BadQuery, "{invalid}");
        }
    }

    #[test]
    fn errors_do_not_repeat_values() {
        let problem = parse_json::<u32>(b"\"s3cret\"").unwrap_err();
        assert_eq!(problem.code, Code::BadField);
        assert_eq!(problem.detail, "a value is not u32 (line 1 column 8)");
        let problem = parse_json::<u32>(b"12x").unwrap_err();
        assert_eq!(problem.code, Code::MalformedJson);
    }
}
