//! A key's bytes: borrowed, or its own; short ones in place. Knows nothing of parts.

use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// How many bytes are kept in place: an IPv4 address, or an IPv6 network of 64 bits, as text.
pub(crate) const IN_PLACE: usize = 22;

/// Bytes, wherever they are; equal if they are the same.
#[derive(Clone)]
pub(super) enum Bytes<'a> {
    Borrowed(&'a [u8]),
    // Asking for memory and giving it back would be half of what a short key costs.
    Short { len: u8, bytes: [u8; IN_PLACE] },
    Long(Box<[u8]>),
}

impl Bytes<'_> {
    /// The first of these bytes.
    #[inline]
    pub(super) fn short(bytes: [u8; IN_PLACE], len: usize) -> Bytes<'static> {
        let len = len.min(IN_PLACE) as u8;
        Bytes::Short { len, bytes }
    }

    pub(super) fn copied(bytes: &[u8]) -> Bytes<'static> {
        let mut short = [0; IN_PLACE];
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
}

impl From<Vec<u8>> for Bytes<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        match bytes.len() {
            0..=IN_PLACE => Bytes::copied(&bytes),
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
    fn bytes_of_any_length_are_the_same_wherever_they_are() {
        for len in 0..2 * IN_PLACE {
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
        // What lies behind the end plays no part.
        assert!(Bytes::short([b'x'; IN_PLACE], 1) == Bytes::Borrowed(b"x"));
        assert_eq!(size_of::<Bytes<'_>>(), 24);
    }
}
