//! The error of a text that does not parse.

use crate::error::debug_is_display;

const MAX_SHOWN_CHARS: usize = 60;

/// A text that does not parse.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {reason}; write it like {example}")]
pub struct TextError {
    text: String,
    reason: &'static str,
    example: &'static str,
}

debug_is_display!(TextError);

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
