//! Keys in the form that people may see: a short hash, or in clear if configured. The hash of a key
//! stays the same while the process runs.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use tallygate::Key;

use crate::random::random_u128;

pub(crate) const HASH_DIGITS: usize = 12;

pub(crate) struct Redactor {
    /// Prevents guessing likely keys from their hash.
    salt: [u8; 16],
    show_keys: bool,
}

impl Redactor {
    /// Hashes keys, or with `show_keys` only secrets.
    pub(crate) fn new(show_keys: bool) -> Self {
        Redactor {
            salt: random_u128().to_le_bytes(),
            show_keys,
        }
    }

    pub(crate) fn shows_keys(&self) -> bool {
        self.show_keys
    }

    pub(crate) fn hash<P: AsRef<[u8]>>(&self, parts: impl IntoIterator<Item = P>) -> String {
        let mut hasher = Sha256::new_with_prefix(self.salt);
        for part in parts {
            let part = part.as_ref();
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        format!("#{:.HASH_DIGITS$x}", hasher.finalize())
    }

    /// Redacts the first parts of a key. In clear it is written as in the path
    /// `/admin/keys/{key}`; secrets are hashed all the same.
    pub(crate) fn redact(&self, key: &Key<'_>, parts: usize) -> String {
        let parts = key.parts().take(parts);
        if !self.show_keys {
            return self.hash(parts.map(|part| part.bytes));
        }
        let mut text = String::new();
        for (i, part) in parts.enumerate() {
            if i > 0 {
                text.push(',');
            }
            match part.secret {
                true => text.push_str(&self.hash([part.bytes])),
                false => percent_encode(&mut text, part.bytes),
            }
        }
        text
    }
}

fn percent_encode(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => text.push(char::from(*byte)),
            b'-' | b'.' | b'_' | b'~' | b':' | b'@' | b'+' | b'=' => text.push(char::from(*byte)),
            _ => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_differ_by_parts_and_process() {
        let redactor = Redactor::new(false);
        assert_eq!(redactor.hash(["a", "b"]), redactor.hash(["a", "b"]));
        assert_ne!(redactor.hash(["a", "b"]), redactor.hash(["ab"]));
        assert_ne!(redactor.hash(["a"]), Redactor::new(false).hash(["a"]));
        assert_eq!(redactor.hash(["a"]).len(), 13);
        let key = Key::from("a");
        assert_eq!(redactor.redact(&key, 9), redactor.hash(["a"]));
    }

    #[test]
    fn the_salt_does_not_follow_from_a_seed_of_64_bits() {
        let hash = || {
            fastrand::seed(7);
            Redactor::new(false).hash(["a"])
        };
        assert_ne!(hash(), hash());
    }

    #[test]
    fn a_secret_is_never_shown() {
        let redactor = Redactor::new(true);
        let key = Key::from("ann, b/c").and_secret("hunter2").and("ü");
        let hash = redactor.hash(["hunter2"]);
        let shown = format!("ann%2C%20b%2Fc,{hash},%C3%BC");
        assert_eq!(redactor.redact(&key, 9), shown);
        assert_eq!(redactor.redact(&key, 1), "ann%2C%20b%2Fc");
        let secret = Key::secret("x");
        assert_eq!(redactor.redact(&secret, 9), redactor.hash(["x"]));
    }
}
