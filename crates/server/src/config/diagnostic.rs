//! What is wrong with a rules file, or questionable: a stable code, a place, a hint. Knows no way
//! of showing it.

use super::source::Span;

/// Stable names of what can be wrong. Documented in docs/rules.md.
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
    pub(crate) const INCLUDE: &str = "rules::include";
    pub(crate) const OVERRIDE: &str = "rules::override";
    pub(crate) const TOO_MANY: &str = "rules::too-many";
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// The rules cannot be used.
    Error,
    /// They can, and probably do something else than was meant.
    Warning,
}

impl Severity {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// One thing that is wrong or questionable.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) code: &'static str,
    pub(crate) severity: Severity,
    pub(crate) message: String,
    pub(crate) span: Span,
    /// What stands below the marks.
    pub(crate) label: Option<String>,
    pub(crate) help: Option<String>,
    /// Another place that has to do with it.
    pub(crate) other: Option<Box<(Span, String)>>,
}

impl Problem {
    pub(crate) fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Problem {
            code,
            severity: Severity::Error,
            message: message.into(),
            span,
            label: None,
            help: None,
            other: None,
        }
    }

    pub(crate) fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Problem {
            severity: Severity::Warning,
            ..Self::error(code, span, message)
        }
    }

    #[must_use]
    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds a hint, if there is one.
    #[must_use]
    pub(crate) fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }

    #[must_use]
    pub(crate) fn other(mut self, span: Span, what: impl Into<String>) -> Self {
        self.other = Some(Box::new((span, what.into())));
        self
    }
}

/// The most problems that are noted; who has more will come back anyway.
const MOST: usize = 1_000;

/// Notes a problem, unless there are too many. Never the first error: a file with one must not
/// pass for good.
pub(crate) fn note(problems: &mut Vec<Problem>, problem: Problem) {
    let last = problems.last().map(|last| last.severity);
    let full = problems.len() >= MOST;
    match (full, problem.severity, last) {
        (false, _, _) | (true, Severity::Error, Some(Severity::Warning) | None) => {
            problems.push(problem);
        }
        (true, Severity::Warning, _) | (true, Severity::Error, Some(Severity::Error)) => {}
    }
}

/// How far a word may be from what was meant, for a suggestion to help.
const NEAR: f64 = 0.75;

/// The known word that was probably meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A megabyte of text is near to nothing.
    let word: String = word.chars().take(64).collect::<String>().to_lowercase();
    let as_known = word.replace(['-', ' '], "_");
    let score = |known: &'a str| {
        let plural = known.trim_end_matches('s') == as_known.trim_end_matches('s');
        let distance = strsim::osa_distance(&as_known, &known.replace('-', "_"));
        let near = strsim::jaro_winkler(&as_known, &known.replace('-', "_"));
        let close = plural || distance <= 1 || near >= NEAR && distance <= known.len().div_ceil(3);
        close.then_some((distance, known))
    };
    known.into_iter().filter_map(score).min().map(|best| best.1)
}

/// "did you mean", if there is something near.
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

/// A piece of what somebody wrote, short and printable.
pub(crate) fn quoted(text: &str) -> String {
    let harmless = |c: char| match c {
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    let cut = if text.chars().nth(60).is_some() {
        "…"
    } else {
        ""
    };
    let shown: String = text.chars().take(60).map(harmless).collect();
    format!("`{shown}{cut}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_suggested_and_a_far_one_is_not() {
        let known = ["limits", "match", "name", "on_failure", "shadow"];
        for (word, meant) in [
            ("limts", Some("limits")),
            ("limit", Some("limits")),
            ("on-failure", Some("on_failure")),
            ("onfailure", Some("on_failure")),
            ("Name", Some("name")),
            ("banana", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }

    #[test]
    fn too_many_problems_are_not_noted_but_an_error_always_is() {
        let span = Span::start_of(0);
        let mut problems = Vec::new();
        for _ in 0..2 * MOST {
            note(&mut problems, Problem::warning("w", span, ""));
        }
        assert_eq!(problems.len(), MOST);
        for _ in 0..5 {
            note(&mut problems, Problem::error("e", span, ""));
        }
        assert_eq!(problems.len(), MOST + 1);
        assert_eq!(problems[MOST].severity, Severity::Error);
    }

    #[test]
    fn a_quoted_piece_is_short_and_harmless() {
        let shown = quoted(&format!("\u{1b}{}", "x".repeat(1000)));
        assert!(shown.chars().count() <= 63 && !shown.contains('\u{1b}'));
    }
}
