//! Values in a body that is JSON, lines of JSON, or a stream of events with JSON.

use ::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use memchr::memmem::Finder;
use smallvec::SmallVec;

use super::{JsonPath, JsonScanner, JsonValue};

/// How much of one JSON value is read.
pub const MAX_JSON_BYTES: usize = 1 << 20;

/// Reads whole numbers at some paths of a body that passes by in pieces, and keeps none of them.
///
/// - In a body that is one JSON value the last of equal fields counts, once the whole value is read.
/// - In a stream of events (`text/event-stream`) and in lines of JSON (`application/x-ndjson`) the last
///   event or line that has the path counts.
///
/// Of one JSON value at most 1 MiB is read; what follows later is not found.
#[derive(Clone, Debug)]
pub struct JsonBody {
    scanner: JsonScanner,
    format: Format,
    /// A name of each path, all of which an event lacks that is skipped. Empty if a path has none.
    names: SmallVec<[Finder<'static>; 1]>,
    /// How much of the current JSON value has been read.
    bytes: usize,
    /// What the current JSON value has, by path.
    current: SmallVec<[Found; 1]>,
    /// What the last complete one that has the path has.
    found: SmallVec<[Found; 1]>,
}

/// A value that was found: `None` if it is no whole number.
type Found = Option<Option<u32>>;

#[derive(Clone, Copy, Debug)]
enum Format {
    /// One JSON value.
    Single,
    /// One in each line.
    Lines,
    /// Events.
    Events(Line),
}

/// A position in a line of a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// After so many bytes of `data`.
    Start(usize),
    /// After `data:`.
    Colon,
    Data,
    /// Another field or a comment.
    Other,
    /// After a carriage return, which may be the first half of a line's end.
    Return,
}

const DATA: &[u8] = b"data";

impl JsonBody {
    /// A reader of a response's body. `None` if the body is compressed.
    pub fn from_headers(headers: &HeaderMap, paths: Vec<JsonPath>) -> Option<Self> {
        if !is_identity(headers) {
            return None;
        }
        let kind = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
        let kind = kind.and_then(|kind| kind.split(|&byte| byte == b';').next());
        let kind = kind.unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let format = match &*kind {
            b"text/event-stream" => Format::Events(Line::Start(0)),
            b"application/x-ndjson"
            | b"application/ndjson"
            | b"application/jsonl"
            | b"application/x-jsonlines" => Format::Lines,
            _ => Format::Single,
        };
        let count = paths.len();
        let names: Option<SmallVec<[Finder<'static>; 1]>> = paths
            .iter()
            .map(|path| Some(Finder::new(path.longest_name()?).into_owned()))
            .collect();
        Some(JsonBody {
            scanner: JsonScanner::new(paths),
            format,
            names: names.unwrap_or_default(),
            bytes: 0,
            current: SmallVec::from_elem(None, count),
            found: SmallVec::from_elem(None, count),
        })
    }

    /// Reads the next piece.
    pub fn read(&mut self, mut piece: &[u8]) {
        match self.format {
            // What is not JSON costs nothing more.
            Format::Single => self.feed(piece),
            Format::Lines => {
                while let Some(end) = memchr::memchr(b'\n', piece) {
                    self.feed(&piece[..end]);
                    self.end_value();
                    piece = &piece[end + 1..];
                }
                self.feed(piece);
            }
            Format::Events(mut line) => {
                while !piece.is_empty() {
                    (line, piece) = match self.skip_event(line, piece) {
                        Some(rest) => (line, rest),
                        None => self.read_line(line, piece),
                    };
                }
                self.format = Format::Events(line);
            }
        }
    }

    /// Ends the body and returns the number at each path, in order.
    pub fn finish(mut self) -> impl Iterator<Item = Option<u32>> {
        self.end_value();
        self.found.into_iter().map(Option::flatten)
    }

    /// Skips an event of one line that no path can lead into, and returns what follows: most events of
    /// a stream say nothing of its cost.
    fn skip_event<'p>(&self, line: Line, piece: &'p [u8]) -> Option<&'p [u8]> {
        if line != Line::Start(0) || !self.scanner.is_new() || self.names.is_empty() {
            return None;
        }
        let piece = piece.strip_prefix(b"data:")?;
        let (event, rest) = piece.split_at(memchr::memchr(b'\n', piece)?);
        let rest = rest.strip_prefix(b"\n\n")?;
        // An escape may spell a name, and a carriage return ends a line.
        let is_plain = memchr::memchr2(b'\\', b'\r', event).is_none();
        let lacks = |name: &Finder<'_>| name.find(event).is_none();
        (is_plain && self.names.iter().all(lacks)).then_some(rest)
    }

    /// Reads some of a line of a stream of events, and returns what follows.
    fn read_line<'p>(&mut self, line: Line, piece: &'p [u8]) -> (Line, &'p [u8]) {
        let (byte, rest) = (piece[0], &piece[1..]);
        match (line, byte) {
            // The end was that of the line before.
            (Line::Return, b'\n') => (Line::Start(0), rest),
            (Line::Return, _) => (Line::Start(0), piece),
            (Line::Start(0), b'\n' | b'\r') => {
                self.end_value();
                (end_of_line(byte), rest)
            }
            (Line::Start(_) | Line::Other, b'\n' | b'\r') => (end_of_line(byte), rest),
            (Line::Start(seen), byte) if DATA.get(seen) == Some(&byte) => {
                (Line::Start(seen + 1), rest)
            }
            (Line::Start(seen), b':') if seen == DATA.len() => {
                // A value in one line; one in several lines goes on.
                if self.scanner.is_complete() || self.scanner.is_malformed() {
                    self.end_value();
                } else if !self.scanner.is_new() {
                    self.feed(b"\n");
                }
                (Line::Colon, rest)
            }
            (Line::Colon, b' ') => (Line::Data, rest),
            (Line::Colon | Line::Data, _) => {
                let end = memchr::memchr2(b'\n', b'\r', piece);
                self.feed(&piece[..end.unwrap_or(piece.len())]);
                match end {
                    Some(end) => (end_of_line(piece[end]), &piece[end + 1..]),
                    None => (Line::Data, &[]),
                }
            }
            (Line::Start(_) | Line::Other, _) => match memchr::memchr2(b'\n', b'\r', piece) {
                Some(end) => (end_of_line(piece[end]), &piece[end + 1..]),
                None => (Line::Other, &[]),
            },
        }
    }

    fn feed(&mut self, piece: &[u8]) {
        let room = MAX_JSON_BYTES - self.bytes;
        let current = &mut self.current;
        self.scanner
            .read(&piece[..piece.len().min(room)], &mut |path, value| {
                current[path] = match value {
                    JsonValue::Null => current[path],
                    JsonValue::Whole(number) => Some(Some(number)),
                    JsonValue::Text(_) | JsonValue::Bool(_) | JsonValue::Other => Some(None),
                };
            });
        self.bytes += piece.len().min(room);
        if piece.len() > room {
            self.scanner.abandon();
        }
    }

    /// Keeps what the current JSON value has if it is complete, and expects another one.
    fn end_value(&mut self) {
        if self.scanner.is_complete() {
            for (found, current) in self.found.iter_mut().zip(&self.current) {
                *found = current.or(*found);
            }
        }
        self.current.fill(None);
        self.scanner.restart();
        self.bytes = 0;
    }
}

