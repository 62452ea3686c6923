//! The error of a text that does not parse.

const MAX_SHOWN_CHARS: usize = 60;

/// A text that does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {reason}; write it like {example}")]
pub struct TextError {
    text: String,
    reason: &'static str,
    example: &'static str,
}

impl TextError {
    pub(crate) fn new(text: &str, reason: &'static str, example: &'static str) -> Self {
        TextError {
            text: text.chars().take(MAX_SHOWN_CHARS).collect(),
            reason,
            example,
        }
    }

    /// What is wrong, to be appended to the text: `names no host`.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// A text that parses.
    pub fn example(&self) -> &'static str {
        self.example
    }
}
