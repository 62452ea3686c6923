//! The keys of counters in Redis: injective, bounded in length, and without secrets in clear text.

mod hash_tags;

use std::sync::Arc;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use tallygate_core::Quota;

use crate::key::Key;
use crate::limit::Limit;
pub(super) use hash_tags::HashTags;

/// The prefix of every key; the number is the version of the format.
const PREFIX: &[u8] = b"tallygate:1:";
/// The prefix of counters with a hash tag, which is in braces before the limited key.
const TAGGED_PREFIX: &[u8] = b"tallygate:2:";
/// Both, in a `SCAN` pattern.
const ANY_PREFIX: &[u8] = b"tallygate:[12]:";
/// Longer keys, limit names and namespaces are hashed.
const MAX_TEXT_BYTES: usize = 128;

/// Not `Debug`: it has a secret.
#[derive(Clone, Default)]
pub(super) struct Keyspace {
    namespace: Vec<u8>,
    secrets: SecretHash,
    /// Select the slots of counters, instead of the limited keys.
    hash_tags: Option<Arc<HashTags>>,
}

/// How the secrets in keys are hashed. Everybody can compute the hash of a likely one, unless it is
/// keyed.
#[derive(Clone, Default)]
enum SecretHash {
    #[default]
    Sha256,
    HmacSha256(Hmac<Sha256>),
}

impl SecretHash {
    /// Writes 128 bits of the hash.
    fn write(&self, out: &mut Vec<u8>, secret: &[u8]) {
        match self {
            SecretHash::Sha256 => write_hash(out, secret),
            SecretHash::HmacSha256(keyed) => {
                let digest = keyed.clone().chain_update(secret).finalize();
                write_digest(out, &digest.into_bytes());
            }
        }
    }
}

impl Keyspace {
    pub(super) fn new(namespace: &str, hmac_secret: Option<&[u8]>) -> Self {
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
        let keyed = hmac_secret.map(|secret| {
            let keyed = Hmac::new_from_slice(secret).expect("HMAC takes keys of any length");
            SecretHash::HmacSha256(keyed)
        });
        Keyspace {
            namespace: text,
            secrets: keyed.unwrap_or_default(),
            hash_tags: None,
        }
    }

    /// Puts all counters under a few hash tags.
    pub(super) fn with_hash_tags(mut self, tags: HashTags) -> Self {
        self.hash_tags = Some(Arc::new(tags));
        self
    }

    /// The number of hash tags, if it has some.
    pub(super) fn hash_tags(&self) -> Option<usize> {
        Some(self.hash_tags.as_ref()?.len())
    }

