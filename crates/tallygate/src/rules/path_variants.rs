//! The ways in which servers read one path. Knows nothing of rules and patterns.
//!
//! Servers differ where a path is odd, and nobody can tell here which kind is behind. Some put
//! slashes together before they resolve `..`, some take `%2F`, `\` and `%5C` for slashes, some cut
//! `;` and what follows from every segment. Any of them may do several of these.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::Path;
use super::path::decoded;

/// All readings of a path: the plain one first, then those that differ from it.
#[derive(Clone, Debug)]
pub(super) struct Readings<'a>(SmallVec<[Path<'a>; 1]>);

/// What a server does beyond RFC 3986.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Habits {
    /// Puts slashes together before it resolves `..`.
    pub(super) merges: bool,
    /// Takes `%2F`, `\` and `%5C` for slashes.
    pub(super) more_slashes: bool,
    /// Cuts `;` and what follows from every segment.
    pub(super) cuts_parameters: bool,
}

impl<'a> Readings<'a> {
    pub(super) fn new(path: &'a str) -> Self {
        let bytes = path.as_bytes();
        let mut readings = Readings(SmallVec::from_iter([Path::new(path)]));
        let slashes = has_more_slashes(bytes);
        let parameters = memchr::memchr(b';', bytes).is_some();
        // What the others make of a path may have empty segments where the path has none.
        let empty = slashes || parameters || memchr::memmem::find(bytes, b"//").is_some();
        if !empty {
            return readings;
        }
        let either = |is: bool| [false, true].into_iter().take(1 + usize::from(is));
        for more_slashes in either(slashes) {
            for cuts_parameters in either(parameters) {
                for merges in [false, true] {
                    readings.add(Path::read(
                        path,
                        Habits {
                            merges,
                            more_slashes,
                            cuts_parameters,
                        },
                    ));
                }
            }
        }
        readings
    }

    fn add(&mut self, reading: Path<'a>) {
        if !self.0.contains(&reading) {
            self.0.push(reading);
        }
    }

    /// The plain reading.
    pub(super) fn plain(&self) -> &Path<'a> {
        &self.0[0]
    }

    /// All of them; the plain one is the first.
    pub(super) fn all(&self) -> &[Path<'a>] {
        &self.0
    }
}

impl Habits {
    /// Where a segment ends and the next one begins, or none.
    pub(super) fn cut(self, rest: &[u8]) -> Option<(usize, usize)> {
        if !self.more_slashes {
            return memchr::memchr(b'/', rest).map(|end| (end, end + 1));
        }
        let slash = |end: usize| slash_at(&rest[end..]).map(|length| (end, end + length));
        memchr::memchr3_iter(b'/', b'\\', b'%', rest).find_map(slash)
    }

    /// A segment as such a server takes it.
    pub(super) fn segment(self, segment: &[u8]) -> Cow<'_, [u8]> {
        let end = match self.cuts_parameters {
            true => memchr::memchr(b';', segment),
            false => None,
        };
        decoded(&segment[..end.unwrap_or(segment.len())])
    }
}

/// The length of a slash at the beginning of a text, however it is written.
fn slash_at(text: &[u8]) -> Option<usize> {
    match text {
        [b'/' | b'\\', ..] => Some(1),
        [b'%', b'2', b'f' | b'F', ..] | [b'%', b'5', b'c' | b'C', ..] => Some(3),
        _ => None,
    }
}

fn has_more_slashes(path: &[u8]) -> bool {
    let mut odd = memchr::memchr2_iter(b'\\', b'%', path);
    odd.any(|at| slash_at(&path[at..]).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(path: &str) -> Vec<String> {
        let readings = Readings::new(path);
        assert_eq!(readings.plain(), &Path::new(path));
        let text = |path: &Path<'_>| {
            let segments = path.segments().iter();
            let segments = segments.map(|segment| String::from_utf8_lossy(segment).into_owned());
            segments.collect::<Vec<_>>().join(" ")
        };
        readings.all().iter().map(text).collect()
    }

    #[test]
    fn a_path_that_is_not_odd_is_read_in_one_way() {
        for (path, reading) in [
            ("/", ""),
            ("/a/b/../c", "a c"),
            ("//a//b/", "a b"),
            ("/%6Cogin/%25", "login %"),
            ("/100%", "100%"),
        ] {
            assert_eq!(readings(path), [reading], "{path}");
        }
    }

    #[test]
    fn an_odd_path_is_read_in_every_way() {
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
            let mut found = readings(path);
            let mut expected = expected.to_vec();
            assert_eq!(found[0], expected[0], "{path}");
            found.sort();
            expected.sort_unstable();
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn there_are_eight_readings_at_most() {
        let path = "/a;b//..%2F../%5c..;c/d".repeat(1_000);
        assert!(readings(&path).len() <= 8);
    }
}
