//! The targets of a bench, reported and not asserted.

use std::fmt;

/// A target and the measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The measured quantity.
    pub what: String,
    /// The measured value as text, and whether it meets the target; `None` if not measured.
    pub measured: Option<(String, bool)>,
    /// The target as text.
    pub wanted: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target {
            what,
            measured,
            wanted,
        } = self;
        match measured {
            Some((text, true)) => write!(f, "- reached: {what}: {text} (target {wanted})"),
            Some((text, false)) => write!(f, "- MISSED: {what}: {text} (target {wanted})"),
            None => write!(f, "- not measured: {what} (target {wanted})"),
        }
    }
}
