//! Errors and warnings about a rules file: a stable code, a span, a message and a hint.

use serde::Serialize;

use super::source::Span;

/// Stable error codes, documented in docs/rules.md.
pub(crate) mod code {
    pub(crate) const UNREADABLE: &str = "rules::unreadable";
    pub(crate) const TOO_LARGE: &str = "rules::too-large";
    pub(crate) const NOT_TEXT: &str = "rules::not-text";
    pub(crate) const EMPTY: &str = "rules::empty-file";
    pub(crate) const YAML: &str = "rules::yaml";
    pub(crate) const SEVERAL_DOCUMENTS: &str = "rules::several-documents";
    pub(crate) const TOO_DEEP: &str = "rules::too-deep";
    pub(crate) const TOO_MANY_ALIASES: &str = "rules::too-many-aliases";
    pub(crate) const DUPLICATE_FIELD: &str = "rules::duplicate-field";
    pub(crate) const UNKNOWN_FIELD: &str = "rules::unknown-field";
    pub(crate) const MISSING_FIELD: &str = "rules::missing-field";
    pub(crate) const NO_VALUE: &str = "rules::no-value";
    pub(crate) const WRONG_TYPE: &str = "rules::wrong-type";
    pub(crate) const UNKNOWN_WORD: &str = "rules::unknown-word";
    pub(crate) const OUT_OF_RANGE: &str = "rules::out-of-range";
    pub(crate) const CONTRADICTION: &str = "rules::contradiction";
    pub(crate) const VERSION: &str = "rules::version";
    pub(crate) const VARIABLE: &str = "rules::variable";
    pub(crate) const STORE: &str = "rules::store";
    pub(crate) const GATEWAY: &str = "rules::gateway";
    pub(crate) const NETWORK: &str = "rules::network";
    pub(crate) const QUOTA: &str = "rules::quota";
    pub(crate) const DURATION: &str = "rules::duration";
    pub(crate) const NAME: &str = "rules::name";
    pub(crate) const DUPLICATE_NAME: &str = "rules::duplicate-name";
    pub(crate) const DUPLICATE_LIMIT: &str = "rules::duplicate-limit";
    pub(crate) const PATH: &str = "rules::path";
    pub(crate) const METHOD: &str = "rules::method";
    pub(crate) const HOST: &str = "rules::host";
    pub(crate) const HEADER: &str = "rules::header";
    pub(crate) const STATUS: &str = "rules::status";
    pub(crate) const KEY: &str = "rules::key";
    pub(crate) const TIER: &str = "rules::tier";
    pub(crate) const BUDGET: &str = "rules::budget";
    pub(crate) const COST: &str = "rules::cost";
    pub(crate) const INCLUDE: &str = "rules::include";
    pub(crate) const OVERRIDE: &str = "rules::override";
    pub(crate) const TOO_MANY: &str = "rules::too-many";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// The file is rejected.
    Error,
    /// The file loads, but probably does not do what was intended.
    Warning,
}

#[derive(Clone, Debug)]
pub(crate) struct Diagnostic {
    pub(crate) code: &'static str,
    pub(crate) severity: Severity,
    pub(crate) message: String,
    pub(crate) span: Span,
    /// Text below the underlined span.
    pub(crate) label: Option<&'static str>,
    pub(crate) help: Option<String>,
    pub(crate) related: Option<Box<(Span, String)>>,
}

impl Diagnostic {
    pub(crate) fn label(&mut self, label: &'static str) -> &mut Self {
        self.label = Some(label);
        self
    }

    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn maybe_help(&mut self, help: Option<String>) -> &mut Self {
        self.help = help;
        self
    }

    pub(crate) fn related(&mut self, span: Span, label: impl Into<String>) -> &mut Self {
        self.related = Some(Box::new((span, label.into())));
        self
    }
}

const MAX_DIAGNOSTICS: usize = 1_000;

/// The diagnostics of one load, up to `MAX_DIAGNOSTICS`. The first error is always kept, so that a
/// file with errors cannot be accepted.
#[derive(Debug)]
pub(crate) struct Diagnostics {
    list: Vec<Diagnostic>,
    /// Absorbs the latest diagnostic beyond the maximum.
    discarded: Option<Diagnostic>,
    /// What a file of this kind starts with, for hints.
    pub(crate) first_line: &'static str,
}