fn end_of_line(byte: u8) -> Line {
    match byte {
        b'\r' => Line::Return,
        _ => Line::Start(0),
    }
}

/// Whether a body is not compressed.
pub(crate) fn is_identity(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(CONTENT_ENCODING).iter();
    let mut codings = codings.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    codings.all(|coding| {
        let coding = coding.trim_ascii();
        coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
    })
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    fn body(kind: &'static str, path: &str) -> JsonBody {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        JsonBody::from_headers(&headers, vec![path.parse().unwrap()]).unwrap()
    }

    /// What is found, in one piece and in pieces of every size.
    fn read(kind: &'static str, path: &str, text: &str) -> Option<u32> {
        let pieces = |size: usize| {
            let mut body = body(kind, path);
            text.as_bytes()
                .chunks(size)
                .for_each(|piece| body.read(piece));
            body.finish().next().unwrap()
        };
        let whole = pieces(text.len().max(1));
        for size in 1..text.len().min(64) {
            assert_eq!(pieces(size), whole, "{text:?} in pieces of {size}");
        }
        whole
    }

    #[test]
    fn a_single_value_counts_when_it_is_complete() {
        for (text, expected) in [
            (r#"{"usage":{"total_tokens":812}}"#, Some(812)),
            (r#"{"usage":{"total_tokens":812}} "#, Some(812)),
            (
                r#"{"usage":{"total_tokens":812},"usage":{"total_tokens":7}}"#,
                Some(7),
            ),
            (r#"{"usage":{"total_tokens":812,"total_tokens":-1}}"#, None),
            (
                r#"{"usage":{"total_tokens":812,"total_tokens":null}}"#,
                Some(812),
            ),
            (r#"{"usage":{"total_tokens":812}"#, None),
            (r#"{"usage":{"total_tokens":812}}x"#, None),
            (r#"{"usage":null}"#, None),
            (r#"{"usage":{"total_tokens":"812"}}"#, None),
            (r#"{"usage":{"total_tokens":8.5}}"#, None),
            ("", None),
        ] {
            let found = read("application/json", "usage.total_tokens", text);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn the_last_event_that_has_the_path_counts() {
        for (text, expected) in [
            ("data: {\"n\":1}\n\n", Some(1)),
            (
                "data: {\"n\":1}\n\ndata: {\"n\":2}\n\ndata: [DONE]\n\n",
                Some(2),
            ),
            ("data:{\"n\":1}\r\n\r\ndata:{\"n\":null}\r\n\r\n", Some(1)),
            ("data: {\"n\":1}\r\rdata: {\"m\":2}\r\r", Some(1)),
            // Without an empty line at the end, and without any between.
            ("data: {\"n\":1}\n\ndata: {\"n\":2}", Some(2)),
            ("data: {\"n\":1}\ndata: {\"n\":2}\n", Some(2)),
            ("data: oops\ndata: {\"n\":2}\n", Some(2)),
            // One value in several lines.
            (
                "data: {\"a\":[1,\ndata: 2],\ndata:\ndata: \"n\":3}\n\n",
                Some(3),
            ),
            // It breaks off, and does not go on in the next event.
            ("data: {\"n\":1}\n\ndata: {\"n\":2\n\ndata: }\n\n", Some(1)),
            ("data: {\"n\":1}\n\ndata: {\"n\":2", Some(1)),
            ("data: {\"n\":1}\n\ndata: {\"n\":-2}\n\n", None),
            ("data: {\"n\":1}\n\ndata: {\"n\":\"2\"}\n\n", None),
            (
                ": {\"n\":9}\nevent: x\nid: 1\ndatax: {\"n\":9}\ndat: {\"n\":9}\n\
                 data : {\"n\":9}\ndata\nretry: 1\ndata: {\"n\":1}\n\n",
                Some(1),
            ),
            ("\u{feff}data: {\"n\":1}\n\ndata: {\"n\":2}\n\n", Some(2)),
            ("{\"n\":1}\n\n", None),
            ("", None),
        ] {
            let found = read("Text/Event-Stream; charset=utf-8", "n", text);
            assert_eq!(found, expected, "{text:?}");
        }
    }

    /// Pieces of one byte are never skipped.
    #[test]
    fn skipped_events_change_nothing() {
        const PARTS: [&str; 16] = [
            "data:",
            "data: ",
            "{\"n\":",
            "{\"m\":{\"n\":",
            "{\"\\u006e\":",
            "1",
            "23",
            "}",
            "}}",
            ",",
            "[",
            "]",
            "\n",
            "\n\n",
            "\r\n",
            "event: n",
        ];
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let count = rng.usize(0..24);
            let parts = (0..count).map(|_| rng.choice(PARTS).unwrap_or_default());
            let text: String = parts.collect();
            for path in ["n", "m.n", "0"] {
                let kind = "text/event-stream";
                let (mut whole, mut bytes) = (body(kind, path), body(kind, path));
                whole.read(text.as_bytes());
                text.as_bytes().chunks(1).for_each(|byte| bytes.read(byte));
                let (whole, bytes) = (whole.finish().next(), bytes.finish().next());
                assert_eq!(whole, bytes, "{path} in {text:?}");
            }
        }
    }

    #[test]
    fn the_last_line_that_has_the_path_counts() {
        for (text, expected) in [
            ("{\"n\":1}\n{\"n\":2}\n{}\n", Some(2)),
            ("{\"n\":1}\r\n{\"n\":2}", Some(2)),
            ("{\"n\":1}\n{\"n\":2", Some(1)),
            ("{\"n\":1}\noops\n", Some(1)),
        ] {
            let found = read("application/x-ndjson", "n", text);
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn at_most_a_mebibyte_of_a_value_is_read() {
        let json = |padding: usize| format!("{{\"pad\":\"{}\",\"n\":1}}", "x".repeat(padding));
        let overhead = json(0).len();
        let (fits, too_long) = (MAX_JSON_BYTES - overhead, MAX_JSON_BYTES - overhead + 1);
        for size in [1 << 30, 1 << 14, 999] {
            let found = |kind, text: String| {
                let mut body = body(kind, "n");
                text.as_bytes()
                    .chunks(size)
                    .for_each(|piece| body.read(piece));
                body.finish().next().unwrap()
            };
            assert_eq!(found("application/json", json(fits)), Some(1));
            assert_eq!(found("application/json", json(too_long)), None);
            // Of each event.
            let kind = "text/event-stream";
            let one = format!("data: {}\n\n", json(fits));
            assert_eq!(found(kind, one.repeat(3)), Some(1));
            assert_eq!(found(kind, format!("data: {}\n\n", json(too_long))), None);
            let after = format!("data: {}\n\ndata: {{\"n\":2}}\n\n", json(too_long));
            assert_eq!(found(kind, after), Some(2));
        }
    }

    #[test]
    fn compressed_bodies_are_not_read() {
        for (codings, read) in [
            (&["gzip"][..], false),
            (&["identity, br"], false),
            (&["identity", "zstd"], false),
            (&["identity"], true),
            (&["Identity, "], true),
            (&[""], true),
        ] {
            let mut headers = HeaderMap::new();
            for coding in codings {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(coding));
            }
            let body = JsonBody::from_headers(&headers, vec!["n".parse().unwrap()]);
            assert_eq!(body.is_some(), read, "{codings:?}");
        }
    }
}
