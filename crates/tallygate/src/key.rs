//! Keys: whom a limit applies to. They compare and hash, and never print.

mod bytes;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use bytes::Bytes;
#[cfg(feature = "rules")]
pub(crate) use bytes::MAX_INLINE_BYTES;

/// Whom a limit applies to: one part, such as a user name, or several in order.
///
/// A part is any bytes, empty or large. Composition is injective: different lists of parts are
/// different keys. Text converts without a copy:
///
/// ```
/// use tallygate::Key;
///
/// let one: Key = "user:42".into();
/// let two = Key::from_parts(["tenant-7", "user-42"]);
/// assert_ne!(two, Key::from_parts(["tenant-7user-42"]));
/// assert_eq!(two, Key::from("tenant-7").and("user-42"));
/// # assert_ne!(one, two);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    /// A single part as it is; several, each after its length.
    bytes: Bytes<'a>,
    parts: u32,
    /// A bit for each secret part; the last bit stands for all further parts.
    secrets: u32,
}

/// One part of a key in plain text.
pub struct KeyPart<'k> {
    /// The bytes.
    pub bytes: &'k [u8],
    /// Whether it must not be shown; see [`Key::secret`].
    pub secret: bool,
}

impl<'a> Key<'a> {
    /// Builds a key from parts.
    pub fn from_parts<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Key<'static> {
        let mut parts = parts.into_iter().peekable();
        let Some(first) = parts.next() else {
            return Key {
                bytes: Bytes::Borrowed(&[]),
                parts: 0,
                secrets: 0,
            };
        };
        let key = Key::copied(first.as_ref());
        parts.fold(key, |key, part| key.and(part))
    }

    /// A key of one part, a copy of these bytes.
    fn copied(part: &[u8]) -> Key<'static> {
        Key::single(Bytes::copied(part))
    }

    /// A key of one part, the first of these bytes.
    #[cfg(feature = "rules")]
    #[inline]
    pub(crate) fn short(bytes: [u8; MAX_INLINE_BYTES], len: usize) -> Key<'static> {
        Key::single(Bytes::short(bytes, len))
    }

    #[inline]
    fn single(bytes: Bytes<'a>) -> Self {
        Key {
            bytes,
            parts: 1,
            secrets: 0,
        }
    }

    /// Builds a key of one secret part, such as an API key or a cookie: stores outside this process
    /// only see its hash.
    ///
    /// ```
    /// use tallygate::Key;
    ///
    /// let key = Key::from("tenant-7").and_secret("s3cr3t");
    /// assert_ne!(key, Key::from_parts(["tenant-7", "s3cr3t"]));
    /// # assert_eq!(Key::secret("x").and("y"), Key::secret("x").and("y"));
    /// ```
    pub fn secret(part: impl AsRef<[u8]>) -> Key<'static> {
        Key {
            secrets: secret_bit(0),
            ..Key::copied(part.as_ref())
        }
    }

    /// Appends a secret part; see [`secret`](Key::secret).
    #[must_use]
    pub fn and_secret(self, part: impl AsRef<[u8]>) -> Key<'static> {
        let bit = secret_bit(self.parts);
        let key = self.and(part);
        Key {
            secrets: key.secrets | bit,
            ..key
        }
    }

    /// Appends a part.
    #[must_use]
    pub fn and(self, part: impl AsRef<[u8]>) -> Key<'static> {
        let part = part.as_ref();
        let mut bytes = Vec::with_capacity(self.bytes.len() + part.len() + 16);
        match self.parts {
            0 => bytes.extend_from_slice(part),
            1 => {
                frame(&mut bytes, &self.bytes);
                frame(&mut bytes, part);
            }
            2.. => {
                bytes.extend_from_slice(&self.bytes);
                frame(&mut bytes, part);
            }
        }
        Key {
            bytes: bytes.into(),
            parts: self.parts + 1,
            secrets: self.secrets,
        }
    }

    /// Appends all parts of another key.
    ///
    /// ```
    /// use tallygate::Key;
    ///
    /// let pair = Key::from_parts(["b", "c"]);
    /// assert_eq!(Key::from("a").and_key(&pair), Key::from_parts(["a", "b", "c"]));
    /// ```
    #[must_use]
    pub fn and_key(self, other: &Key<'_>) -> Key<'static> {
        other.parts().fold(self.into_owned(), |key, part| {
            if part.secret {
                key.and_secret(part.bytes)
            } else {
                key.and(part.bytes)
            }
        })
    }

    /// Converts to a key that owns its bytes.
    pub fn into_owned(self) -> Key<'static> {
        Key {
            bytes: self.bytes.into_owned(),
            parts: self.parts,
            secrets: self.secrets,
        }
    }

    /// The bytes, and a number that encodes the count of parts and which are secret. Different keys
    /// differ in one of them.
    #[inline]
    pub(crate) fn identity(&self) -> (&[u8], u64) {
        (
            &self.bytes,
            u64::from(self.secrets) << 32 ^ u64::from(self.parts),
        )
    }

    /// The bytes as two numbers, if at most 16.
    #[inline]
    pub(crate) fn words(&self) -> Option<[u64; 2]> {
        self.bytes.words()
    }

    /// The parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = KeyPart<'_>> {
        let mut rest = &*self.bytes;
        (0..self.parts).map(move |i| {
            let bytes = if self.parts == 1 {
                rest
            } else {
                let (len, after) = rest
                    .split_first_chunk()
                    .expect("each of several parts follows its length");
                let (part, after) = after.split_at(u64::from_le_bytes(*len) as usize);
                rest = after;
                part
            };
            KeyPart {
                bytes,
                secret: self.secrets & secret_bit(i) != 0,
            }
        })
    }
}

