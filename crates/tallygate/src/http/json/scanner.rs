//! The scanner: a state machine over the bytes of one JSON value, however they are cut into pieces.
//!
//! It checks the structure, so that JSON that breaks off is noticed, and not what is inside of strings
//! and numbers that no path leads to.

use std::sync::Arc;

use super::path::{JsonPath, MAX_SEGMENTS};

/// How many paths are looked for at once at most.
pub const MAX_JSON_PATHS: usize = 128;
/// How deep lists and objects are nested at most.
const MAX_DEPTH: usize = 128;
/// Longer names and texts equal none that is looked for.
const MAX_TEXT_BYTES: usize = 256;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// A value that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonValue<'a> {
    /// `null`.
    Null,
    /// A whole number from 0 to 2^32-1, in digits.
    Whole(u32),
    /// A text of at most 256 bytes, without its escapes.
    Text(&'a [u8]),
    /// `true` or `false`.
    Bool(bool),
    /// Anything else: another number, a longer text, a list or an object.
    Other,
}

/// Looks for the values at some paths in one JSON value that comes in pieces.
///
/// A value is reported when it ends, also if the JSON breaks off later: whoever needs the whole waits
/// until it [is complete](JsonScanner::is_complete). Of equal names in one object each is reported.
/// The scanner takes the same memory whatever it reads.
///
/// ```
/// use tallygate::http::{JsonScanner, JsonValue};
///
/// let mut scanner = JsonScanner::new(["usage.total_tokens".parse()?]);
/// let mut total = None;
/// for piece in ["{\"text\":\"hi\",\"usage\":{\"total", "_tokens\":812}}"] {
///     scanner.read(piece.as_bytes(), &mut |_, value| {
///         if let JsonValue::Whole(tokens) = value {
///             total = Some(tokens);
///         }
///     });
/// }
/// assert!(scanner.is_complete());
/// assert_eq!(total, Some(812));
/// # Ok::<(), tallygate::http::TextError>(())
/// ```
#[derive(Clone, Debug)]
pub struct JsonScanner {
    paths: Arc<[JsonPath]>,
    state: State,
    /// How many lists and objects are open.
    depth: usize,
    /// Which of them are lists, outermost in the lowest bit.
    lists: u128,
    /// The number of the current element of the outermost lists.
    elements: [u32; MAX_SEGMENTS],
    /// For each path, how many names at its start the open lists and objects follow.
    followed: Box<[u8]>,
    /// The paths that the value that comes next continues, one bit each.
    next: u128,
    /// The text of a name or a value that may be looked for, decoded.
    text: Vec<u8>,
    text_is_too_long: bool,
    ignore_case: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the start, after so many bytes of a byte order mark.
    Start(u8),
    Value,
    /// After `[`.
    ValueOrEnd,
    /// After `{`.
    NameOrEnd,
    /// After `,` in an object.
    Name,
    Colon,
    /// After an element or a field.
    CommaOrEnd,
    Text(Text),
    /// After `\`.
    Escape(Text),
    /// After `\u`: the digits so far and their number.
    Unicode(Text, u16, u8),
    Number,
    /// The rest of a literal.
    Literal(&'static [u8]),
    /// After the whole value.
    Complete,
    Malformed,
}

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Text {
    is_name: bool,
    /// Whether it may be looked for, so that it is decoded.
    keep: bool,
    /// The first half of a surrogate pair, or 0.
    high: u16,
}

/// Receives a value and the index of the path that leads to it.
type Sink<'s> = &'s mut dyn FnMut(usize, JsonValue<'_>);

impl JsonScanner {
    /// A scanner for the values at some paths, of which the first [`MAX_JSON_PATHS`] count.
    pub fn new(paths: impl Into<Arc<[JsonPath]>>) -> Self {
        let paths = paths.into();
        let count = paths.len().min(MAX_JSON_PATHS);
        JsonScanner {
            paths,
            state: State::Start(0),
            depth: 0,
            lists: 0,
            elements: [0; MAX_SEGMENTS],
            followed: vec![0; count].into(),
            next: 0,
            text: Vec::new(),
            text_is_too_long: false,
            ignore_case: false,
        }
    }

    /// Compares names without case, as some servers do.
    #[must_use]
    pub fn ignore_case(mut self) -> Self {
        self.ignore_case = true;
        self
    }

    /// The paths.
    pub fn paths(&self) -> &Arc<[JsonPath]> {
        &self.paths
    }

    /// Starts over with another JSON value.
    pub fn restart(&mut self) {
        self.state = State::Start(0);
        self.depth = 0;
        self.lists = 0;
        self.followed.fill(0);
        self.next = 0;
    }

    /// Whether nothing but space has been read.
    pub fn is_new(&self) -> bool {
        matches!(self.state, State::Start(_))
    }

    /// Whether one whole JSON value has been read, and nothing after it but space.
    pub fn is_complete(&self) -> bool {
        // Only the end of the input ends a number that is the whole value.
        self.state == State::Complete || self.state == State::Number && self.depth == 0
    }

    /// Whether what was read is not JSON, or is nested more than 128 deep.
    pub fn is_malformed(&self) -> bool {
        self.state == State::Malformed
    }

    /// Gives up: whatever follows, the value will not be complete.
    pub fn abandon(&mut self) {
        self.state = State::Malformed;
    }

    /// Reads the next piece and calls a function with each value that ends in it and the index of its
    /// path.
    pub fn read(&mut self, mut piece: &[u8], found: Sink<'_>) {
        while let Some((&byte, rest)) = piece.split_first() {
            match self.state {
                State::Text(text) => {
                    piece = self.read_text(text, piece, found);
                    continue;
                }
                State::Malformed => return,
                _ => self.read_byte(byte, found),
            }
            piece = rest;
        }
    }

    fn read_byte(&mut self, byte: u8, found: Sink<'_>) {
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.state {
            State::Start(seen) if BOM.get(usize::from(seen)) == Some(&byte) => {
                self.state = State::Start(seen + 1);
            }
            State::Start(1 | 2) => self.state = State::Malformed,
            State::Start(_)
            | State::Value
            | State::ValueOrEnd
            | State::NameOrEnd
            | State::Name
            | State::Colon
            | State::CommaOrEnd
            | State::Complete
                if is_space => {}
            State::Start(_) | State::Value => self.start_value(byte, found),
            State::ValueOrEnd if byte == b']' => self.close(),
            State::ValueOrEnd => self.start_value(byte, found),
            State::NameOrEnd if byte == b'}' => self.close(),
            State::NameOrEnd | State::Name if byte == b'"' => {
                let keep = self.is_followed();
                self.start_text(true, keep);
            }
            State::Colon if byte == b':' => self.state = State::Value,
            State::CommaOrEnd => match (byte, self.in_list()) {
                (b']', true) | (b'}', false) => self.close(),
                (b',', true) => {
                    if let Some(element) = self.elements.get_mut(self.depth - 1) {
                        *element = element.saturating_add(1);
                    }
                    self.next = self.next_in_list();
                    self.state = State::Value;
                }
                (b',', false) => self.state = State::Name,
                _ => self.state = State::Malformed,
            },
            State::Escape(text) => self.escape(text, byte),
            State::Unicode(text, code, digits) => self.unicode(text, code, digits, byte),
            State::Number => match byte {
                b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E' => {
                    if self.next != 0 {
                        self.push(&[byte]);
                    }
                }
                _ => {
                    self.end_number(found);
                    self.read_byte(byte, found);
                }
            },
            State::Literal(rest) => match rest.split_first() {
                Some((expected, rest)) if *expected == byte => {
                    self.state = State::Literal(rest);
                    if rest.is_empty() {
                        self.end_value();
                    }
                }
                Some(_) | None => self.state = State::Malformed,
            },
            State::NameOrEnd
            | State::Name
            | State::Colon
            | State::Complete
            | State::Text(_)
            | State::Malformed => self.state = State::Malformed,
        }
    }

    fn start_value(&mut self, byte: u8, found: Sink<'_>) {
        match byte {
            b'{' => self.open(false, found),
            b'[' => self.open(true, found),
            b'"' => self.start_text(false, self.next != 0),
            b'-' | b'0'..=b'9' => {
                self.start_keeping();
                if self.next != 0 {
                    self.push(&[byte]);
                }
                self.state = State::Number;
            }
            b't' | b'f' => {
                self.report(JsonValue::Bool(byte == b't'), found);
                self.state = State::Literal(if byte == b't' { b"rue" } else { b"alse" });
            }
            b'n' => {
                self.report(JsonValue::Null, found);
                self.state = State::Literal(b"ull");
            }
            _ => self.state = State::Malformed,
        }
    }

    fn open(&mut self, is_list: bool, found: Sink<'_>) {
        if self.depth == MAX_DEPTH {
            self.state = State::Malformed;
            return;
        }
        self.report(JsonValue::Other, found);
        // The paths that go on inside.
        let depth = self.depth;
        for path in bits(self.next) {
            if self.paths[path].len() > depth {
                self.followed[path] = u8::try_from(depth).unwrap_or(u8::MAX);
            }
        }
        let bit = 1 << depth;
        self.lists = if is_list {
            self.lists | bit
        } else {
            self.lists & !bit
        };
        self.depth += 1;
        self.state = match is_list {
            true => {
                if let Some(element) = self.elements.get_mut(depth) {
                    *element = 0;
                }
                self.next = self.next_in_list();
                State::ValueOrEnd
            }
            false => {
                self.next = 0;
                State::NameOrEnd
            }
        };
    }

    fn close(&mut self) {
        self.depth -= 1;
        let depth = self.depth;
        for followed in &mut self.followed {
            if depth > 0 && usize::from(*followed) == depth {
                *followed -= 1;
            }
        }
        self.end_value();
    }

    fn end_value(&mut self) {
        self.next = 0;
        self.state = match self.depth {
            0 => State::Complete,
            _ => State::CommaOrEnd,
        };
    }

    fn in_list(&self) -> bool {
        self.depth > 0 && self.lists >> (self.depth - 1) & 1 == 1
    }

    /// Whether a path leads through the innermost open list or object.
    fn is_followed(&self) -> bool {
        (0..self.followed.len()).any(|path| self.follows(path))
    }

    fn follows(&self, path: usize) -> bool {
        self.depth > 0
            && usize::from(self.followed[path]) + 1 == self.depth
            && self.paths[path].len() >= self.depth
    }

    /// The paths that go on with a name in the innermost object.
    fn next_by_name(&self) -> u128 {
        if self.text_is_too_long {
            return 0;
        }
        self.continued(|segment| {
            let name = segment.name.as_bytes();
            name == self.text || self.ignore_case && is_same_without_case(name, &self.text)
        })
    }

    /// The paths that go on with the current element of the innermost list.
    fn next_in_list(&self) -> u128 {
        let element = self.depth.checked_sub(1);
        let element = element.and_then(|at| self.elements.get(at)).copied();
        self.continued(|segment| segment.index.is_some() && segment.index == element)
    }

    fn continued(&self, matches: impl Fn(&super::path::Segment) -> bool) -> u128 {
        let mut next = 0;
        for path in 0..self.followed.len() {
            if self.follows(path)
                && self.paths[path]
                    .segment(self.depth - 1)
                    .is_some_and(&matches)
            {
                next |= 1 << path;
            }
        }
        next
    }

    /// Reports a value to the paths that end here.
    fn report(&self, value: JsonValue<'_>, found: Sink<'_>) {
        for path in bits(self.next) {
            if self.paths[path].len() == self.depth {
                found(path, value);
            }
        }
    }

    fn start_keeping(&mut self) {
        self.text.clear();
        self.text_is_too_long = false;
    }

    fn push(&mut self, bytes: &[u8]) {
        match self.text.len() + bytes.len() <= MAX_TEXT_BYTES {
            true => self.text.extend_from_slice(bytes),
            false => self.text_is_too_long = true,
        }
    }

    fn push_char(&mut self, code: u32) {
        let char = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        self.push(char.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn start_text(&mut self, is_name: bool, keep: bool) {
        self.start_keeping();
        self.state = State::Text(Text {
            is_name,
            keep,
            high: 0,
        });
    }

    /// Reads up to the end of a text or to an escape in it, and returns what follows.
    fn read_text<'p>(&mut self, mut text: Text, piece: &'p [u8], found: Sink<'_>) -> &'p [u8] {
        let end = memchr::memchr2(b'"', b'\\', piece);
        let plain = &piece[..end.unwrap_or(piece.len())];
        if text.keep && !plain.is_empty() {
            self.end_pair(&mut text);
            self.push(plain);
        }
        let Some(end) = end else {
            self.state = State::Text(text);
            return &[];
        };
        match piece[end] {
            b'\\' => self.state = State::Escape(text),
            _ => {
                self.end_pair(&mut text);
                self.end_text(text, found);
            }
        }
        &piece[end + 1..]
    }

    fn end_text(&mut self, text: Text, found: Sink<'_>) {
        if text.is_name {
            self.next = if text.keep { self.next_by_name() } else { 0 };
            self.state = State::Colon;
            return;
        }
        self.report(
            match self.text_is_too_long {
                false => JsonValue::Text(&self.text),
                true => JsonValue::Other,
            },
            found,
        );
        self.end_value();
    }

    /// Ends a surrogate pair that lacks its second half.
    fn end_pair(&mut self, text: &mut Text) {
        if text.high != 0 {
            text.high = 0;
            self.push_char(u32::from(char::REPLACEMENT_CHARACTER));
        }
    }

    fn escape(&mut self, mut text: Text, byte: u8) {
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.state = State::Unicode(text, 0, 0);
                return;
            }
            _ => {
                self.state = State::Malformed;
                return;
            }
        };
        if text.keep {
            self.end_pair(&mut text);
            self.push(&[plain]);
        }
        self.state = State::Text(text);
    }

    fn unicode(&mut self, mut text: Text, code: u16, digits: u8, byte: u8) {
        let Some(digit) = char::from(byte).to_digit(16) else {
            self.state = State::Malformed;
            return;
        };
        let code = code << 4 | u16::try_from(digit).unwrap_or_default();
        if digits < 3 {
            self.state = State::Unicode(text, code, digits + 1);
            return;
        }
        if text.keep {
            match (text.high, code) {
                (high @ 0xd800..=0xdbff, 0xdc00..=0xdfff) => {
                    text.high = 0;
                    let (high, low) = (u32::from(high) - 0xd800, u32::from(code) - 0xdc00);
                    self.push_char(0x1_0000 + (high << 10) + low);
                }
                (_, 0xd800..=0xdbff) => {
                    self.end_pair(&mut text);
                    text.high = code;
                }
                _ => {
                    self.end_pair(&mut text);
                    self.push_char(u32::from(code));
                }
            }
        }
        self.state = State::Text(text);
    }

    fn end_number(&mut self, found: Sink<'_>) {
        if self.next != 0 {
            let value = match self.text_is_too_long {
                true => None,
                false => whole(&self.text),
            };
            self.report(value.map_or(JsonValue::Other, JsonValue::Whole), found);
        }
        self.end_value();
    }
}

/// Compares names as Go does, to which `ſ` is an `s` and the Kelvin sign a `k`.
fn is_same_without_case(name: &[u8], other: &[u8]) -> bool {
    if name.is_ascii() && other.is_ascii() {
        return name.eq_ignore_ascii_case(other);
    }
    let folded = |name| String::from_utf8_lossy(name).to_uppercase().to_lowercase();
    folded(name) == folded(other)
}

/// A number that is written as a whole one, without a leading 0.
fn whole(digits: &[u8]) -> Option<u32> {
    let is_whole =
        digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || digits[0] != b'0');
    let digits = str::from_utf8(digits).ok().filter(|_| is_whole)?;
    digits.parse().ok()
}

