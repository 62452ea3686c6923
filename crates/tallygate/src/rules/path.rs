//! Paths and path patterns.
//!
//! A path is parsed as RFC 3986 defines it:
//! - it is split at every `/`; then each segment is percent-decoded once. `%2F` is a slash *within*
//!   a segment; a `%` without two hex digits is kept;
//! - `.` and `..` segments, encoded or not, are resolved (section 5.2.4);
//! - empty segments are removed: `//login` and `/login/` are `/login`;
//! - it is case-sensitive.
//!
//! `path_variants.rs` covers servers that parse it differently.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use smallvec::SmallVec;

use super::path_variants::ParseOptions;
use super::{Glob, TextError};

const EXAMPLE: &str = "/users/{id}/files/**";
const MAX_BYTES: usize = 1024;

/// A pattern for paths, such as `/users/{id}/files/**`.
///
/// | segment | matches |
/// |---|---|
/// | `users` | itself |
/// | `*` | any one segment |
/// | `v*`, `*.json`, `a*z` | one segment with that prefix and suffix |
/// | `{id}` | any one segment, as a parameter |
/// | `**`, at the end only | any number of segments, including none |
///
/// Matching is one pass over the path, without backtracking.
#[derive(Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    segments: Vec<Segment>,
    /// Whether it ends in `**`.
    open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Glob(Glob),
    Parameter(String),
}

/// A path, split into segments and decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a>(SmallVec<[Cow<'a, [u8]>; 8]>);

impl<'a> Path<'a> {
    /// Splits a path into segments and decodes them.
    pub fn new(path: &'a str) -> Self {
        Path::parse(path, ParseOptions::default())
    }

    /// Parses a path as a server with these options does.
    pub(super) fn parse(path: &'a str, options: ParseOptions) -> Self {
        let mut segments = SmallVec::<[Cow<'a, [u8]>; 8]>::new();
        let mut rest = options.path(path);
        loop {
            let split = options.split(rest);
            let segment = options.segment(&rest[..split.map_or(rest.len(), |(end, _)| end)]);
            match &*segment {
                b"." => {}
                b".." => drop(segments.pop()),
                b"" if options.merges_slashes => {}
                _ => segments.push(segment),
            }
            match split {
                Some((_, next)) => rest = &rest[next..],
                None => break,
            }
        }
        segments.retain(|segment| !segment.is_empty());
        Path(segments)
    }

    /// The same path, without the text that it was parsed from.
    pub(super) fn into_owned<'o>(self) -> Path<'o> {
        let segments = self.0.into_iter();
        Path(
            segments
                .map(|segment| segment.into_owned().into())
                .collect(),
        )
    }

    /// The segments, decoded and not empty.
    pub fn segments(&self) -> &[Cow<'a, [u8]>] {
        &self.0
    }
}

/// Percent-decodes once; an invalid encoding is kept.
pub(super) fn decoded(bytes: &[u8]) -> Cow<'_, [u8]> {
    percent_encoding::percent_decode(bytes).into()
}

impl PathPattern {
    /// Whether it matches a path.
    pub fn matches(&self, path: &Path<'_>) -> bool {
        let segments = path.segments();
        let enough = match self.open {
            true => segments.len() >= self.segments.len(),
            false => segments.len() == self.segments.len(),
        };
        let mut pairs = self.segments.iter().zip(segments);
        enough
            && pairs.all(|(pattern, segment)| match pattern {
                Segment::Glob(glob) => glob.matches(segment),
                Segment::Parameter(_) => true,
            })
    }

    /// The value of a parameter in a path that matches, decoded.
    pub fn parameter<'p>(&self, name: &str, path: &'p Path<'_>) -> Option<&'p [u8]> {
        let at = self
            .parameters()
            .position(|parameter| parameter == Some(name))?;
        path.segments().get(at).map(|segment| &**segment)
    }

    /// The names of the parameters, in order.
    pub fn parameter_names(&self) -> impl Iterator<Item = &str> {
        self.parameters().flatten()
    }

