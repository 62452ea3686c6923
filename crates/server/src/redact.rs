//! Keys as people may see them: a short hash that stands for the same key as long as the process
//! runs, or in clear where that was asked for. Knows keys; knows nothing of where they are shown.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use tallygate::Key;

/// How many bytes of a hash are shown.
const SHOWN: usize = 6;

/// What keys are shown through.
pub(crate) struct Mask {
    /// Mixed into every hash: without it, likely keys could be tried out.
    salt: [u8; 16],
    clear: bool,
}

impl Mask {
    /// Hides every key.
    pub(crate) fn new() -> Self {
        let mut salt = [0; 16];
        fastrand::Rng::new().fill(&mut salt);
        let clear = false;
        Mask { salt, clear }
    }

    /// Shows keys in clear, but for secrets, where that is wanted.
    pub(crate) fn clear(mut self, clear: bool) -> Self {
        self.clear = clear;
        self
    }

    /// Whether keys are shown in clear.
    pub(crate) fn is_clear(&self) -> bool {
        self.clear
    }

    /// A short hash that stands for a key of these parts.
    pub(crate) fn hash<P: AsRef<[u8]>>(&self, parts: impl IntoIterator<Item = P>) -> String {
        let mut hasher = Sha256::new_with_prefix(self.salt);
        for part in parts {
            let part = part.as_ref();
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        let mut text = String::from("#");
        for byte in hasher.finalize().iter().take(SHOWN) {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// The first parts of a key as people may see it. In clear it is spelt as in the path
    /// `/admin/keys/{key}`; a secret is a hash all the same.
    pub(crate) fn show(&self, key: &Key<'_>, parts: usize) -> String {
        let shown = key.parts().take(parts);
        if !self.clear {
            return self.hash(shown.map(|part| part.bytes));
        }
        let mut text = String::new();
        for (i, part) in shown.enumerate() {
            if i > 0 {
                text.push(',');
            }
            match part.secret {
                true => text.push_str(&self.hash([part.bytes])),
                false => spell(&mut text, part.bytes),
            }
        }
        text
    }
}

/// Writes what a path can hold as it is, and the rest percent-encoded.
fn spell(text: &mut String, bytes: &[u8]) {
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
    fn a_hash_tells_keys_apart_and_shows_none() {
        let mask = Mask::new();
        assert_eq!(mask.hash(["a", "b"]), mask.hash(["a", "b"]));
        assert_ne!(mask.hash(["a", "b"]), mask.hash(["ab"]));
        assert_ne!(mask.hash(["a"]), Mask::new().hash(["a"]));
        assert_eq!(mask.hash(["a"]).len(), 13);
        assert_eq!(mask.show(&Key::from("a"), 9), mask.hash(["a"]));
    }

    #[test]
    fn a_secret_is_never_clear() {
        let mask = Mask::new().clear(true);
        let key = Key::from("ann, b/c").and_secret("hunter2").and("ü");
        let hidden = mask.hash(["hunter2"]);
        assert_eq!(
            mask.show(&key, 9),
            format!("ann%2C%20b%2Fc,{hidden},%C3%BC")
        );
        assert_eq!(mask.show(&key, 1), "ann%2C%20b%2Fc");
        assert_eq!(mask.show(&Key::secret("x"), 9), mask.hash(["x"]));
    }
}
