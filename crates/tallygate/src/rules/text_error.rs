//! What is wrong with a text of a rule. Knows nothing of where it was written.

use std::fmt;

/// The most characters of a text that an error repeats.
const SHOWN: usize = 60;

/// A text that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    text: String,
    why: &'static str,
    example: &'static str,
}

impl TextError {
    pub(super) fn new(text: &str, why: &'static str, example: &'static str) -> Self {
        TextError {
            text: text.chars().take(SHOWN).collect(),
            why,
            example,
        }
    }

    /// What is wrong, as it goes after the text: `has no name`.
    pub fn why(&self) -> &'static str {
        self.why
    }

    /// A text that is right.
    pub fn example(&self) -> &'static str {
        self.example
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TextError { text, why, example } = self;
        write!(f, "{text:?} {why}; write it like {example}")
    }
}

impl std::error::Error for TextError {}
