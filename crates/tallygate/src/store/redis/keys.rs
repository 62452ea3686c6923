//! What a counter is called in the store: injective, bounded, and never a secret in clear.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tallygate_core::Quota;

use crate::key::Key;
use crate::limit::Limit;

/// What every stored key begins with; the number is the format's version.
const PREFIX: &[u8] = b"tallygate:1:";
/// The longest key part and the longest limit name that are written out; longer ones are hashed.
const LONGEST: usize = 128;

/// The names of one store's counters.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// Between the prefix and the key, for stores that share a server.
    namespace: Vec<u8>,
}

impl Names {
    pub(super) fn within(namespace: &str) -> Self {
        let mut text = Vec::new();
        if !namespace.is_empty() {
            bounded(&mut text, namespace.as_bytes());
            text.push(b':');
        }
        Names { namespace: text }
    }

    /// Matches every name of this store and, under a namespace, no other.
    pub(super) fn pattern(&self) -> Vec<u8> {
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

    /// Names the list of those who share the counters; no counter is called so, for want of braces.
    pub(super) fn replicas(&self) -> Vec<u8> {
        [PREFIX, &self.namespace, b"replicas"].concat()
    }

    /// Names a counter: the key in braces, which say where in a cluster it lives, then the limit.
    pub(super) fn counter(&self, key: &Key<'_>, limit: &Limit) -> Vec<u8> {
        let mut name = Vec::with_capacity(64);
        name.extend_from_slice(PREFIX);
        name.extend_from_slice(&self.namespace);
        name.push(b'{');
        tag(&mut name, key);
        name.push(b'}');
        name.extend_from_slice(limit.suffix());
        name
    }
}

/// What stands for a limit: the behaviour, the period, and the name if it is one of its own.
pub(crate) fn suffix(name: &str, quota: &Quota) -> Arc<[u8]> {
    let mut suffix = vec![quota.algorithm().letter()];
    suffix.extend_from_slice(quota.period_text().as_bytes());
    if name != quota.default_name() {
        suffix.push(b':');
        bounded(&mut suffix, name.as_bytes());
    }
    suffix.into()
}

/// Writes a key's parts, `|` between them. What is too long is hashed as a whole.
fn tag(name: &mut Vec<u8>, key: &Key<'_>) {
    let start = name.len();
    let mut parts = 0;
    for part in key.parts() {
        if parts > 0 {
            name.push(b'|');
        }
        if part.secret {
            name.extend_from_slice(b"%#");
            hash(name, part.bytes);
        } else {
            escape(name, part.bytes);
        }
        parts += 1;
    }
    if parts == 0 {
        name.extend_from_slice(b"%0");
    }
    if name.len() - start > LONGEST {
        let whole = name.split_off(start);
        name.extend_from_slice(b"%*");
        hash(name, &whole);
    }
}

fn bounded(name: &mut Vec<u8>, text: &[u8]) {
    if text.len() > LONGEST {
        name.extend_from_slice(b"%*");
        hash(name, text);
    } else {
        escape(name, text);
    }
}

/// Writes bytes so that what the names are made of (`% { } | :`), and what no terminal shows,
/// cannot occur in them. An empty text is `%_`.
fn escape(name: &mut Vec<u8>, text: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    if text.is_empty() {
        name.extend_from_slice(b"%_");
    }
    let is_special = |byte: &u8| matches!(byte, b'%' | b'{' | b'}' | b'|' | 0..=b' ' | 0x7f);
    let mut rest = text;
    while let Some(at) = rest.iter().position(is_special) {
        let byte = usize::from(rest[at]);
        name.extend_from_slice(&rest[..at]);
        name.extend_from_slice(&[b'%', HEX[byte >> 4], HEX[byte & 15]]);
        rest = &rest[at + 1..];
    }
    name.extend_from_slice(rest);
}

/// Writes 128 bits of a hash that nobody can aim at.
fn hash(name: &mut Vec<u8>, text: &[u8]) {
    for byte in &Sha256::digest(text)[..16] {
        name.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
}

/// Where in a cluster a key lives: a number below 16,384.
pub(super) fn slot(name: &[u8]) -> u16 {
    let open = name.iter().position(|&byte| byte == b'{');
    let tagged = open.and_then(|open| {
        let inside = &name[open + 1..];
        let close = inside.iter().position(|&byte| byte == b'}')?;
        (close > 0).then(|| &inside[..close])
    });
    crc16(tagged.unwrap_or(name)) % 16_384
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

    fn name(key: &Key<'_>, limit: &Limit) -> String {
        String::from_utf8(Names::default().counter(key, limit)).unwrap()
    }

    fn per_minute() -> Limit {
        Limit::from("100/min".parse::<tallygate_core::Quota>().unwrap())
    }

    #[test]
    fn names_are_short_and_readable() {
        let limit = per_minute();
        assert_eq!(name(&"user:42".into(), &limit), "tallygate:1:{user:42}cmin");
        let login = Limit::named("login", *limit.quota());
        let key = Key::from_parts(["tenant", "", "a|b{c}"]);
        assert_eq!(
            name(&key, &login),
            "tallygate:1:{tenant|%_|a%7cb%7bc%7d}cmin:login"
        );
    }

    #[test]
    fn no_two_identities_meet() {
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
                let name = Names::default().counter(key, limit);
                assert!(name.len() < 320, "{} bytes", name.len());
                let text = String::from_utf8_lossy(&name).into_owned();
                assert_eq!(seen.insert(name, (i, j)), None, "{text} twice");
            }
        }
    }

    #[test]
    fn a_secret_is_not_in_its_name() {
        let name = name(&Key::from("tenant").and_secret("hunter2"), &per_minute());
        assert!(name.starts_with("tallygate:1:{tenant|%#"), "{name}");
        assert!(!name.contains("hunter2"));
    }

    #[test]
    fn slots_are_those_of_the_servers() {
        // As CLUSTER KEYSLOT answers.
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"x{foo}y{bar}"), 12182);
        assert_eq!(slot(b"foo{}{bar}"), 8363);
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }
}
