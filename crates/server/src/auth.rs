//! Authorization of administrators: the admin token, and what requests from this machine may do
//! without it.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::Failure;

/// Shorter tokens can be guessed.
const MIN_TOKEN_BYTES: usize = 16;

/// The admin token. Only its hash is stored. Not `Debug`: a short token can be guessed from it.
#[derive(Clone)]
pub(crate) struct Token([u8; 32]);

impl Token {
    /// Creates a token; surrounding white space is ignored.
    ///
    /// # Errors
    /// When it is too short.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < MIN_TOKEN_BYTES {
            let length = text.len();
            return Err(format!(
                "the admin token has {length} characters, which is below {MIN_TOKEN_BYTES}"
            ));
        }
        Ok(Token(Sha256::digest(text).into()))
    }

    /// Whether a request carries the token, exactly once.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return false;
        };
        let scheme = b"bearer ";
        let Some((given_scheme, token)) = value.as_bytes().split_at_checked(scheme.len()) else {
            return false;
        };
        let hash: [u8; 32] = Sha256::digest(token.trim_ascii()).into();
        given_scheme.eq_ignore_ascii_case(scheme) && bool::from(hash.ct_eq(&self.0))
    }
}

/// The text of the admin token: of a file, or else of the environment.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn read_token(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let text =
        match file {
            Some(path) => Some(fs::read_to_string(path).map_err(|error| {
                Failure::Input(format!("cannot read {}: {error}", path.display()))
            })?),
            // Compose files pass unset variables on as empty ones.
            None => std::env::var("TALLYGATE_ADMIN_TOKEN")
                .ok()
                .filter(|text| !text.trim().is_empty()),
        };
    Ok(text.map(|text| text.trim().to_owned()))
}

/// Whether a request may read state: it comes from this machine, or carries the token.
pub(crate) fn may_read(token: Option<&Token>, peer: IpAddr, headers: &HeaderMap) -> bool {
    is_local(peer, headers) || token.is_some_and(|token| token.is_in(headers))
}

/// Whether a request may change state: it carries the token or, if there is none, comes from this
/// machine.
pub(crate) fn may_change(token: Option<&Token>, peer: IpAddr, headers: &HeaderMap) -> bool {
    match token {
        Some(token) => token.is_in(headers),
        None => is_local(peer, headers),
    }
}

/// Whether a request comes from this machine, and neither through a local proxy nor from a web page
/// by DNS rebinding.
fn is_local(peer: IpAddr, headers: &HeaderMap) -> bool {
    let forwarded = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
    let is_local_name = |host: &[u8]| {
        let host = String::from_utf8_lossy(host).to_ascii_lowercase();
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next(),
            None => host.split(':').next(),
        };
        name.is_some_and(|name| {
            let ip = name.parse::<IpAddr>();
            name == "localhost" || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
        })
    };
    let mut hosts = headers.get_all(HOST).iter();
    peer.to_canonical().is_loopback()
        && !forwarded.iter().any(|name| headers.contains_key(*name))
        && hosts.all(|host| is_local_name(host.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            let name = http::HeaderName::from_static(name);
            (name, value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn without_a_token_only_local_requests_are_authorized() {
        let local: IpAddr = "127.0.0.1".parse().unwrap();
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let remote: IpAddr = "192.0.2.1".parse().unwrap();
        for host in ["localhost:8090", "127.0.0.1", "[::1]:8090", "LOCALHOST"] {
            assert!(
                may_change(None, local, &headers(&[("host", host)])),
                "{host}"
            );
        }
        assert!(may_change(None, mapped, &HeaderMap::new()));
        assert!(!may_change(None, remote, &HeaderMap::new()));
        for (name, value) in [
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
            ("via", "1.1 nginx"),
            ("host", "evil.example:8090"),
            ("host", ""),
        ] {
            assert!(
                !may_change(None, local, &headers(&[(name, value)])),
                "{name}"
            );
        }
    }

    #[test]
    fn a_token_must_match_whole_and_occur_once() {
        let token = Token::new(" 0123456789abcdef\n").unwrap();
        let remote: IpAddr = "192.0.2.1".parse().unwrap();
        let is_authorized_by =
            |value: &str| may_change(Some(&token), remote, &headers(&[("authorization", value)]));
        assert!(is_authorized_by("Bearer 0123456789abcdef"));
        assert!(is_authorized_by("bearer 0123456789abcdef"));
        for wrong in [
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer",
            "",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert!(!is_authorized_by(wrong), "{wrong}");
        }
        let twice = [("authorization", "Bearer 0123456789abcdef"); 2];
        let mut both = HeaderMap::new();
        for (name, value) in twice {
            both.append(name, value.parse().unwrap());
        }
        assert!(!may_change(Some(&token), remote, &both));
        assert!(Token::new("short").is_err());
    }

    #[test]
    fn with_a_token_local_requests_may_only_read_without_it() {
        let token = Token::new("0123456789abcdef").unwrap();
        let local: IpAddr = "127.0.0.1".parse().unwrap();
        assert!(may_read(Some(&token), local, &HeaderMap::new()));
        assert!(!may_change(Some(&token), local, &HeaderMap::new()));
        let given = headers(&[("authorization", "Bearer 0123456789abcdef")]);
        assert!(may_change(Some(&token), local, &given));
    }
}