impl Default for Diagnostics {
    fn default() -> Self {
        Diagnostics {
            list: Vec::new(),
            discarded: None,
            first_line: "a rules file starts with `version: 1`",
        }
    }
}

impl Diagnostics {
    pub(crate) fn error(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.add(Severity::Error, code, span, message.into())
    }

    pub(crate) fn warning(
        &mut self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        let message = message.into();
        let repeated = |other: &Diagnostic| {
            (other.code, other.span) == (code, span) && other.message == message
        };
        // The rules of a budget have its spans.
        if let Some(at) = self.list.iter().position(repeated) {
            return &mut self.list[at];
        }
        self.add(Severity::Warning, code, span, message)
    }

    fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        span: Span,
        message: String,
    ) -> &mut Diagnostic {
        let diagnostic = Diagnostic {
            code,
            severity,
            message,
            span,
            label: None,
            help: None,
            related: None,
        };
        let full = self.list.len() >= MAX_DIAGNOSTICS;
        match full && (severity == Severity::Warning || self.has_errors()) {
            true => self.discarded.insert(diagnostic),
            false => {
                self.list.push(diagnostic);
                self.list.last_mut().expect("one was pushed")
            }
        }
    }

    pub(crate) fn has_errors(&self) -> bool {
        let mut list = self.list.iter();
        list.any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    pub(crate) fn into_vec(self) -> Vec<Diagnostic> {
        self.list
    }
}

/// The minimum Jaro-Winkler similarity of a suggestion.
const MIN_SIMILARITY: f64 = 0.75;

pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Bounded: the distance takes quadratic time.
    let word: String = word.chars().take(64).collect::<String>().to_lowercase();
    let normalized = word.replace(['-', ' '], "_");
    let score = |known: &'a str| {
        let plural = known.trim_end_matches('s') == normalized.trim_end_matches('s');
        let distance = strsim::osa_distance(&normalized, &known.replace('-', "_"));
        let similarity = strsim::jaro_winkler(&normalized, &known.replace('-', "_"));
        let similar = similarity >= MIN_SIMILARITY && distance <= known.len().div_ceil(3);
        (plural || distance <= 1 || similar).then_some((distance, known))
    };
    known.into_iter().filter_map(score).min().map(|best| best.1)
}

pub(crate) fn did_you_mean<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    nearest(word, known).map(|known| format!("did you mean `{known}`?"))
}

/// `a, b or c`.
pub(crate) fn either<S: AsRef<str>>(words: &[S]) -> String {
    let quoted: Vec<String> = words.iter().map(|w| format!("`{}`", w.as_ref())).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Text of the file in backquotes, truncated and without control characters.
pub(crate) fn quoted(text: &str) -> String {
    let printable = |c: char| match c {
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    let is_long = text.chars().nth(60).is_some();
    let cut = if is_long { "…" } else { "" };
    let shown: String = text.chars().take(60).map(printable).collect();
    format!("`{shown}{cut}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_similar_word_is_suggested() {
        let known = ["limits", "match", "name", "on_failure", "shadow"];
        for (word, expected) in [
            ("limts", Some("limits")),
            ("limit", Some("limits")),
            ("on-failure", Some("on_failure")),
            ("onfailure", Some("on_failure")),
            ("Name", Some("name")),
            ("banana", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }

    #[test]
    fn diagnostics_are_bounded_but_the_first_error_is_kept() {
        let span = Span::start_of(0);
        let mut diagnostics = Diagnostics::default();
        for number in 0..2 * MAX_DIAGNOSTICS {
            diagnostics.warning("w", span, number.to_string());
            diagnostics.warning("w", span, "0");
        }
        for _ in 0..5 {
            diagnostics.error("e", span, "");
        }
        let list = diagnostics.into_vec();
        assert_eq!(list.len(), MAX_DIAGNOSTICS + 1);
        assert_eq!(list[MAX_DIAGNOSTICS].severity, Severity::Error);
    }
}