    fn parameters(&self) -> impl Iterator<Item = Option<&str>> {
        self.segments.iter().map(|segment| match segment {
            Segment::Parameter(name) => Some(name.as_str()),
            Segment::Glob(_) => None,
        })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is more specific than another one: in the first segment in which they differ it has
    /// text where the other has a `*`, more than a lone `*` where the other has one, or any segment
    /// where the other has `**` or ends.
    pub fn is_more_specific_than(&self, other: &PathPattern) -> bool {
        let ranks = |pattern: &PathPattern| {
            let segments = pattern.segments.iter().map(Segment::rank);
            let ranks: SmallVec<[u8; 16]> = segments.collect();
            // Of two that end together, the one that matches nothing below.
            (ranks, !pattern.open)
        };
        ranks(self) > ranks(other)
    }

    /// Whether a path can match both.
    pub fn overlaps(&self, other: &PathPattern) -> bool {
        let (own, others) = (self.segments.len(), other.segments.len());
        let lengths_meet = match (self.open, other.open) {
            (true, true) => true,
            (true, false) => own <= others,
            (false, true) => others <= own,
            (false, false) => own == others,
        };
        let mut pairs = self.segments.iter().zip(&other.segments);
        lengths_meet
            && pairs.all(|pair| match pair {
                (Segment::Glob(glob), Segment::Glob(other)) => glob.overlaps(other),
                (Segment::Parameter(_), _) | (_, Segment::Parameter(_)) => true,
            })
    }

    /// Whether it matches every path that another one matches.
    pub fn covers(&self, other: &PathPattern) -> bool {
        let (own, others) = (self.segments.len(), other.segments.len());
        let long_enough = match (self.open, other.open) {
            (true, _) => own <= others,
            (false, true) => false,
            (false, false) => own == others,
        };
        let mut pairs = self.segments.iter().zip(&other.segments);
        long_enough
            && pairs.all(|pair| match pair {
                (Segment::Parameter(_), _) => true,
                (Segment::Glob(glob), Segment::Glob(other)) => glob.covers(other),
                (Segment::Glob(glob), Segment::Parameter(_)) => glob.is_any(),
            })
    }
}

impl FromStr for PathPattern {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let wrong = |reason| TextError::new(text, reason, EXAMPLE);
        if text.len() > MAX_BYTES {
            return Err(wrong("is longer than 1024 bytes"));
        }
        let inside = text
            .strip_prefix('/')
            .ok_or_else(|| wrong("does not begin with `/`"))?;
        if inside.contains(['?', '#']) {
            return Err(wrong(
                "has a query or fragment, which is not part of a path",
            ));
        }
        let mut pattern = PathPattern {
            text: text.to_owned(),
            segments: Vec::new(),
            open: false,
        };
        // A trailing slash is ignored, as in a path.
        let inside = inside.strip_suffix('/').unwrap_or(inside);
        if inside.is_empty() && text != "//" {
            return Ok(pattern);
        }
        for segment in inside.split('/') {
            if pattern.open {
                return Err(wrong("has segments after `**`"));
            }
            if segment == "**" {
                pattern.open = true;
                continue;
            }
            let segment = Segment::parse(segment).map_err(wrong)?;
            if let Segment::Parameter(name) = &segment
                && pattern.parameter_names().any(|other| other == name)
            {
                return Err(wrong("has one parameter twice"));
            }
            pattern.segments.push(segment);
        }
        Ok(pattern)
    }
}

impl Segment {
    /// The more a segment says, the larger.
    fn rank(&self) -> u8 {
        match self {
            Segment::Parameter(_) => 1,
            Segment::Glob(glob) if glob.is_any() => 1,
            Segment::Glob(glob) if glob.is_literal() => 3,
            Segment::Glob(_) => 2,
        }
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("has an empty segment");
        }
        if text.contains(['{', '}']) {
            return text
                .strip_prefix('{')
                .and_then(|rest| rest.strip_suffix('}'))
                .filter(|name| is_parameter(name))
                .map(|name| Segment::Parameter(name.to_owned()))
                .ok_or("has braces that are not a whole segment such as `{id}`");
        }
        let literal = |text: &str| {
            let percents = text.match_indices('%');
            let is_valid = |at: usize| {
                let digits = text.as_bytes().get(at + 1..at + 3);
                digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            };
            match percents.map(|(at, _)| at).all(is_valid) {
                true => Ok(decoded(text.as_bytes()).into_owned()),
                false => Err("has a `%` without two hex digits"),
            }
        };
        let glob = match text.split_once('*') {
            None => Glob::literal(literal(text)?),
            Some((_, end)) if end.contains('*') => {
                return Err("has more than one `*` in a segment");
            }
            Some((start, end)) => Glob::around(literal(start)?, literal(end)?),
        };
        if glob == Glob::literal(".") || glob == Glob::literal("..") {
            return Err("has a `.` or `..` segment, which no path has after it is resolved");
        }
        Ok(Segment::Glob(glob))
    }
}