/// The numbers of the bits that are set.
fn bits(mut set: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(lowest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found, as text, and whether the JSON is complete.
    fn scan(paths: &[&str], pieces: &[&[u8]]) -> (Vec<String>, bool) {
        let paths: Vec<JsonPath> = paths.iter().map(|path| path.parse().unwrap()).collect();
        let mut scanner = JsonScanner::new(paths);
        let mut all = Vec::new();
        for piece in pieces {
            scanner.read(piece, &mut |path, value| {
                let value = match value {
                    JsonValue::Null => "null".to_owned(),
                    JsonValue::Whole(number) => number.to_string(),
                    JsonValue::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
                    JsonValue::Bool(value) => value.to_string(),
                    JsonValue::Other => "other".to_owned(),
                };
                all.push(format!("{path}:{value}"));
            });
        }
        assert!(!scanner.is_complete() || !scanner.is_malformed());
        (all, scanner.is_complete())
    }

    fn whole_and_cut(paths: &[&str], json: &str) -> (Vec<String>, bool) {
        let bytes = json.as_bytes();
        let whole = scan(paths, &[bytes]);
        for at in 0..=bytes.len() {
            let (start, end) = bytes.split_at(at);
            assert_eq!(scan(paths, &[start, end]), whole, "{json} cut at {at}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(scan(paths, &single), whole, "{json} byte by byte");
        whole
    }

    #[test]
    fn values_are_found_wherever_the_json_is_cut() {
        for (paths, json, expected) in [
            (&["a"][..], r#"{"a":1}"#, &["0:1"][..]),
            (&["a"], "\u{feff} {\n\"a\" :\t1 }\r\n", &["0:1"]),
            (
                &["a.b"],
                r#"{"x":{"b":1},"a":{"x":2,"b":3},"b":4}"#,
                &["0:3"],
            ),
            (&["a.b", "a"], r#"{"a":{"b":3}}"#, &["1:other", "0:3"]),
            (&["a.b"], r#"{"a":[{"b":1}],"b":2}"#, &[]),
            (&["a.b"], r#"{"a":{"a":{"b":1}}}"#, &[]),
            (&["a.b"], r#"{"a":{"c":{"a":1,"b":2}},"b":3}"#, &[]),
            (&["a.1.b"], r#"{"a":[{"b":1},{"b":2},{"b":3}]}"#, &["0:2"]),
            (&["a.1"], r#"{"a":[[1,2],[3,[4]],5]}"#, &["0:other"]),
            (&["1.1"], r#"[[1,2],[3,4,[5]],5]"#, &["0:4"]),
            (&["a.0"], r#"{"a":{"0":7}}"#, &["0:7"]),
            // Each of equal names.
            (
                &["a"],
                r#"{"a":1,"a":"x","a":null}"#,
                &["0:1", "0:\"x\"", "0:null"],
            ),
            (&["a.b"], r#"{"a":{"b":1},"a":{"b":2}}"#, &["0:1", "0:2"]),
            (&["a"], r#"{"a":true,"a":false}"#, &["0:true", "0:false"]),
            (&["a"], r#"{"a":{}}"#, &["0:other"]),
            (&["a"], r#"{"a":[]}"#, &["0:other"]),
            (&["a"], "{}", &[]),
            (&["a"], "[]", &[]),
            (&["a"], "12", &[]),
            (&["a"], r#""a""#, &[]),
            (&["a"], "null", &[]),
        ] {
            let (found, complete) = whole_and_cut(paths, json);
            assert_eq!(found, expected, "{json}");
            assert!(complete, "{json}");
        }
    }

    #[test]
    fn only_digits_below_two_to_the_thirty_two_are_whole() {
        for (number, expected) in [
            ("0", "0:0"),
            ("812", "0:812"),
            ("4294967295", "0:4294967295"),
            ("4294967296", "0:other"),
            ("99999999999999999999999999999999999999999", "0:other"),
            ("-1", "0:other"),
            ("-0", "0:other"),
            ("1.0", "0:other"),
            ("8.5", "0:other"),
            ("1e3", "0:other"),
            ("012", "0:other"),
        ] {
            let (found, _) = whole_and_cut(&["a"], &format!("{{\"a\":{number}}}"));
            assert_eq!(found, [expected], "{number}");
            let (found, _) = whole_and_cut(&["a"], &format!("{{\"a\":{number} ,\"b\":2}}"));
            assert_eq!(found, [expected], "{number}");
        }
        let digits = format!("{{\"a\":1{}}}", "0".repeat(10_000));
        assert_eq!(scan(&["a"], &[digits.as_bytes()]).0, ["0:other"]);
    }

    #[test]
    fn texts_and_names_are_decoded() {
        for (json, expected) in [
            (r#"{"a":"gpt-large"}"#, r#"0:"gpt-large""#),
            (r#"{"\u0061":"gpt\u002dlarge"}"#, r#"0:"gpt-large""#),
            (
                r#"{"a":"\"\\\/\b\f\n\r\t"}"#,
                r#"0:"\"\\/\u{8}\u{c}\n\r\t""#,
            ),
            (r#"{"a":"\uD83D\uDE00x"}"#, "0:\"😀x\""),
            (r#"{"a":"\ud83dx"}"#, "0:\"\u{fffd}x\""),
            (r#"{"a":"\ud83d"}"#, "0:\"\u{fffd}\""),
            (r#"{"a":"\ud83d\n"}"#, "0:\"\u{fffd}\\n\""),
            (r#"{"a":"\ud83d\ud83d\ude00"}"#, "0:\"\u{fffd}😀\""),
            (r#"{"a":"\ude00"}"#, "0:\"\u{fffd}\""),
            ("{\"a\":\"ü\"}", "0:\"ü\""),
            (r#"{"a":""}"#, r#"0:"""#),
        ] {
            let (found, complete) = whole_and_cut(&["a"], json);
            let expected = vec![expected.to_owned()];
            assert_eq!((found, complete), (expected, true), "{json}");
        }
        let longest = "x".repeat(MAX_TEXT_BYTES);
        let (found, _) = scan(&["a"], &[format!("{{\"a\":\"{longest}\"}}").as_bytes()]);
        assert_eq!(found, [format!("0:{longest:?}")]);
        let (found, _) = scan(&["a"], &[format!("{{\"a\":\"{longest}x\"}}").as_bytes()]);
        assert_eq!(found, ["0:other"]);
        // A name that is too long equals none.
        let (found, complete) = scan(&["a"], &[format!("{{\"{longest}x\":1}}").as_bytes()]);
        assert_eq!((found.len(), complete), (0, true));
    }

    #[test]
    fn what_breaks_off_or_is_no_json_is_not_complete() {
        for json in [
            "",
            " ",
            "{",
            r#"{"a""#,
            r#"{"a":"#,
            r#"{"a":1"#,
            r#"{"a":1,"#,
            r#"{"a":{"b":1}"#,
            r#"["a""#,
            "tru",
            r#""a"#,
            r#""a\"#,
            r#""a\u00"#,
        ] {
            let (_, complete) = whole_and_cut(&["a"], json);
            assert!(!complete, "{json}");
        }
        for json in [
            "}",
            "[}",
            "{]",
            "{1:2}",
            "{,}",
            r#"{"a" 1}"#,
            r#"{"a":1 "b":2}"#,
            r#"{"a":1,}"#,
            r#"{"a":1}x"#,
            r#"{"a":1}{}"#,
            "[1,]",
            "[1 2]",
            "nul1",
            "True",
            r#""\x""#,
            r#""\u00g0""#,
            "<html>",
            "data: {}",
            "\u{feff}\u{feff}1",
        ] {
            let mut scanner = JsonScanner::new(["a".parse::<JsonPath>().unwrap()]);
            scanner.read(json.as_bytes(), &mut |_, _| {});
            assert!(scanner.is_malformed() && !scanner.is_complete(), "{json}");
            scanner.restart();
            scanner.read(b"{\"a\":1}", &mut |_, value| {
                assert_eq!(value, JsonValue::Whole(1));
            });
            assert!(scanner.is_complete(), "{json}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        for (depth, complete) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false)] {
            let json = "[".repeat(depth) + &"]".repeat(depth);
            assert_eq!(scan(&["a"], &[json.as_bytes()]).1, complete, "{depth}");
        }
        let names: Vec<String> = (0..MAX_SEGMENTS).map(|name| name.to_string()).collect();
        let json = names.iter().rev().fold("7".to_owned(), |inner, name| {
            format!("{{\"x\":[1,2],\"{name}\":{inner},\"y\":{{}}}}")
        });
        assert_eq!(whole_and_cut(&[&names.join(".")], &json).0, ["0:7"]);
    }

    #[test]
    fn names_are_compared_without_case_on_request() {
        let json = br#"{"Model":1,"model":2,"models":3,"MODEL":4}"#;
        for (ignore_case, expected) in [(false, &[2][..]), (true, &[1, 2, 4])] {
            let mut scanner = JsonScanner::new(["model".parse::<JsonPath>().unwrap()]);
            if ignore_case {
                scanner = scanner.ignore_case();
            }
            let mut found = Vec::new();
            scanner.read(json, &mut |_, value| {
                if let JsonValue::Whole(number) = value {
                    found.push(number);
                }
            });
            assert_eq!(found, expected);
        }
        for name in [
            "max_tokens",
            "MAX_TOKENS",
            "max_to\u{212a}ens",
            "max_token\u{17f}",
        ] {
            let paths = ["max_tokens".parse::<JsonPath>().unwrap()];
            let mut scanner = JsonScanner::new(paths).ignore_case();
            let mut is_found = false;
            let json = format!("{{\"{name}\":1}}");
            scanner.read(json.as_bytes(), &mut |_, _| is_found = true);
            assert!(is_found, "{name}");
        }
    }

    #[test]
    fn many_paths_are_looked_for_at_once() {
        let names: Vec<String> = (0..=MAX_JSON_PATHS).map(|n| format!("a.n{n}")).collect();
        let paths: Vec<&str> = names.iter().map(String::as_str).collect();
        let fields = (0..=MAX_JSON_PATHS).map(|n| format!("\"n{n}\":{n}"));
        let fields: Vec<String> = fields.collect();
        let json = format!("{{\"a\":{{{}}}}}", fields.join(","));
        let expected: Vec<String> = (0..MAX_JSON_PATHS).map(|n| format!("{n}:{n}")).collect();
        assert_eq!(scan(&paths, &[json.as_bytes()]).0, expected);
    }
}