    /// A `SCAN` pattern that matches every key of this store, in both formats, and, with a namespace,
    /// no other.
    pub(super) fn scan_pattern(&self) -> Vec<u8> {
        let mut pattern = ANY_PREFIX.to_vec();
        for &byte in &self.namespace {
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

    /// The key of a counter: the limited key in braces, which select the slot, then the limit. With
    /// hash tags, one of them is in braces before it.
    pub(super) fn counter_key(&self, key: &Key<'_>, limit: &Limit) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let Some(tags) = &self.hash_tags else {
            out.extend_from_slice(PREFIX);
            out.extend_from_slice(&self.namespace);
            self.write_key(&mut out, key, limit);
            return out;
        };
        out.extend_from_slice(TAGGED_PREFIX);
        out.extend_from_slice(&self.namespace);
        out.push(b'{');
        let tag_at = out.len();
        out.extend_from_slice(&[0; HashTags::BYTES]);
        out.push(b'}');
        let key_at = out.len();
        self.write_key(&mut out, key, limit);
        // All limits of a key have the same tag.
        let tag = tags.select(tag(&out[key_at..]));
        out[tag_at..][..HashTags::BYTES].copy_from_slice(tag);
        out
    }

    fn write_key(&self, out: &mut Vec<u8>, key: &Key<'_>, limit: &Limit) {
        out.push(b'{');
        self.write_tag(out, key);
        out.push(b'}');
        out.extend_from_slice(limit.suffix());
    }

    /// The name of a member or an owner as it is stored; never empty. An empty one is the same as none.
    pub(super) fn name(&self, name: Option<&Key<'_>>) -> Box<[u8]> {
        let mut out = Vec::new();
        match name {
            Some(name) if !name.identity().0.is_empty() => self.write_tag(&mut out, name),
            _ => write_escaped(&mut out, b""),
        }
        out.into()
    }

    /// The key of a reservation of a counter. No suffix of a counter's other keys starts like this.
    pub(super) fn reservation_key(&self, counter: &[u8], id: &Key<'_>) -> Box<[u8]> {
        let mut out = [counter, b"|r"].concat();
        self.write_tag(&mut out, id);
        out.into()
    }

    /// Writes a key's parts, separated by `|`. A key that is too long is hashed as a whole.
    fn write_tag(&self, out: &mut Vec<u8>, key: &Key<'_>) {
        let start = out.len();
        let mut parts = 0;
        for part in key.parts() {
            if parts > 0 {
                out.push(b'|');
            }
            if part.secret {
                out.extend_from_slice(b"%#");
                self.secrets.write(out, part.bytes);
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
    write_digest(out, &Sha256::digest(text));
}

fn write_digest(out: &mut Vec<u8>, digest: &[u8]) {
    for byte in &digest[..16] {
        out.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
}

/// The slot of a key in a cluster.
pub(super) fn slot(key: &[u8]) -> u16 {
    crc16(tag(key)) % 16_384
}

/// The part of a key in braces, or the whole key: counters with the same tag are on the same server.
pub(super) fn tag(key: &[u8]) -> &[u8] {
    let open = key.iter().position(|&byte| byte == b'{');
    let tag = open.and_then(|open| {
        let inside = &key[open + 1..];
        let close = inside.iter().position(|&byte| byte == b'}')?;
        (close > 0).then(|| &inside[..close])
    });
    tag.unwrap_or(key)
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        crc << 8 ^ CRC16[usize::from(crc >> 8 ^ u16::from(byte))]
    })
}

/// The checksum of each byte.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                crc << 1 ^ 0x1021
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// FNV-1a, and a final mix. It must never change: all processes have to agree on the shard, or the
/// hash tag, of a key.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let fnv = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    mix(fnv)
}

/// The finalizer of SplitMix64: every bit of the input affects every bit of the result.
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
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

    fn tagged(count: u32) -> Keyspace {
        Keyspace::default().with_hash_tags(HashTags::new(count))
    }

    #[test]
    fn with_hash_tags_a_tag_selects_the_slot() {
        let keyspace = tagged(64);
        let stored = keyspace.counter_key(&"user:42".into(), &per_minute());
        assert_eq!(
            String::from_utf8_lossy(&stored),
            "tallygate:2:{03aa}{user:42}cmin"
        );
        assert_eq!(slot(&stored), slot(tag(&stored)));
        let names = Keyspace::new("a:b", None).with_hash_tags(HashTags::new(64));
        let stored = names.counter_key(&"user:42".into(), &per_minute());
        assert_eq!(
            String::from_utf8_lossy(&stored),
            "tallygate:2:a%3ab:{03aa}{user:42}cmin"
        );
    }

    #[test]
    fn all_limits_of_a_key_have_the_same_tag() {
        let keyspace = tagged(1_024);
        let mut tags = HashMap::new();
        for key in 0..500 {
            let key = Key::from(key.to_string()).and_secret("s");
            let login = Limit::named("login", *per_minute().quota());
            let stored = [per_minute(), login].map(|limit| keyspace.counter_key(&key, &limit));
            assert_eq!(tag(&stored[0]), tag(&stored[1]));
            *tags.entry(tag(&stored[0]).to_vec()).or_insert(0) += 1;
        }
        assert!(tags.len() > 300, "{}", tags.len());
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
        let (plain, coarse) = (Keyspace::default(), tagged(1));
        let mut seen = HashMap::new();
        for (i, key) in keys.iter().enumerate() {
            for (j, limit) in limits.iter().enumerate() {
                for keyspace in [&plain, &coarse] {
                    let stored = keyspace.counter_key(key, limit);
                    assert!(stored.len() < 320, "{} bytes", stored.len());
                    let text = String::from_utf8_lossy(&stored).into_owned();
                    assert_eq!(seen.insert(stored, (i, j)), None, "{text} twice");
                }
            }
        }
    }

    #[test]
    fn the_further_keys_of_counters_are_distinct_and_in_the_same_slot() {
        let keyspace = Keyspace::default();
        let quotas = [
            "concurrent 3 for 1min",
            "token-bucket 9/min burst 9 shared 2",
            "9/min",
        ];
        let names = [
            "",
            "0",
            "1",
            "u",
            "r",
            "|0",
            "|u",
            "|r",
            "r0",
            &"n".repeat(500),
        ];
        let mut seen = HashMap::new();
        for text in quotas {
            let quota: tallygate_core::Quota = text.parse().unwrap();
            let named = names.iter().map(|name| Limit::named(name, quota));
            for (i, limit) in [Limit::from(quota)].into_iter().chain(named).enumerate() {
                let counter = keyspace.counter_key(&"k".into(), &limit);
                let further = tallygate_core::lua::key_suffixes(&quota).iter();
                let further = further.map(|suffix| [&counter, suffix.as_bytes()].concat());
                let ids = names.iter().map(|id| Key::from(*id));
                let ids = ids.chain([Key::secret("u"), Key::from_parts(["r", "0"])]);
                let ids = ids.map(|id| keyspace.reservation_key(&counter, &id).into_vec());
                let all = [counter.clone()].into_iter().chain(further).chain(ids);
                for key in all {
                    assert_eq!(slot(&key), slot(&counter));
                    let shown = String::from_utf8_lossy(&key).into_owned();
                    assert_eq!(seen.insert(key, (text, i)), None, "{shown} twice");
                }
            }
        }
    }

    #[test]
    fn names_are_distinct_short_and_never_empty() {
        let keyspace = Keyspace::default();
        let long = "n".repeat(1 << 20);
        let names = ["a", "%_", "a|b", " ", "\0", &long].map(Key::from);
        let names = names
            .into_iter()
            .chain([Key::secret("a"), Key::from_parts(["a", "b"])]);
        let mut seen = HashMap::new();
        for name in names {
            let stored = keyspace.name(Some(&name));
            assert!((1..=128).contains(&stored.len()));
            assert_eq!(seen.insert(stored, ()), None);
        }
        let nameless = keyspace.name(None);
        assert_eq!(keyspace.name(Some(&Key::from(""))), nameless);
        assert_eq!(keyspace.name(Some(&Key::secret(""))), nameless);
        assert!(!nameless.is_empty() && !seen.contains_key(&nameless));
    }

    #[test]
    fn no_namespace_is_the_prefix_of_another() {
        let long = "a:".repeat(100);
        let namespaces = [
            "a", "a:", "a:b", ":", "a%3a", "a%", "%3a", &long, "replicas", "a*",
        ];
        let key = |namespace: &str, tags: bool| {
            let keyspace = Keyspace::new(namespace, None);
            let keyspace = match tags {
                true => keyspace.with_hash_tags(HashTags::new(64)),
                false => keyspace,
            };
            keyspace.counter_key(&"k".into(), &per_minute())
        };
        let replicas = |namespace: &str| Keyspace::new(namespace, None).replicas_key();
        for one in namespaces {
            let pattern = Keyspace::new(one, None).scan_pattern();
            let pattern = String::from_utf8(pattern).unwrap().replace('\\', "");
            let pattern = pattern.strip_suffix('*').unwrap();
            for (format, tags) in [("1", false), ("2", true)] {
                let prefix = pattern.replacen("[12]", format, 1);
                let prefix = prefix.as_bytes();
                for other in namespaces {
                    let matches = key(other, tags).starts_with(prefix);
                    assert_eq!(matches, one == other, "{one} {other}");
                    let matches = replicas(other).starts_with(prefix);
                    assert_eq!(matches, one == other && !tags, "{one} {other}");
                }
                assert!(!key("", tags).starts_with(prefix), "{one}");
            }
        }
    }

    #[test]
    fn a_secret_is_not_in_the_key() {
        let key_text = counter_key(&Key::from("tenant").and_secret("hunter2"), &per_minute());
        assert!(key_text.starts_with("tallygate:1:{tenant|%#"), "{key_text}");
        assert!(!key_text.contains("hunter2"));
    }

    #[test]
    fn with_an_hmac_secret_the_hash_of_a_secret_is_keyed() {
        // RFC 4231, test case 2.
        let keyspace = Keyspace::new("", Some(b"Jefe"));
        let key = Key::secret("what do ya want for nothing?");
        let stored = keyspace.counter_key(&key, &per_minute());
        assert_eq!(
            String::from_utf8_lossy(&stored),
            "tallygate:1:{%#5bdcc146bf60754e6a042426089575c7}cmin"
        );
        // Other keys are stored as without it.
        for key in [Key::from("user:42"), Key::from("k".repeat(500))] {
            let stored = keyspace.counter_key(&key, &per_minute());
            assert_eq!(stored, Keyspace::default().counter_key(&key, &per_minute()));
        }
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
