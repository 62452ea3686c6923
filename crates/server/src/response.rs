//! What doors have in common: reading a body within bounds, and answers in JSON. Knows HTTP;
//! knows nothing of limits.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use serde::de::DeserializeOwned;

use crate::problem::{Code, Problem};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Reads a body that is JSON, and no larger than that.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Incoming,
    most: usize,
) -> Result<Bytes, Problem> {
    // What `curl -d` says of any body; a page of somebody else's site says so too, but not without
    // saying where it is from.
    let by_hand = |said: &HeaderValue| is(said, FORM) && !headers.contains_key(header::ORIGIN);
    if let Some(said) = headers.get(header::CONTENT_TYPE)
        && !is(said, JSON)
        && !by_hand(said)
    {
        let detail = "the content type is not application/json";
        return Err(Problem::new(Code::WrongContentType, detail));
    }
    let too_large = || {
        let detail = format!("the body is larger than {most} bytes");
        Problem::new(Code::BodyTooLarge, detail)
    };
    let most_of_all = u64::try_from(most).unwrap_or(u64::MAX);
    if body.size_hint().lower() > most_of_all {
        return Err(too_large());
    }
    let read = Limited::new(body, most).collect();
    match tokio::time::timeout(BODY_WITHIN, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => {
            let detail = "the body ended before its time";
            Err(Problem::new(Code::MalformedJson, detail))
        }
        Err(_) => {
            let detail = format!("the body took longer than {} s", BODY_WITHIN.as_secs());
            Err(Problem::new(Code::BodyTooSlow, detail))
        }
    }
}

fn is(content_type: &HeaderValue, kind: &str) -> bool {
    let said = content_type.as_bytes();
    let end = said.iter().position(|byte| *byte == b';');
    let essence = said[..end.unwrap_or(said.len())].trim_ascii();
    essence.eq_ignore_ascii_case(kind.as_bytes())
}

/// What JSON says, strictly.
pub(super) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(json).map_err(|error| {
        let place = format!("(line {} column {})", error.line(), error.column());
        let text = error.to_string();
        if !error.is_data() {
            let why = text.split(" at line ").next().unwrap_or_default();
            // A syntax error names what was expected, never what was there.
            return Problem::new(Code::MalformedJson, format!("{why} {place}"));
        }
        let named = ["unknown field", "duplicate field", "missing field"];
        let text = text.split(" at line ").next().unwrap_or_default();
        let detail = match text.rsplit_once(", expected ") {
            _ if named.iter().any(|name| text.starts_with(name)) => shortened(text),
            // What was there may be a key.
            Some((_, expected)) => format!("a value is not {}", shortened(expected)),
            None => "a value is wrong".to_owned(),
        };
        Problem::new(Code::BadField, format!("{detail} {place}"))
    })
}

/// The most characters of somebody else's text that an answer repeats.
const SHOWN: usize = 200;

fn shortened(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// An answer in JSON.
pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.into()));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

/// An answer in JSON, from a value.
pub(super) fn value(status: StatusCode, value: &serde_json::Value) -> Response<Full<Bytes>> {
    json(status, format!("{value}\n"))
}

/// What to say to a method that is not meant.
pub(super) fn other_method(allowed: &[Method]) -> Response<Full<Bytes>> {
    let names: Vec<&str> = allowed.iter().map(Method::as_str).collect();
    let names = names.join(", ");
    let detail = format!("only {names} is answered here");
    let mut response = Problem::new(Code::MethodNotAllowed, detail).response();
    if let Ok(names) = HeaderValue::from_str(&names) {
        response.headers_mut().insert(header::ALLOW, names);
    }
    response
}

/// The one value that each parameter of a query has.
///
/// # Errors
/// When one is not among those known, or is there twice.
pub(super) fn query<const N: usize>(
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
        let Some(at) = known.iter().position(|known| *known == name) else {
            let detail = match known.is_empty() {
                true => "no query parameter is known here".to_owned(),
                false => format!(
                    "only these query parameters are known here: {}",
                    known.join(", ")
                ),
            };
            return Err(Problem::new(Code::BadQuery, detail));
        };
        if values[at].replace(decoded(value)?).is_some() {
            let detail = format!("`{}` is given twice", known[at]);
            return Err(Problem::new(Code::BadQuery, detail));
        }
    }
    Ok(values)
}

/// A part of a path or a query without its percent signs.
pub(super) fn decoded(text: &str) -> Result<String, Problem> {
    let wrong = || {
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
                .ok_or_else(wrong)
        };
        bytes.push(digit()? << 4 | digit()?);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_strictly() {
        assert_eq!(query(None, ["status"]), Ok([None]));
        assert_eq!(
            query(Some("status=200"), ["status"]),
            Ok([Some("200".into())])
        );
        assert_eq!(query(Some("a=%C3%A9&&"), ["a"]), Ok([Some("é".into())]));
        for wrong in [
            "x=1",
            "status=1&status=1",
            "status=%",
            "status=%zz",
            "status=%ff",
        ] {
            let problem = query(Some(wrong), ["status"]).unwrap_err();
            assert_eq!(problem.code, Code::BadQuery, "{wrong}");
        }
    }

    #[test]
    fn an_error_does_not_repeat_a_value() {
        let problem = parse::<u32>(b"\"s3cret\"").unwrap_err();
        assert_eq!(problem.code, Code::BadField);
        assert_eq!(problem.detail, "a value is not u32 (line 1 column 8)");
        let problem = parse::<u32>(b"12x").unwrap_err();
        assert_eq!(problem.code, Code::MalformedJson);
    }
}
