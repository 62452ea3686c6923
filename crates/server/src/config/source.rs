//! The texts that rules are read from, and places in them. Knows no YAML and no rule.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::diagnostic::{Problem, code};

/// The largest file that is read.
pub(crate) const LARGEST: usize = 4 << 20;

/// A place in one of the texts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) file: u16,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn new(file: u16, range: Range<usize>) -> Self {
        let narrow = |at: usize| u32::try_from(at).expect("a file is at most 4 MiB");
        Span {
            file,
            start: narrow(range.start),
            end: narrow(range.end),
        }
    }

    /// The first byte of a file.
    pub(crate) fn start_of(file: u16) -> Self {
        Span::new(file, 0..0)
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// One text.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// How errors call it.
    pub(crate) name: String,
    /// Where it lies, if it is a file: what it includes lies beside it.
    pub(crate) path: Option<PathBuf>,
    pub(crate) text: String,
    /// The text as it may be shown: byte for byte as long, without what moves a cursor or is
    /// secret.
    shown: String,
}

/// All texts of one load, in the order in which they were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    all: Vec<Source>,
}

impl Sources {
    /// Adds a text that is at hand.
    pub(crate) fn add(&mut self, name: &str, path: Option<&Path>, text: String) -> u16 {
        let shown = showable(&text);
        self.all.push(Source {
            name: name.to_owned(),
            path: path.map(Path::to_owned),
            text,
            shown,
        });
        self.last()
    }

    /// Reads a file, whole and as text. What is wrong with it as a file is a problem inside it.
    pub(crate) fn read(&mut self, name: &str, path: &Path) -> Result<u16, Problem> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| {
            let most = LARGEST as u64 + 1;
            file.take(most).read_to_end(&mut bytes)
        });
        if let Err(error) = read {
            let file = self.add(name, Some(path), String::new());
            let message = format!("cannot read {name}: {}", plain(&error));
            return Err(Problem::error(
                code::UNREADABLE,
                Span::start_of(file),
                message,
            ));
        }
        self.take(name, Some(path), bytes)
    }

    /// Takes bytes that claim to be a text.
    pub(crate) fn take(
        &mut self,
        name: &str,
        path: Option<&Path>,
        bytes: Vec<u8>,
    ) -> Result<u16, Problem> {
        if bytes.len() > LARGEST {
            let file = self.add(name, path, String::new());
            let message = format!("the file is larger than {LARGEST} bytes");
            let problem = Problem::error(code::TOO_LARGE, Span::start_of(file), message);
            return Err(problem.help("split it, and name the parts under `include`"));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(self.add(name, path, text)),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let bytes = error.into_bytes();
                let text = bytes.utf8_chunks().fold(String::new(), |text, chunk| {
                    text + chunk.valid() + &"?".repeat(chunk.invalid().len())
                });
                let message = format!("the byte 0x{:02x} is not UTF-8 text", bytes[at]);
                let file = self.add(name, path, text);
                let span = Span::new(file, at..at + 1);
                let problem = Problem::error(code::NOT_TEXT, span, message);
                Err(problem.help("save the file as UTF-8"))
            }
        }
    }

    pub(crate) fn get(&self, file: u16) -> &Source {
        &self.all[usize::from(file)]
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The text of a place.
    pub(crate) fn slice(&self, span: Span) -> &str {
        self.get(span.file)
            .text
            .get(span.range())
            .unwrap_or_default()
    }

    /// Hides places of a file from whatever is shown.
    pub(crate) fn hide(&mut self, file: u16, places: &[Span]) {
        let source = &mut self.all[usize::from(file)];
        let ranges = places.iter().filter(|span| span.file == file);
        hide(&mut source.shown, ranges.map(|span| span.range()));
    }

    /// Line and column of a place, both from 1; columns are characters.
    pub(crate) fn line_and_column(&self, span: Span) -> (usize, usize) {
        let text = &self.get(span.file).text;
        let before = text.get(..span.start as usize).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }

    /// `file:line:column`, for a place that is told in passing.
    pub(crate) fn place(&self, span: Span) -> String {
        let (line, column) = self.line_and_column(span);
        format!("{}:{line}:{column}", self.get(span.file).name)
    }

    fn last(&self) -> u16 {
        u16::try_from(self.all.len() - 1).expect("the number of files is bounded far below")
    }
}

impl Source {
    /// The text as it may be shown.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }
}

/// An operating system's error in its own words, without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// A copy of the same length in bytes that a terminal can be shown: no controls, nothing that
/// turns text around, no password of a URL.
fn showable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' | '\u{feff}');
        match c {
            '\n' | '\t' => shown.push(c),
            '\r' => shown.push(' '),
            _ if turns => shown.push('\u{fffd}'),
            c if c.is_control() && c.len_utf8() == 1 => shown.push('?'),
            c if c.is_control() => shown.push('\u{bf}'),
            c => shown.push(c),
        }
    }
    debug_assert_eq!(shown.len(), text.len());
    hide_passwords(&mut shown);
    shown
}

/// Hides what stands between `://` and `@` in whatever looks like a URL.
fn hide_passwords(text: &mut String) {
    let mut hidden = Vec::new();
    for (at, mark) in text.match_indices("://") {
        let start = at + mark.len();
        let rest = &text[start..];
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '/');
        let authority = &rest[..rest.find(ends).unwrap_or(rest.len())];
        // A password may hold an `@` that should have been encoded: the last one counts.
        if let Some(end) = authority.rfind('@') {
            hidden.push(start..start + end);
        }
    }
    hide(text, hidden.into_iter());
}

/// Puts as many bytes of nothing in the place of some; a variable's name is not a secret.
fn hide(text: &mut String, ranges: impl Iterator<Item = Range<usize>>) {
    let ranges: Vec<Range<usize>> = ranges
        .filter(|range| {
            text.get(range.clone())
                .is_some_and(|text| !text.contains("${"))
        })
        .collect();
    let mut bytes = std::mem::take(text).into_bytes();
    for byte in ranges.into_iter().flatten() {
        if bytes[byte] != b'\n' {
            bytes[byte] = b'*';
        }
    }
    *text = String::from_utf8(bytes).expect("whole characters are replaced");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_as_long_and_harmless() {
        let text = "a\u{1b}[31m\r\n\u{85}\u{202e}é store: rediss://ann:p@ss@host:1/0 x";
        let shown = showable(text);
        assert_eq!(shown.len(), text.len());
        assert!(!shown.contains(['\u{1b}', '\u{202e}', '\u{85}', '\r']));
        assert!(!shown.contains("ann") && !shown.contains("p@ss"), "{shown}");
        assert!(shown.contains("@host:1/0 x"));
    }

    #[test]
    fn a_place_is_told_in_lines_and_characters() {
        let mut sources = Sources::default();
        let file = sources.add("f", None, "é: 1\nü: 22\n".into());
        let span = Span::new(file, 10..12);
        assert_eq!(sources.slice(span), "22");
        assert_eq!(sources.place(span), "f:2:4");
    }

    #[test]
    fn bytes_that_are_no_text_are_pointed_at() {
        let mut sources = Sources::default();
        let problem = sources
            .take("f", None, b"a: \xff\xfe".to_vec())
            .unwrap_err();
        assert_eq!(problem.span.range(), 3..4);
        assert_eq!(sources.get(0).text, "a: ??");
    }
}
