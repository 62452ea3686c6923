//! The keys of counters in Redis: injective, bounded in length, and without secrets in clear text.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tallygate_core::Quota;

use crate::key::Key;
use crate::limit::Limit;

/// The prefix of every key; the number is the version of the format.
const PREFIX: &[u8] = b"tallygate:1:";
/// Longer keys, limit names and namespaces are hashed.
const MAX_TEXT_BYTES: usize = 128;

#[derive(Clone, Debug, Default)]
pub(super) struct Keyspace {
    namespace: Vec<u8>,
}

impl Keyspace {
    pub(super) fn new(namespace: &str) -> Self {
        let mut text = Vec::new();
        if !namespace.is_empty() {
            let mut name = Vec::new();
            write_bounded(&mut name, namespace.as_bytes());
            // `:` ends the namespace: otherwise `clear` of `a` would delete the keys of `a:b`.
            for byte in name {
                match byte {
                    b':' => text.extend_from_slice(b"%3a"),
                    byte => text.push(byte),
                }
            }
            text.push(b':');
        }
        Keyspace { namespace: text }
    }

    /// A `SCAN` pattern that matches every key of this store and, with a namespace, no other.
    pub(super) fn scan_pattern(&self) -> Vec<u8> {
        let mut pattern = Vec::new();
        for &byte in [PREFIX, &self.namespace].concat().iter() {
            if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\') {
                pattern.push(b'\\');
            }
            pattern.push(byte);
        }
        pattern.push(b'*');
        pattern
    }

    /// The key of the replica list. It has no braces, unlike every counter.
    pub(super) fn replicas_key(&self) -> Vec<u8> {
        [PREFIX, &self.namespace, b"replicas"].concat()
    }

    /// The key of a counter: the limited key in braces, which select the slot, then the limit.
    pub(super) fn counter_key(&self, key: &Key<'_>, limit: &Limit) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(PREFIX);
        out.extend_from_slice(&self.namespace);
        out.push(b'{');
        write_tag(&mut out, key);
        out.push(b'}');
        out.extend_from_slice(limit.suffix());
        out
    }
}

/// The part of a key that identifies a limit: algorithm, period, and the name unless it is the default.
pub(crate) fn suffix(name: &str, quota: &Quota) -> Arc<[u8]> {
    let mut suffix = vec![quota.algorithm().letter()];
    suffix.extend_from_slice(quota.period_text().as_bytes());
    if name != quota.default_name() {
        suffix.push(b':');
        write_bounded(&mut suffix, name.as_bytes());
    }
    suffix.into()
}

/// Writes a key's parts, separated by `|`. A key that is too long is hashed as a whole.
fn write_tag(out: &mut Vec<u8>, key: &Key<'_>) {
    let start = out.len();
    let mut parts = 0;
    for part in key.parts() {
        if parts > 0 {
            out.push(b'|');
        }
        if part.secret {
            out.extend_from_slice(b"%#");
            write_hash(out, part.bytes);
        } else {
            write_escaped(out, part.bytes);
        }
        parts += 1;
    }
    if parts == 0 {
        out.extend_from_slice(b"%0");
    }
    if out.len() - start > MAX_TEXT_BYTES {
        let whole = out.split_off(start);
        out.extend_from_slice(b"%*");
        write_hash(out, &whole);
    }
}

fn write_bounded(out: &mut Vec<u8>, text: &[u8]) {
    if text.len() > MAX_TEXT_BYTES {
        out.extend_from_slice(b"%*");
        write_hash(out, text);
    } else {
        write_escaped(out, text);
    }
}