fn secret_bit(part: u32) -> u32 {
    1 << part.min(31)
}

fn frame(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part);
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Key<'a> {
    #[inline]
    fn from(part: &'a T) -> Self {
        Key::single(Bytes::Borrowed(part.as_ref()))
    }
}

impl<'a> From<&'a Key<'_>> for Key<'a> {
    #[inline]
    fn from(key: &'a Key<'_>) -> Self {
        Key {
            bytes: Bytes::Borrowed(&key.bytes),
            parts: key.parts,
            secrets: key.secrets,
        }
    }
}

impl From<Vec<u8>> for Key<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Key::single(bytes.into())
    }
}

impl From<String> for Key<'_> {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl fmt::Debug for KeyPart<'_> {
    /// Prints none of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPart")
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Key<'_> {
    /// Prints a short fingerprint, the same for equal keys within a process and no more than that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        static SEED: OnceLock<RandomState> = OnceLock::new();
        let hash = SEED.get_or_init(RandomState::new).hash_one(self);
        write!(f, "Key(#{:04x})", hash >> 48)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lists_of_parts_make_the_same_key() {
        let lists: [&[&str]; 11] = [
            &[],
            &[""],
            &["", ""],
            &["a"],
            &["a", ""],
            &["", "a"],
            &["a", "b"],
            &["ab"],
            &["a", "b", "c"],
            &["ab", "c"],
            &["a", "bc"],
        ];
        for (i, a) in lists.iter().enumerate() {
            for (j, b) in lists.iter().enumerate() {
                let equal = Key::from_parts(a.iter()) == Key::from_parts(b.iter());
                assert_eq!(equal, i == j, "{a:?} and {b:?}");
            }
        }
        // A lone part that looks like the frames of two is still one part.
        let two = Key::from_parts(["a", "b"]);
        let forged = Key::from(two.identity().0.to_vec());
        assert_ne!(two, forged);
    }

    #[test]
    fn a_key_never_prints_itself() {
        let shown = format!("{:?}", Key::from("hunter2").and("secret"));
        assert!(shown.starts_with("Key(#") && shown.len() == 10, "{shown}");
        assert!(!shown.contains("hunter2"));
        let key = Key::from("hunter2").and_secret("x");
        let parts: Vec<_> = key.parts().collect();
        assert!(!format!("{parts:?}").contains("hunter2"));
        assert_eq!((parts[0].bytes, parts[0].secret), (&b"hunter2"[..], false));
        assert_eq!((parts[1].bytes, parts[1].secret), (&b"x"[..], true));
    }

    #[test]
    fn a_borrowed_key_equals_its_owned_copy() {
        let key = Key::from_parts(["a", "b"]);
        assert_eq!(Key::from(&key), key);
        assert_eq!(Key::from("x").into_owned(), Key::from("x"));
    }
}
