//! Reads a claim from a header. It is not verified: the proxy in front must do so, and must remove
//! the header that clients send.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

/// A longer header has no claim.
const MAX_BYTES: usize = 16 * 1024;

const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The claim with a name, from JSON, base64url of JSON, or a token with or without `Bearer`.
pub(super) fn find(name: &str, header: &[u8]) -> Option<Cow<'static, [u8]>> {
    if header.len() > MAX_BYTES {
        return None;
    }
    let text = without_scheme(header.trim_ascii());
    let Value::Object(mut claims) = claims(text)? else {
        return None;
    };
    let text = match claims.remove(name)? {
        Value::String(text) => text,
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) if number.is_i64() || number.is_u64() => number.to_string(),
        Value::Number(_) | Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(Cow::Owned(text.into_bytes()))
}

fn without_scheme(header: &[u8]) -> &[u8] {
    match header.split_at_checked(7) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"bearer ") => rest.trim_ascii(),
        Some(_) | None => header,
    }
}

fn claims(text: &[u8]) -> Option<Value> {
    if text.starts_with(b"{") {
        return serde_json::from_slice(text).ok();
    }
    let mut parts = text.split(|&byte| byte == b'.');
    let (first, second) = (parts.next()?, parts.next());
    let payload = second.unwrap_or(first);
    serde_json::from_slice(&BASE64URL.decode(payload).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: &str =
        r#"{"sub":"ann","n":7,"yes":true,"none":null,"deep":{"sub":"x"},"list":[1],"half":0.5}"#;

    fn text(name: &str, header: &str) -> Option<String> {
        let bytes = find(name, header.as_bytes())?;
        Some(String::from_utf8(bytes.into_owned()).unwrap())
    }

    #[test]
    fn a_claim_is_found_in_every_form() {
        let payload = BASE64URL.encode(PAYLOAD);
        let bare = payload.trim_end_matches('=').to_owned();
        for header in [
            PAYLOAD.to_owned(),
            format!("e30.{bare}.sig"),
            format!("Bearer e30.{bare}.sig"),
            format!("bearer  e30.{payload}."),
            payload,
            bare,
        ] {
            assert_eq!(text("sub", &header).as_deref(), Some("ann"), "{header}");
            assert_eq!(text("n", &header).as_deref(), Some("7"));
            assert_eq!(text("yes", &header).as_deref(), Some("true"));
            for none in ["none", "deep", "list", "half", "absent", ""] {
                assert_eq!(text(none, &header), None, "{none} of {header}");
            }
        }
    }

    #[test]
    fn malformed_tokens_have_no_claim() {
        let deep = format!("{{\"sub\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
        let long = format!("{{\"sub\":\"{}\"}}", "x".repeat(MAX_BYTES));
        for header in [
            "", ".", "..", "{", "[]", "Bearer", "Bearer ", "a.b.c", "\u{e9}", "{}",
        ] {
            assert_eq!(text("sub", header), None, "{header}");
        }
        assert_eq!(text("sub", &deep), None);
        assert_eq!(text("sub", &long), None);
    }
}
