//! Why a quota is refused, and where. Carries a short copy of the offending part only.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::ops::Range;

/// The longest piece of the caller's text that an error repeats.
const LONGEST_QUOTE: usize = 40;

/// A quota that cannot be: says what is wrong, names the value and its bound, and points at the
/// place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaError {
    problem: String,
    example: &'static str,
    place: Option<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// The text around the place, cut short and made printable.
    shown: String,
    /// The span within the caller's text, in bytes.
    span: Range<usize>,
    /// Where the marks go below `shown`, in characters.
    marks: Range<usize>,
}

impl QuotaError {
    pub(super) fn new(problem: String) -> Self {
        QuotaError {
            problem,
            example: "100/min",
            place: None,
        }
    }

    pub(super) fn below(what: &str) -> Self {
        Self::new(format!("{what} 0 is below 1"))
    }

    pub(super) fn above(what: &str, value: u64, max: u32) -> Self {
        match value {
            u64::MAX => Self::new(format!("{what} 2^64 or more is above {max}")),
            value => Self::new(format!("{what} {value} is above {max}")),
        }
    }

    /// Shows another correct example than `100/min`.
    pub(super) fn example(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    /// Points at a span of the text.
    pub(super) fn at(mut self, text: &str, span: Range<usize>) -> Self {
        let before: String = printable(&text[..span.start]);
        let offending = printable(&text[span.clone()]);
        let offending = quote(&offending);
        let skipped = before.chars().count().saturating_sub(LONGEST_QUOTE);
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

    /// What is wrong, without the place.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// A quota of the kind that was probably meant.
    pub fn example_text(&self) -> &'static str {
        self.example
    }

    /// The offending part, as bytes of the text that was read.
    pub fn span(&self) -> Option<Range<usize>> {
        self.place.as_ref().map(|place| place.span.clone())
    }

    /// Two lines for a terminal: the text, and marks below the offending part.
    pub fn picture(&self) -> Option<String> {
        let place = self.place.as_ref()?;
        let mut picture = place.shown.clone();
        picture.push('\n');
        picture.extend(core::iter::repeat_n(' ', place.marks.start));
        picture.extend(core::iter::repeat_n('^', place.marks.len()));
        Some(picture)
    }
}

/// A copy for people: what would move the cursor or turn the text around is replaced.
fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// The beginning of a text, with a sign that it was cut.
pub(super) fn quote(text: &str) -> String {
    match text.char_indices().nth(LONGEST_QUOTE) {
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
        write!(f, "; a correct quota is `{}`", self.example)
    }
}

impl core::error::Error for QuotaError {}
