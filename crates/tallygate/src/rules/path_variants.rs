//! The different results of parsing one path.
//!
//! Servers differ in unusual paths, and which kind the application is, is unknown. Some merge
//! slashes before they resolve `..`, some treat `%2F`, `\` and `%5C` as slashes, some strip `;` and
//! what follows from every segment. A server may do several of these.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::Path;
use super::path::decoded;

/// All variants of a path: the standard one first, then those that differ from it.
#[derive(Clone, Debug)]
pub(super) struct PathVariants<'a>(SmallVec<[Path<'a>; 1]>);

/// What a server does besides RFC 3986.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ParseOptions {
    /// Merges slashes before it resolves `..`.
    pub(super) merges_slashes: bool,
    /// Treats `%2F`, `\` and `%5C` as slashes.
    pub(super) extra_slashes: bool,
    /// Strips `;` and what follows from every segment.
    pub(super) strips_parameters: bool,
}

impl<'a> PathVariants<'a> {
    pub(super) fn new(path: &'a str) -> Self {
        let bytes = path.as_bytes();
        let mut variants = SmallVec::from_iter([Path::new(path)]);
        let slashes = has_extra_slashes(bytes);
        let parameters = memchr::memchr(b';', bytes).is_some();
        // Other variants may have empty segments where the path has none.
        let empty = slashes || parameters || memchr::memmem::find(bytes, b"//").is_some();
        if !empty {
            return PathVariants(variants);
        }
        let either = |is: bool| [false, true].into_iter().take(1 + usize::from(is));
        for extra_slashes in either(slashes) {
            for strips_parameters in either(parameters) {
                for merges_slashes in [false, true] {
                    let options = ParseOptions {
                        merges_slashes,
                        extra_slashes,
                        strips_parameters,
                    };
                    let variant = Path::parse(path, options);
                    if !variants.contains(&variant) {
                        variants.push(variant);
                    }
                }
            }
        }
        PathVariants(variants)
    }

    /// The variant of RFC 3986.
    pub(super) fn standard(&self) -> &Path<'a> {
        &self.0[0]
    }

    pub(super) fn all(&self) -> &[Path<'a>] {
        &self.0
    }
}

impl ParseOptions {
    /// The end of a segment and the start of the next one.
    pub(super) fn split(self, rest: &[u8]) -> Option<(usize, usize)> {
        if !self.extra_slashes {
            return memchr::memchr(b'/', rest).map(|end| (end, end + 1));
        }
        let slash = |end: usize| slash_at(&rest[end..]).map(|length| (end, end + length));
        memchr::memchr3_iter(b'/', b'\\', b'%', rest).find_map(slash)
    }

    /// A segment as such a server decodes it.
    pub(super) fn segment(self, segment: &[u8]) -> Cow<'_, [u8]> {
        let end = match self.strips_parameters {
            true => memchr::memchr(b';', segment),
            false => None,
        };
        decoded(&segment[..end.unwrap_or(segment.len())])
    }
}

/// The length of a slash at the start of a text, in any spelling.
fn slash_at(text: &[u8]) -> Option<usize> {
    match text {
        [b'/' | b'\\', ..] => Some(1),
        [b'%', b'2', b'f' | b'F', ..] | [b'%', b'5', b'c' | b'C', ..] => Some(3),
        _ => None,
    }
}

fn has_extra_slashes(path: &[u8]) -> bool {
    let mut odd = memchr::memchr2_iter(b'\\', b'%', path);
    odd.any(|at| slash_at(&path[at..]).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variants(path: &str) -> Vec<String> {
        let variants = PathVariants::new(path);
        assert_eq!(variants.standard(), &Path::new(path));
        let text = |path: &Path<'_>| {
            let segments = path.segments().iter();
            let segments = segments.map(|segment| String::from_utf8_lossy(segment).into_owned());
            segments.collect::<Vec<_>>().join(" ")
        };
        variants.all().iter().map(text).collect()
    }

    #[test]
    fn a_usual_path_has_one_variant() {
        for (path, variant) in [
            ("/", ""),
            ("/a/b/../c", "a c"),
            ("//a//b/", "a b"),
            ("/%6Cogin/%25", "login %"),
            ("/100%", "100%"),
        ] {
            assert_eq!(variants(path), [variant], "{path}");
        }
    }

    #[test]
    fn an_unusual_path_has_several_variants() {
        let cases: [(&str, &[&str]); 8] = [
            ("/x//../login", &["x login", "login"]),
            ("/login;a=b", &["login;a=b", "login"]),
            ("/a;x/b;y/c", &["a;x b;y c", "a b c"]),
            ("/x%2F..%2flogin", &["x/../login", "login"]),
            ("/x%5c..%5Clogin", &["x\\..\\login", "login"]),
            ("/x/..;/login", &["x ..; login", "login"]),
            ("/.;/login", &[".; login", "login"]),
            (
                "/x%2F%2F..;a/login",
                &[
                    "x//..;a login",
                    "x//.. login",
                    "x ..;a login",
                    "x login",
                    "login",
                ],
            ),
        ];
        for (path, expected) in cases {
            let mut found = variants(path);
            let mut expected = expected.to_vec();
            assert_eq!(found[0], expected[0], "{path}");
            found.sort();
            expected.sort_unstable();
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn there_are_at_most_eight_variants() {
        let path = "/a;b//..%2F../%5c..;c/d".repeat(1_000);
        assert!(variants(&path).len() <= 8);
    }
}
