//! The source texts of one load, and spans in them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostic::{Diagnostics, code};

const MAX_FILE_BYTES: usize = 4 << 20;

/// A byte range in one of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) file: u16,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn new(file: u16, range: Range<usize>) -> Self {
        let offset = |at: usize| u32::try_from(at).expect("a file is at most 4 MiB");
        Span {
            file,
            start: offset(range.start),
            end: offset(range.end),
        }
    }

    /// The empty span at the start of a file.
    pub(crate) fn start_of(file: u16) -> Self {
        Span::new(file, 0..0)
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The name shown in diagnostics.
    pub(crate) name: String,
    /// Its path, if it is a file. `include` and certificates are relative to its directory.
    pub(crate) path: Option<PathBuf>,
    pub(crate) text: String,
    /// The text to show in diagnostics: of the same length, without control characters and secrets.
    pub(crate) sanitized: String,
}

/// All sources of one load, in the order in which they were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(Vec<Arc<Source>>);

/// Whether reading a path may never end.
fn is_pipe_or_device(path: &Path) -> bool {
    let metadata = fs::metadata(path);
    metadata.is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

impl Sources {
    pub(crate) fn add(&mut self, name: &str, path: Option<&Path>, text: String) -> u16 {
        self.0.push(Arc::new(Source {
            name: name.to_owned(),
            path: path.map(Path::to_owned),
            sanitized: sanitize(&text),
            text,
        }));
        u16::try_from(self.0.len() - 1).expect("at most MAX_FILES are included")
    }

    /// Reads a file. Returns `None` and reports an error if it cannot be read as text.
    pub(crate) fn read(
        &mut self,
        name: &str,
        path: &Path,
        diagnostics: &mut Diagnostics,
    ) -> Option<u16> {
        let mut bytes = Vec::new();
        // The first file may be a pipe. Among others, one that nobody writes to would block for ever.
        let is_included = !self.0.is_empty();
        let checked = match is_included && is_pipe_or_device(path) {
            true => Err(io::Error::other("it is not a file")),
            false => Ok(()),
        };
        let read = checked.and_then(|()| File::open(path)).and_then(|file| {
            let max = MAX_FILE_BYTES as u64 + 1;
            file.take(max).read_to_end(&mut bytes)
        });
        match read {
            Ok(_) => self.add_bytes(name, Some(path), bytes, diagnostics),
            Err(error) => {
                let file = self.add(name, Some(path), String::new());
                // Without " (os error 2)".
                let error = error.to_string();
                let reason = error.split(" (os error").next().unwrap_or_default();
                let message = format!("cannot read {name}: {}", reason.to_lowercase());
                diagnostics.error(code::UNREADABLE, Span::start_of(file), message);
                None
            }
        }
    }

    pub(crate) fn add_bytes(
        &mut self,
        name: &str,
        path: Option<&Path>,
        bytes: Vec<u8>,
        diagnostics: &mut Diagnostics,
    ) -> Option<u16> {
        if bytes.len() > MAX_FILE_BYTES {
            let span = Span::start_of(self.add(name, path, String::new()));
            let message = format!("the file is larger than {MAX_FILE_BYTES} bytes");
            diagnostics
                .error(code::TOO_LARGE, span, message)
                .help("split it into several files and list them under `include`");
            return None;
        }
        match String::from_utf8(bytes) {
            Ok(text) => Some(self.add(name, path, text)),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let bytes = error.into_bytes();
                let text = bytes.utf8_chunks().fold(String::new(), |text, chunk| {
                    text + chunk.valid() + &"?".repeat(chunk.invalid().len())
                });
                let span = Span::new(self.add(name, path, text), at..at + 1);
                let message = format!("invalid UTF-8: byte 0x{:02x}", bytes[at]);
                diagnostics
                    .error(code::NOT_TEXT, span, message)
                    .help("save the file as UTF-8");
                None
            }
        }
    }

    pub(crate) fn get(&self, file: u16) -> &Arc<Source> {
        &self.0[usize::from(file)]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.0.iter()
    }

    pub(crate) fn slice(&self, span: Span) -> &str {
        let text = &self.get(span.file).text;
        text.get(span.range()).unwrap_or_default()
    }

    pub(crate) fn redact(&mut self, file: u16, spans: &[Span]) {
        let ranges = spans.iter().map(|span| span.range());
        let source = Arc::make_mut(&mut self.0[usize::from(file)]);
        mask(&mut source.sanitized, ranges);
    }

    /// Line and column of a span, both from 1. Columns count characters.
    pub(crate) fn line_and_column(&self, span: Span) -> (usize, usize) {
        let text = &self.get(span.file).text;
        let before = text.get(..span.start as usize).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
    }

    /// `file:line:column`.
    pub(crate) fn location(&self, span: Span) -> String {
        let (line, column) = self.line_and_column(span);
        format!("{}:{line}:{column}", self.get(span.file).name)
    }
}

