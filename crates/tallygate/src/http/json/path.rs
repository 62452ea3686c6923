//! Paths to values in JSON.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::http::TextError;

const MAX_BYTES: usize = 256;
/// How many names a path has at most.
pub(super) const MAX_SEGMENTS: usize = 16;
const EXAMPLE: &str = "usage.total_tokens";

/// The path of a value in JSON: names of fields separated by dots, such as `usage.total_tokens`. In a
/// list, a number selects an element: `choices.0.tokens`.
///
/// ```
/// use tallygate::http::JsonPath;
///
/// let path: JsonPath = "usage.total_tokens".parse()?;
/// assert_eq!(path.segments().count(), 2);
/// # Ok::<(), tallygate::http::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JsonPath(Arc<[Segment]>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Segment {
    pub(super) name: Box<str>,
    /// The name as the position in a list.
    pub(super) index: Option<u32>,
}

impl JsonPath {
    /// The names, from the outermost to the innermost.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|segment| &*segment.name)
    }

    /// The longest name that is no position in a list.
    pub(super) fn longest_name(&self) -> Option<&str> {
        let names = self.0.iter().filter(|segment| segment.index.is_none());
        names
            .map(|segment| &*segment.name)
            .max_by_key(|name| name.len())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn segment(&self, at: usize) -> Option<&Segment> {
        self.0.get(at)
    }
}

impl FromStr for JsonPath {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let wrong = |reason| Err(TextError::new(text, reason, EXAMPLE));
        if text.is_empty() {
            return wrong("is not a path");
        }
        if text.len() > MAX_BYTES {
            return wrong("is longer than 256 bytes");
        }
        if text.starts_with('$') || text.contains(['[', ']']) {
            return wrong("is not a path of names with dots between them");
        }
        if text.split('.').any(str::is_empty) {
            return wrong("has an empty name");
        }
        if text.split('.').count() > MAX_SEGMENTS {
            return wrong("has more than 16 names");
        }
        let segment = |name: &str| Segment {
            name: name.into(),
            index: match name.len() == 1 || !name.starts_with('0') {
                true if name.bytes().all(|byte| byte.is_ascii_digit()) => name.parse().ok(),
                _ => None,
            },
        };
        Ok(JsonPath(text.split('.').map(segment).collect()))
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, name) in self.segments().enumerate() {
            if number > 0 {
                f.write_str(".")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_names_with_dots_between() {
        for text in ["a", "usage.total_tokens", "choices.0.n", "00", "a b.ü"] {
            let path: JsonPath = text.parse().unwrap();
            assert_eq!(path.to_string(), text);
        }
        let path: JsonPath = "a.0.00.12.4294967296".parse().unwrap();
        let indices: Vec<_> = path.0.iter().map(|segment| segment.index).collect();
        assert_eq!(indices, [None, Some(0), None, Some(12), None]);
    }

    #[test]
    fn other_notations_are_errors() {
        let long = "a".repeat(257);
        let many = vec!["a"; 17].join(".");
        for (text, reason) in [
            ("", "is not a path"),
            (".", "has an empty name"),
            ("a..b", "has an empty name"),
            (".a", "has an empty name"),
            ("a.", "has an empty name"),
            ("$.a", "is not a path of names with dots between them"),
            ("a[0].b", "is not a path of names with dots between them"),
            (&*long, "is longer than 256 bytes"),
            (&*many, "has more than 16 names"),
        ] {
            assert_eq!(text.parse::<JsonPath>().unwrap_err().reason(), reason);
        }
    }
}