/// Writes bytes, escaping the separators (`% { } |`), spaces and control characters. An empty text
/// becomes `%_`.
fn write_escaped(out: &mut Vec<u8>, text: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    if text.is_empty() {
        out.extend_from_slice(b"%_");
    }
    let is_special = |byte: &u8| matches!(byte, b'%' | b'{' | b'}' | b'|' | 0..=b' ' | 0x7f);
    let mut rest = text;
    while let Some(at) = rest.iter().position(is_special) {
        let byte = usize::from(rest[at]);
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[b'%', HEX[byte >> 4], HEX[byte & 15]]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Writes 128 bits of a cryptographic hash.
fn write_hash(out: &mut Vec<u8>, text: &[u8]) {
    for byte in &Sha256::digest(text)[..16] {
        out.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
}

pub(super) fn slot(key: &[u8]) -> u16 {
    let open = key.iter().position(|&byte| byte == b'{');
    let tagged = open.and_then(|open| {
        let inside = &key[open + 1..];
        let close = inside.iter().position(|&byte| byte == b'}')?;
        (close > 0).then(|| &inside[..close])
    });
    crc16(tagged.unwrap_or(key)) % 16_384
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                crc << 1 ^ 0x1021
            }
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn counter_key(key: &Key<'_>, limit: &Limit) -> String {
        String::from_utf8(Keyspace::default().counter_key(key, limit)).unwrap()
    }

    fn per_minute() -> Limit {
        Limit::from("100/min".parse::<tallygate_core::Quota>().unwrap())
    }

    #[test]
    fn keys_are_short_and_readable() {
        let limit = per_minute();
        assert_eq!(
            counter_key(&"user:42".into(), &limit),
            "tallygate:1:{user:42}cmin"
        );
        let login = Limit::named("login", *limit.quota());
        let key = Key::from_parts(["tenant", "", "a|b{c}"]);
        assert_eq!(
            counter_key(&key, &login),
            "tallygate:1:{tenant|%_|a%7cb%7bc%7d}cmin:login"
        );
    }

    #[test]
    fn distinct_counters_have_distinct_keys() {
        let quotas = [
            "100/min",
            "fixed-window 100/min",
            "100/h",
            "leaky-bucket 1/s queue 2",
        ];
        let quotas = quotas.map(|text| text.parse::<tallygate_core::Quota>().unwrap());
        let mut limits: Vec<Limit> = quotas.into_iter().map(Limit::from).collect();
        let long = "n".repeat(500);
        for text in ["", "a", ":a", "a:", "%", "%_", &long, "cmin", "min"] {
            limits.push(Limit::named(text, quotas[0]));
        }
        let mut keys: Vec<Key<'_>> = vec![Key::from_parts::<&str>([]), Key::secret("a")];
        keys.push(Key::secret("a").and("b"));
        keys.push(Key::from("a").and_secret("b"));
        let parts = [
            "", "a", "b", "|", "a|b", "%", "%_", "%0", "{", "}", "a}cmin", "\0", &long,
        ];
        for one in parts {
            keys.push(one.into());
            keys.extend(parts.iter().map(|two| Key::from_parts([one, two])));
        }
        let mut seen = HashMap::new();
        for (i, key) in keys.iter().enumerate() {
            for (j, limit) in limits.iter().enumerate() {
                let stored = Keyspace::default().counter_key(key, limit);
                assert!(stored.len() < 320, "{} bytes", stored.len());
                let text = String::from_utf8_lossy(&stored).into_owned();
                assert_eq!(seen.insert(stored, (i, j)), None, "{text} twice");
            }
        }
    }

    #[test]
    fn no_namespace_is_the_prefix_of_another() {
        let long = "a:".repeat(100);
        let namespaces = [
            "a", "a:", "a:b", ":", "a%3a", "a%", "%3a", &long, "replicas", "a*",
        ];
        let key =
            |namespace: &str| Keyspace::new(namespace).counter_key(&"k".into(), &per_minute());
        let replicas = |namespace: &str| Keyspace::new(namespace).replicas_key();
        for one in namespaces {
            let pattern = Keyspace::new(one).scan_pattern();
            let prefix: Vec<u8> = pattern.into_iter().filter(|&byte| byte != b'\\').collect();
            let prefix = prefix.strip_suffix(b"*").unwrap();
            for other in namespaces {
                assert_eq!(
                    key(other).starts_with(prefix),
                    one == other,
                    "{one} {other}"
                );
                assert_eq!(
                    replicas(other).starts_with(prefix),
                    one == other,
                    "{one} {other}"
                );
            }
            assert!(!key("").starts_with(prefix), "{one}");
        }
    }

    #[test]
    fn a_secret_is_not_in_the_key() {
        let key_text = counter_key(&Key::from("tenant").and_secret("hunter2"), &per_minute());
        assert!(key_text.starts_with("tallygate:1:{tenant|%#"), "{key_text}");
        assert!(!key_text.contains("hunter2"));
    }

    #[test]
    fn slots_match_the_servers() {
        // As returned by CLUSTER KEYSLOT.
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"x{foo}y{bar}"), 12182);
        assert_eq!(slot(b"foo{}{bar}"), 8363);
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }
}