fn is_parameter(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(fits)
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PathPattern({:?})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> PathPattern {
        text.parse().unwrap()
    }

    fn segments(path: &str) -> Vec<String> {
        let path = Path::new(path);
        let text = |segment: &Cow<'_, [u8]>| String::from_utf8_lossy(segment).into_owned();
        path.segments().iter().map(text).collect()
    }

    #[test]
    fn a_path_is_split_decoded_and_resolved() {
        let cases: [(&str, &[&str]); 27] = [
            ("", &[]),
            ("/", &[]),
            ("//", &[]),
            ("*", &["*"]),
            ("/a", &["a"]),
            ("/a/", &["a"]),
            ("//a///b//", &["a", "b"]),
            ("/.", &[]),
            ("/..", &[]),
            ("/../../a", &["a"]),
            ("/a/..", &[]),
            ("/a/./b/.", &["a", "b"]),
            ("/a/b/../c", &["a", "c"]),
            // By RFC 3986, `..` removes an empty segment.
            ("/a//../b", &["a", "b"]),
            ("/a/...", &["a", "..."]),
            ("/a/.b", &["a", ".b"]),
            ("/a/%2e%2E/b", &["b"]),
            ("/a/%2e/b", &["a", "b"]),
            ("/a/.%2e/b", &["b"]),
            // Decoded once only.
            ("/a/%252e%252e/b", &["a", "%2e%2e", "b"]),
            ("/a%2Fb", &["a/b"]),
            ("/a/..%2F..", &["a", "../.."]),
            ("/%41%7a", &["Az"]),
            ("/a%", &["a%"]),
            ("/a%4", &["a%4"]),
            ("/a%zz%41", &["a%zzA"]),
            ("/%%41", &["%A"]),
        ];
        for (path, expected) in cases {
            assert_eq!(segments(path), expected, "{path}");
        }
        assert_eq!(*Path::new("/%00%ff").segments()[0], *b"\0\xff");
    }

    #[test]
    fn a_pattern_matches_segment_by_segment() {
        for (text, yes, no) in [
            ("/", vec!["/", "//", "", "/."], vec!["/a"]),
            ("/a", vec!["/a", "/a/"], vec!["/", "/A", "/a/b", "/ab"]),
            ("/a/", vec!["/a", "/a/"], vec!["/a/b"]),
            ("/**", vec!["/", "", "/a", "/a/b/c", "*"], vec![]),
            (
                "/a/**",
                vec!["/a", "/a/", "/a/b/c"],
                vec!["/", "/ab", "/b/a"],
            ),
            ("/a/**/", vec!["/a", "/a/b/c"], vec!["/b"]),
            ("/*", vec!["/a", "/a%2Fb"], vec!["/", "/a/b"]),
            ("/a/*/c", vec!["/a/b/c"], vec!["/a/c", "/a//c", "/a/b/b/c"]),
            ("/v*/x", vec!["/v/x", "/v1/x"], vec!["/x", "/w/x"]),
            (
                "/*.json",
                vec!["/a.json", "/.json"],
                vec!["/a.jso", "/a.json/b"],
            ),
            ("/a*z", vec!["/az", "/abz"], vec!["/a", "/z", "/abzy"]),
            ("/{id}", vec!["/1", "/%2F"], vec!["/", "/1/2"]),
            ("/a%20b", vec!["/a%20b"], vec!["/a+b"]),
            ("/a@b", vec!["/a@b", "/a%40b"], vec!["/ab"]),
            (
                "/caf\u{e9}",
                vec!["/caf%C3%A9", "/caf%c3%a9"],
                vec!["/caf%E9", "/cafe"],
            ),
            ("/a%2Fb", vec!["/a%2Fb", "/a%2fb"], vec!["/a/b"]),
        ] {
            let pattern = pattern(text);
            for path in yes {
                assert!(pattern.matches(&Path::new(path)), "{text} and {path}");
            }
            for path in no {
                assert!(!pattern.matches(&Path::new(path)), "{text} and {path}");
            }
        }
    }

    #[test]
    fn a_parameter_is_the_segment_at_its_position() {
        let files = pattern("/users/{id}/files/{name}/**");
        let path = Path::new("/users/%61nn/files/x%2Fy/z");
        assert_eq!(files.parameter("id", &path), Some(&b"ann"[..]));
        assert_eq!(files.parameter("name", &path), Some(&b"x/y"[..]));
        assert_eq!(files.parameter("other", &path), None);
        assert_eq!(files.parameter_names().collect::<Vec<_>>(), ["id", "name"]);
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for wrong in [
            "", "a", "*", "**", "//", "/a//b", "/./a", "/a/..", "/%2e%2E", "/a/**/b", "/a**",
            "/**a", "/a*b*", "/{", "/}", "/{}", "/{a}b", "/a{b}", "/{a b}", "/{a}/{a}", "/a?x=1",
            "/a#b", "/a%", "/a%4", "/a%g0", "/***",
        ] {
            let error = wrong.parse::<PathPattern>().expect_err(wrong);
            assert!(error.example().parse::<PathPattern>().is_ok());
        }
        assert!(
            format!("/{}", "x".repeat(1024))
                .parse::<PathPattern>()
                .is_err()
        );
    }

    #[test]
    fn a_long_path_is_matched_in_one_pass() {
        let pattern = pattern(&"/*a".repeat(300));
        let path = format!("/{}", "a".repeat(60_000)).repeat(2);
        assert!(!pattern.matches(&Path::new(&path)));
        assert!(Path::new(&"/a/..".repeat(20_000)).segments().is_empty());
    }

    #[test]
    fn patterns_overlap_if_a_path_matches_both() {
        let patterns = [
            "/",
            "/**",
            "/a",
            "/a/**",
            "/*",
            "/{x}",
            "/a*",
            "/*a",
            "/b*",
            "/a*b",
            "/ab*",
            "/a/*",
            "/a/{x}/**",
            "/b/**",
            "/*/c",
        ];
        // Every path of up to two segments of up to three letters.
        let letters = ["", "a", "b", "c"];
        let texts = || {
            letters
                .iter()
                .flat_map(move |a| letters.map(|b| format!("{a}{b}")))
        };
        let segments: Vec<String> = texts()
            .flat_map(|text| letters.map(|letter| format!("{text}{letter}")))
            .collect();
        let paths: Vec<String> = segments
            .iter()
            .flat_map(|a| segments.iter().map(move |b| format!("/{a}/{b}")))
            .collect();
        for one in patterns.map(pattern) {
            for other in patterns.map(pattern) {
                let mut paths = paths.iter().map(|path| Path::new(path));
                let both = paths.any(|path| one.matches(&path) && other.matches(&path));
                assert_eq!(one.overlaps(&other), both, "{one} and {other}");
            }
        }
    }

    #[test]
    fn a_pattern_matches_all_paths_of_a_pattern_it_covers() {
        let patterns = [
            "/",
            "/**",
            "/a",
            "/a/**",
            "/*",
            "/{x}",
            "/a*",
            "/a/*",
            "/a/{x}/**",
            "/b/**",
        ];
        let paths = [
            "/", "/a", "/b", "/ab", "/a/a", "/a/b/c", "/b/a", "/ab/c", "/b/a/c",
        ];
        for one in patterns.map(pattern) {
            for other in patterns.map(pattern) {
                let mut matched = paths.iter().filter(|path| other.matches(&Path::new(path)));
                let all = matched.all(|path| one.matches(&Path::new(path)));
                assert_eq!(one.covers(&other), all, "{one} and {other}");
            }
        }
    }
}
