//! The different results of parsing one path.
//!
//! Servers differ in unusual paths, and which kind the application is, is unknown. Some merge
//! slashes before they resolve `..`, some treat `%2F`, `\` and `%5C` as slashes, some strip `;` and
//! what follows from every segment, some take what follows `//` at the start for a host. A server may
//! do several of these.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::Path;
use super::path::decoded;

/// The maximum number of slashes of a path, in any spelling. A request with more is refused: every
/// segment costs time, in every variant and before any limit.
pub(super) const MAX_SEGMENTS: usize = 256;

/// All variants of a path: the standard one first, then those that differ from it.
#[derive(Clone, Debug)]
pub(super) struct PathVariants<'a>(SmallVec<[Path<'a>; 1]>);

/// What a server does besides RFC 3986.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ParseOptions {
    /// Merges slashes before it resolves `..`.
    pub(super) merges_slashes: bool,
    /// What it treats as slashes.
    pub(super) slashes: Slashes,
    /// Strips `;` and what follows from every segment.
    pub(super) strips_parameters: bool,
    /// Takes the first segment after two slashes for a host, as in a URL without scheme (WHATWG).
    pub(super) strips_host: bool,
}

/// What a server treats as slashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Slashes {
    /// `/`.
    #[default]
    Plain,
    /// And `\`, as in a URL (WHATWG).
    Backslash,
    /// And `%2F`: it decodes the path before it splits it.
    Encoded,
    /// And `%2F`, `\` and `%5C`, as in names of files on Windows.
    All,
}

/// Which of the unusual slashes a path has.
#[derive(Clone, Copy, Debug, Default)]
struct UnusualSlashes {
    backslash: bool,
    encoded_slash: bool,
    encoded_backslash: bool,
}

impl<'a> PathVariants<'a> {
    pub(super) fn new(path: &'a str) -> Self {
        let bytes = path.as_bytes();
        let mut variants = PathVariants(SmallVec::from_iter([Path::new(path)]));
        let slashes = UnusualSlashes::find(bytes);
        let has_parameters = memchr::memchr(b';', bytes).is_some();
        // Other variants may have empty segments where the path has none.
        let has_empty = memchr::memmem::find(bytes, b"//").is_some();
        if !slashes.any() && !has_parameters && !has_empty {
            return variants;
        }
        variants.add(path, slashes, has_parameters);
        if has_parameters && slashes.is_encoded() {
            // Some strip parameters up to the next `/` before they decode: `/x%2F..;%2Fy/login`.
            let stripped = strip_parameters(path);
            let mut other = PathVariants(SmallVec::new());
            other.add(&stripped, UnusualSlashes::find(stripped.as_bytes()), false);
            for variant in other.0 {
                variants.push(variant.into_owned());
            }
        }
        variants
    }

    /// Adds the variants of a path with such slashes.
    fn add(&mut self, path: &'a str, slashes: UnusualSlashes, has_parameters: bool) {
        let has_host = path
            .as_bytes()
            .get(1..)
            .and_then(|rest| Slashes::All.at_start(rest));
        let either = |is: bool| [false, true].into_iter().take(1 + usize::from(is));
        for slashes in slashes.readings() {
            for strips_parameters in either(has_parameters) {
                for merges_slashes in [false, true] {
                    for strips_host in either(has_host.is_some()) {
                        let options = ParseOptions {
                            merges_slashes,
                            slashes,
                            strips_parameters,
                            strips_host,
                        };
                        self.push(Path::parse(path, options));
                    }
                }
            }
        }
    }

    fn push(&mut self, variant: Path<'a>) {
        if !self.0.contains(&variant) {
            self.0.push(variant);
        }
    }

    /// The variant of RFC 3986.
    pub(super) fn standard(&self) -> &Path<'a> {
        &self.0[0]
    }

    pub(super) fn all(&self) -> &[Path<'a>] {
        &self.0
    }
}

impl Slashes {
    /// The first slash, and what follows it.
    fn find(self, text: &[u8]) -> Option<(usize, usize)> {
        let at = |at: usize| self.at_start(&text[at..]).map(|length| (at, at + length));
        match self {
            Slashes::Plain => memchr::memchr(b'/', text).and_then(at),
            Slashes::Backslash => memchr::memchr2(b'/', b'\\', text).and_then(at),
            Slashes::Encoded => memchr::memchr2_iter(b'/', b'%', text).find_map(at),
            Slashes::All => memchr::memchr3_iter(b'/', b'\\', b'%', text).find_map(at),
        }
    }

    /// The length of a slash at the start of a text.
    fn at_start(self, text: &[u8]) -> Option<usize> {
        let length = match text {
            [b'/', ..] => 1,
            [b'\\', ..] if matches!(self, Slashes::Backslash | Slashes::All) => 1,
            [b'%', b'2', b'f' | b'F', ..] if matches!(self, Slashes::Encoded | Slashes::All) => 3,
            [b'%', b'5', b'c' | b'C', ..] if self == Slashes::All => 3,
            _ => return None,
        };
        Some(length)
    }
}

