//! The administrators' token, and who needs none. Knows headers; knows nothing of what is asked.

use std::fmt;
use std::net::IpAddr;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The fewest characters of a token: a shorter one can be guessed.
const SHORTEST: usize = 16;

/// What administrators away from this machine prove themselves with. Only its hash is kept.
#[derive(Clone)]
pub(crate) struct Token([u8; 32]);

impl Token {
    /// Takes a token from a file or variable; white space around it does not count.
    ///
    /// # Errors
    /// When it is too short.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < SHORTEST {
            let length = text.len();
            return Err(format!(
                "the admin token has {length} characters, which is below {SHORTEST}"
            ));
        }
        Ok(Token(Sha256::digest(text).into()))
    }

    /// Whether a request carries it.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return false;
        };
        let scheme = b"bearer ";
        let Some((given, said)) = value.as_bytes().split_at_checked(scheme.len()) else {
            return false;
        };
        let hash: [u8; 32] = Sha256::digest(said.trim_ascii()).into();
        given.eq_ignore_ascii_case(scheme) && bool::from(hash.ct_eq(&self.0))
    }
}

/// Whether whoever asks may change things: from this machine, or with the token.
pub(crate) fn may_change(token: Option<&Token>, peer: IpAddr, headers: &HeaderMap) -> bool {
    is_at_home(peer, headers) || token.is_some_and(|token| token.is_in(headers))
}

/// Whether a request comes from this machine: not through a proxy on it, nor from a page of
/// somebody else's in a browser that was told our address under their name.
fn is_at_home(peer: IpAddr, headers: &HeaderMap) -> bool {
    let forwarded = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
    let named_us = |host: &[u8]| {
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
        && hosts.all(|host| named_us(host.as_bytes()))
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
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
    fn only_those_at_home_need_no_token() {
        let home: IpAddr = "127.0.0.1".parse().unwrap();
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let away: IpAddr = "192.0.2.1".parse().unwrap();
        for host in ["localhost:8090", "127.0.0.1", "[::1]:8090", "LOCALHOST"] {
            assert!(
                may_change(None, home, &headers(&[("host", host)])),
                "{host}"
            );
        }
        assert!(may_change(None, mapped, &HeaderMap::new()));
        assert!(!may_change(None, away, &HeaderMap::new()));
        for (name, value) in [
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
            ("via", "1.1 nginx"),
            ("host", "evil.example:8090"),
            ("host", ""),
        ] {
            assert!(
                !may_change(None, home, &headers(&[(name, value)])),
                "{name}"
            );
        }
    }

    #[test]
    fn a_token_is_taken_whole_and_once() {
        let token = Token::new(" 0123456789abcdef\n").unwrap();
        let away: IpAddr = "192.0.2.1".parse().unwrap();
        let asks =
            |value: &str| may_change(Some(&token), away, &headers(&[("authorization", value)]));
        assert!(asks("Bearer 0123456789abcdef"));
        assert!(asks("bearer 0123456789abcdef"));
        for wrong in [
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer",
            "",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert!(!asks(wrong), "{wrong}");
        }
        let twice = [("authorization", "Bearer 0123456789abcdef"); 2];
        let mut both = HeaderMap::new();
        for (name, value) in twice {
            both.append(name, value.parse().unwrap());
        }
        assert!(!may_change(Some(&token), away, &both));
        assert!(Token::new("short").is_err());
        assert_eq!(format!("{token:?}"), "Token");
    }
}
