//! Texts with at most one `*`, which matches any bytes.

use std::fmt;
use std::str::FromStr;

use super::TextError;

/// A text with at most one `*`, which matches any bytes. Matching never backtracks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob {
    start: Vec<u8>,
    /// The text after the `*`, if there is one.
    end: Option<Vec<u8>>,
}

impl Glob {
    /// Matches exactly this text; a `*` in it has no meaning.
    pub fn literal(text: impl Into<Vec<u8>>) -> Self {
        Glob {
            start: text.into(),
            end: None,
        }
    }

    /// Matches everything with this prefix; a `*` in it has no meaning.
    pub fn prefix(text: impl Into<Vec<u8>>) -> Self {
        Glob::around(text, [])
    }

    pub(super) fn around(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Glob {
            start: start.into(),
            end: Some(end.into()),
        }
    }

    /// Whether it is `*`.
    pub fn is_any(&self) -> bool {
        self.start.is_empty() && self.end.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether it matches bytes.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        match &self.end {
            None => bytes == self.start,
            Some(end) => bytes
                .strip_prefix(&*self.start)
                .is_some_and(|rest| rest.ends_with(end)),
        }
    }

    /// Whether it matches one text only.
    pub fn is_literal(&self) -> bool {
        self.end.is_none()
    }

    /// Whether a text can match both.
    pub fn overlaps(&self, other: &Glob) -> bool {
        match (&self.end, &other.end) {
            (_, None) => self.matches(&other.start),
            (None, Some(_)) => other.matches(&self.start),
            // The longer prefix and the longer suffix together match both.
            (Some(end), Some(others)) => {
                let (a, b) = (&self.start, &other.start);
                (a.starts_with(b) || b.starts_with(a))
                    && (end.ends_with(others) || others.ends_with(end))
            }
        }
    }

    /// Whether it matches everything that another one matches.
    pub fn covers(&self, other: &Glob) -> bool {
        match (&self.end, &other.end) {
            (_, None) => self.matches(&other.start),
            (None, Some(_)) => false,
            (Some(end), Some(others)) => {
                other.start.starts_with(&self.start) && others.ends_with(end)
            }
        }
    }
}

impl FromStr for Glob {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        match text.split_once('*') {
            None => Ok(Glob::literal(text)),
            Some((_, end)) if end.contains('*') => Err(TextError::new(
                text,
                "has more than one `*`",
                "application/*",
            )),
            Some((start, end)) => Ok(Glob::around(start, end)),
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.start))?;
        match &self.end {
            None => Ok(()),
            Some(end) => write!(f, "*{}", String::from_utf8_lossy(end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> Glob {
        text.parse().unwrap()
    }

    #[test]
    fn a_star_matches_any_bytes_and_none() {
        for (pattern, text, same) in [
            ("", "", true),
            ("", "a", false),
            ("a", "a", true),
            ("a", "A", false),
            ("*", "", true),
            ("*", "\u{ff}/x", true),
            ("a*", "a", true),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            // Prefix and suffix do not overlap.
            ("aa*aa", "aaa", false),
            ("aa*aa", "aaaa", true),
        ] {
            assert_eq!(
                glob(pattern).matches(text.as_bytes()),
                same,
                "{pattern} {text}"
            );
        }
        assert!("a*b*".parse::<Glob>().is_err());
        assert!(Glob::literal("a*").matches(b"a*") && !Glob::literal("a*").matches(b"ab"));
        assert!(Glob::prefix("a*").matches(b"a*b") && !Glob::prefix("a*").matches(b"ab"));
    }

    #[test]
    fn a_glob_matches_all_texts_of_a_glob_it_covers() {
        // Every text of up to four letters from an alphabet of two.
        let letters = |n: u32| (0..1 << n).map(move |bits: u32| (0..n).map(move |i| bits >> i & 1));
        let texts: Vec<String> = (0..=4)
            .flat_map(letters)
            .map(|bits| bits.map(|bit| ["a", "b"][bit as usize]).collect())
            .collect();
        let patterns = ["", "a", "ab", "*", "a*", "*a", "a*a", "ab*", "*b", "a*b"];
        for one in patterns.map(glob) {
            for other in patterns.map(glob) {
                let mut matched = texts.iter().filter(|text| other.matches(text.as_bytes()));
                let all = matched.all(|text| one.matches(text.as_bytes()));
                assert_eq!(one.covers(&other), all, "{one} {other}");
            }
        }
    }
}