impl UnusualSlashes {
    fn find(path: &[u8]) -> Self {
        let mut found = UnusualSlashes::default();
        for at in memchr::memchr2_iter(b'\\', b'%', path) {
            match &path[at..] {
                [b'\\', ..] => found.backslash = true,
                [b'%', b'2', b'f' | b'F', ..] => found.encoded_slash = true,
                [b'%', b'5', b'c' | b'C', ..] => found.encoded_backslash = true,
                _ => {}
            }
        }
        found
    }

    fn any(self) -> bool {
        self.backslash || self.is_encoded()
    }

    fn is_encoded(self) -> bool {
        self.encoded_slash || self.encoded_backslash
    }

    /// The readings that differ in a path with these slashes.
    fn readings(self) -> impl Iterator<Item = Slashes> {
        let kinds = [self.backslash, self.encoded_slash, self.encoded_backslash];
        // With one kind, a server treats all of them as slashes or none.
        let several = kinds.into_iter().filter(|has| *has).count() > 1;
        [
            (Slashes::Plain, true),
            (Slashes::Backslash, several && self.backslash),
            (Slashes::Encoded, several && self.encoded_slash),
            (Slashes::All, self.any()),
        ]
        .into_iter()
        .filter_map(|(slashes, differs)| differs.then_some(slashes))
    }
}

impl ParseOptions {
    /// The end of a segment and the start of the next one.
    pub(super) fn split(self, rest: &[u8]) -> Option<(usize, usize)> {
        self.slashes.find(rest)
    }

    /// The path of such a server, without its first slash.
    pub(super) fn path(self, path: &str) -> &[u8] {
        let mut rest = path.strip_prefix('/').unwrap_or(path).as_bytes();
        if !self.strips_host {
            return rest;
        }
        // The first segment that is not empty is the host.
        loop {
            match self.split(rest) {
                Some((0, next)) => rest = &rest[next..],
                Some((_, next)) => return &rest[next..],
                None => return &[],
            }
        }
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

/// A path without `;` and what follows, in every segment that ends with `/`.
fn strip_parameters(path: &str) -> String {
    let segments = path.split('/').map(|segment| segment.split(';').next());
    let segments: Vec<&str> = segments.flatten().collect();
    segments.join("/")
}

/// Whether a path has more than [`MAX_SEGMENTS`].
pub(super) fn has_too_many_segments(path: &str) -> bool {
    let path = path.as_bytes();
    if path.len() <= MAX_SEGMENTS {
        return false;
    }
    let slashes = memchr::memchr3_iter(b'/', b'\\', b'%', path);
    let mut slashes = slashes.filter(|&at| Slashes::All.at_start(&path[at..]).is_some());
    slashes.nth(MAX_SEGMENTS).is_some()
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
            ("/a//b/", "a b"),
            ("/%6Cogin/%25", "login %"),
            ("/100%", "100%"),
        ] {
            assert_eq!(variants(path), [variant], "{path}");
        }
    }

    #[test]
    fn an_unusual_path_has_several_variants() {
        let cases: [(&str, &[&str]); 18] = [
            ("/x//../login", &["x login", "login"]),
            ("/login;a=b", &["login;a=b", "login"]),
            ("/a;x/b;y/c", &["a;x b;y c", "a b c"]),
            ("/x%2F..%2flogin", &["x/../login", "login"]),
            ("/x%5c..%5Clogin", &["x\\..\\login", "login"]),
            ("/x/..;/login", &["x ..; login", "login"]),
            ("/.;/login", &[".; login", "login"]),
            ("//evil/login", &["evil login", "login"]),
            ("///evil:80/login/", &["evil:80 login", "login"]),
            ("//evil", &["evil", ""]),
            ("//a//b/", &["a b", "b"]),
            ("/\\evil/login", &["\\evil login", "login", "evil login"]),
            ("/%2Fx/a/../b", &["/x b", "x b", "b"]),
            // `new URL` takes the backslash for a slash, and not `%2F`.
            (
                "/a%2Fb\\..\\login",
                &["a/b\\..\\login", "login", "a b\\..\\login", "a login"],
            ),
            // A server that decodes takes `%2F` for a slash, and not the backslash.
            (
                "/a\\b%2F..%2Flogin",
                &["a\\b/../login", "a b/../login", "login", "a login"],
            ),
            (
                "/a\\b%5C..%5clogin",
                &["a\\b\\..\\login", "a b\\..\\login", "a login"],
            ),
            (
                "/x%2F..;%2Fy/login",
                &[
                    "x/..;/y login",
                    "x/.. login",
                    "x ..; y login",
                    "y login",
                    "login",
                ],
            ),
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
    fn the_number_of_variants_is_bounded() {
        let path = format!("//x/{}", "/a;b//..%2F../%5c..\\e;c/d".repeat(1_000));
        assert!(variants(&path).len() <= 48);
    }

    #[test]
    fn segments_are_counted_in_every_spelling() {
        for slash in ["/a", "/", "\\", "%2f", "%5Ca", "/;", "/.."] {
            let path = |segments| format!("/{}", slash.repeat(segments - 1));
            assert!(!has_too_many_segments(&path(MAX_SEGMENTS)), "{slash}");
            assert!(has_too_many_segments(&path(MAX_SEGMENTS + 1)), "{slash}");
        }
        assert!(!has_too_many_segments(&format!(
            "/{}",
            "a%2".repeat(20_000)
        )));
    }
}
