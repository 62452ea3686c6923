//! The names of rules, limits and tiers.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::TextError;

const MAX_BYTES: usize = 64;
const EXAMPLE: &str = "login-by-ip";

/// A name: 1 to 64 of `a-z`, `0-9`, `.`, `_` and `-`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// A name of a rule that is written in Rust, which may be any text.
    pub(super) fn unchecked(text: &str) -> Self {
        Name(text.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let wrong = |reason| Err(TextError::new(text, reason, EXAMPLE));
        let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
        if text.is_empty() {
            return wrong("is not a name");
        }
        if !text.bytes().all(is_allowed) {
            return wrong("has characters other than a-z, 0-9, `.`, `_` and `-`");
        }
        if text.len() > MAX_BYTES {
            return wrong("is longer than 64 characters");
        }
        Ok(Name(text.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_limited_alphabet_and_length() {
        assert_eq!("a.b_c-9".parse::<Name>().unwrap().as_str(), "a.b_c-9");
        assert!("x".repeat(64).parse::<Name>().is_ok());
        for wrong in ["", "a b", "A", "é", "a/b", "a\n", &"x".repeat(65)] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong:?}");
        }
    }
}