/// The last character boundary at or before an index (`str::floor_char_boundary` needs Rust 1.91).
pub(super) fn floor_char_boundary(text: &str, index: usize) -> usize {
    let mut indices = (0..=index.min(text.len())).rev();
    indices.find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

pub(super) fn ceil_char_boundary(text: &str, index: usize) -> usize {
    let mut indices = index..=text.len();
    let found = indices.find(|&index| text.is_char_boundary(index));
    found.unwrap_or(text.len())
}

/// Replaces control characters, bidirectional overrides and passwords of URLs. The result has the
/// same length in bytes, so that spans stay valid.
fn sanitize(text: &str) -> String {
    let mut sanitized = String::with_capacity(text.len());
    for c in text.chars() {
        let invisible = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' | '\u{feff}');
        sanitized.push(match c {
            '\n' | '\t' => c,
            '\r' => ' ',
            _ if invisible => '\u{fffd}',
            c if c.is_control() && c.len_utf8() == 1 => '?',
            c if c.is_control() => '\u{bf}',
            c => c,
        });
    }
    debug_assert_eq!(sanitized.len(), text.len());
    mask_passwords(&mut sanitized);
    sanitized
}

/// Masks the userinfo of everything that resembles a URL.
fn mask_passwords(text: &mut String) {
    let mut ranges = Vec::new();
    for (at, separator) in text.match_indices("://") {
        let start = at + separator.len();
        let rest = &text[start..];
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '/');
        let authority = &rest[..rest.find(ends).unwrap_or(rest.len())];
        // The last `@`: a password may contain one that should have been encoded.
        if let Some(end) = authority.rfind('@') {
            ranges.push(start..start + end);
        }
    }
    mask(text, ranges.into_iter());
}

/// Replaces ranges by asterisks, except those with a `${VARIABLE}`, whose name is not secret.
fn mask(text: &mut String, ranges: impl Iterator<Item = Range<usize>>) {
    let is_literal = |range: &Range<usize>| {
        let text = text.get(range.clone());
        text.is_some_and(|text| !text.contains("${"))
    };
    let ranges: Vec<Range<usize>> = ranges.filter(is_literal).collect();
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
    fn sanitized_text_keeps_its_length_and_hides_passwords() {
        let text = "a\u{1b}[31m\r\n\u{85}\u{202e}é store: rediss://ann:p@ss@host:1/0 x";
        let sanitized = sanitize(text);
        assert_eq!(sanitized.len(), text.len());
        assert!(!sanitized.contains(['\u{1b}', '\u{202e}', '\u{85}', '\r']));
        assert!(!sanitized.contains("ann") && !sanitized.contains("p@ss"));
        assert!(sanitized.contains("@host:1/0 x"));
    }

    #[test]
    fn locations_count_lines_and_characters() {
        let mut sources = Sources::default();
        let file = sources.add("f", None, "é: 1\nü: 22\n".into());
        let span = Span::new(file, 10..12);
        assert_eq!(sources.slice(span), "22");
        assert_eq!(sources.location(span), "f:2:4");
    }
}
