//! The bytes of a key: borrowed, inline, or on the heap.

use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// Long enough for an IPv4 address, or an IPv6 network of 64 bits, as text.
pub(crate) const MAX_INLINE_BYTES: usize = 22;

#[derive(Clone)]
pub(super) enum Bytes<'a> {
    Borrowed(&'a [u8]),
    // An allocation would double the cost of a short key.
    Short {
        len: u8,
        bytes: [u8; MAX_INLINE_BYTES],
    },
    Long(Box<[u8]>),
}

impl Bytes<'_> {
    #[inline]
    pub(super) fn short(bytes: [u8; MAX_INLINE_BYTES], len: usize) -> Bytes<'static> {
        let len = len.min(MAX_INLINE_BYTES) as u8;
        Bytes::Short { len, bytes }
    }

    pub(super) fn copied(bytes: &[u8]) -> Bytes<'static> {
        let mut short = [0; MAX_INLINE_BYTES];
        match short.get_mut(..bytes.len()) {
            Some(start) => {
                start.copy_from_slice(bytes);
                Bytes::short(short, bytes.len())
            }
            None => Bytes::Long(bytes.into()),
        }
    }

    pub(super) fn into_owned(self) -> Bytes<'static> {
        match self {
            Bytes::Borrowed(bytes) => Bytes::copied(bytes),
            Bytes::Short { len, bytes } => Bytes::Short { len, bytes },
            Bytes::Long(bytes) => Bytes::Long(bytes),
        }
    }

    /// Up to 16 bytes as two numbers, padded with zeros; `None` if longer.
    #[inline]
    pub(super) fn words(&self) -> Option<[u64; 2]> {
        match self {
            // Loads of the same width as the preceding stores: others stall store forwarding.
            Bytes::Short { len, bytes } => {
                let bits = 8 * u32::from(*len);
                let word = |at: usize| {
                    bytes[at..]
                        .first_chunk()
                        .map(|word| u64::from_le_bytes(*word))
                };
                let (low, high) = (word(0)?, word(8)?);
                match bits {
                    65..=128 => Some([low, high & u64::MAX >> (128 - bits)]),
                    1..=64 => Some([low & u64::MAX >> (64 - bits), 0]),
                    0 => Some([0, 0]),
                    _ => None,
                }
            }
            Bytes::Borrowed(bytes) => words(bytes),
            Bytes::Long(bytes) => words(bytes),
        }
    }
}

/// Reads from both ends.
#[inline]
fn words(bytes: &[u8]) -> Option<[u64; 2]> {
    let len = bytes.len();
    if len > 16 {
        return None;
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        // Twice: the shift may be 64 bits.
        return Some([first, last >> (4 * (16 - len)) >> (4 * (16 - len))]);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return Some([u64::from(first) | u64::from(last) << (8 * (len - 4)), 0]);
    }
    let one = |at: usize| bytes.get(at).map_or(0, |&byte| u64::from(byte) << (8 * at));
    Some([one(0) | one(1) | one(2), 0])
}

impl From<Vec<u8>> for Bytes<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        match bytes.len() {
            0..=MAX_INLINE_BYTES => Bytes::copied(&bytes),
            _ => Bytes::Long(bytes.into()),
        }
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Short { len, bytes } => &bytes[..usize::from(*len)],
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Bytes<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes<'_> {}

impl Hash for Bytes<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_equal_in_every_representation() {
        for len in 0..2 * MAX_INLINE_BYTES {
            let text: Vec<u8> = (0..len as u8).collect();
            let borrowed = Bytes::Borrowed(&text);
            for own in [
                Bytes::copied(&text),
                Bytes::from(text.clone()),
                borrowed.clone().into_owned(),
            ] {
                assert!(own == borrowed && *own == *text, "{len} bytes");
                assert!(own.clone().into_owned() == borrowed, "{len} bytes");
            }
        }
        // Bytes after the end are ignored.
        assert!(Bytes::short([b'x'; MAX_INLINE_BYTES], 1) == Bytes::Borrowed(b"x"));
        assert_eq!(size_of::<Bytes<'_>>(), 24);
    }

    #[test]
    fn up_to_16_bytes_are_two_numbers_in_every_representation() {
        for len in 0..2 * MAX_INLINE_BYTES {
            let text: Vec<u8> = (1..).take(len).collect();
            let mut filled = [0; 16];
            let expected = (len <= 16).then(|| {
                filled[..len].copy_from_slice(&text);
                let number = u128::from_le_bytes(filled);
                [number as u64, (number >> 64) as u64]
            });
            assert_eq!(Bytes::Borrowed(&text).words(), expected, "{len} bytes");
            assert_eq!(Bytes::copied(&text).words(), expected, "{len} bytes");
            assert_eq!(
                Bytes::Long(text.clone().into()).words(),
                expected,
                "{len} bytes"
            );
            // Bytes after the end are ignored.
            let mut short = [b'x'; MAX_INLINE_BYTES];
            if let Some(start) = short.get_mut(..len) {
                start.copy_from_slice(&text);
                assert_eq!(Bytes::short(short, len).words(), expected, "{len} bytes");
            }
        }
    }
}
