//! The error of an invalid quota, with a short excerpt of the text.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::ops::Range;

/// The maximum length of the excerpt.
const MAX_EXCERPT_CHARS: usize = 40;

/// The error of an invalid quota: names the value and its bound, and points at its position in the
/// text. `Debug` prints the same text, for programs that return it from `main`.
#[derive(Clone, PartialEq, Eq)]
pub struct QuotaError {
    problem: String,
    example: &'static str,
    suggestion: Option<String>,
    place: Option<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The text around the position, truncated and printable.
    shown: String,
    /// The span within the caller's text, in bytes.
    span: Range<usize>,
    /// The position of the marks below `shown`, in characters.
    marks: Range<usize>,
}

impl QuotaError {
    pub(super) fn new(problem: String, example: &'static str) -> Self {
        QuotaError {
            problem,
            example,
            suggestion: None,
            place: None,
        }
    }

    /// Sets what the text probably means.
    pub(super) fn suggest(mut self, suggestion: Option<String>) -> Self {
        self.suggestion = suggestion;
        self
    }

    /// Points at a span of the text.
    pub(super) fn at(mut self, text: &str, span: Range<usize>) -> Self {
        let before: String = printable(&text[..span.start]);
        let offending = printable(&text[span.clone()]);
        let offending = quote(&offending);
        let skipped = before.chars().count().saturating_sub(MAX_EXCERPT_CHARS);
        let mut shown: String = before.chars().skip(skipped).collect();
        if skipped > 0 {
            shown.insert(0, '…');
        }
        let start = shown.chars().count();
        let marks = start..start + offending.chars().count().max(1);
        shown.push_str(&offending);
        shown.push_str(&quote(&printable(&text[span.end..])));
        self.place = Some(Place { shown, span, marks });
        self
    }

    /// The problem, without the position.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// A valid quota of the kind that was probably meant, with none of the text's numbers.
    pub fn example_text(&self) -> &'static str {
        self.example
    }

    /// What the text probably means, with its own numbers.
    pub fn suggestion(&self) -> Option<&str> {
        self.suggestion.as_deref()
    }

    /// What to write instead: "did you mean `token-bucket 10/s`?", or the example.
    pub fn advice(&self) -> String {
        match &self.suggestion {
            Some(suggestion) => format!("did you mean `{suggestion}`?"),
            None => format!("a correct quota is `{}`", self.example),
        }
    }

    /// The byte range of the invalid part.
    pub fn span(&self) -> Option<Range<usize>> {
        self.place.as_ref().map(|place| place.span.clone())
    }

    /// Two lines for a terminal: the text, and marks below the invalid part.
    pub fn picture(&self) -> Option<String> {
        let place = self.place.as_ref()?;
        let mut picture = place.shown.clone();
        picture.push('\n');
        picture.extend(core::iter::repeat_n(' ', place.marks.start));
        picture.extend(core::iter::repeat_n('^', place.marks.len()));
        Some(picture)
    }
}

/// A printable copy: replaces control characters and those that change the text direction.
fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// The start of a text, with an ellipsis if truncated.
pub(super) fn quote(text: &str) -> String {
    match text.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        if let Some(place) = &self.place {
            write!(f, " (column {} of `{}`)", place.span.start + 1, place.shown)?;
        }
        write!(f, "; {}", self.advice())
    }
}

impl fmt::Debug for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for QuotaError {}
