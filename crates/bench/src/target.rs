//! What a bench sets out for and whether a table reaches it. It tells, it does not assert.

use std::fmt;

/// One target held against a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// What is held against it.
    pub what: String,
    /// What was measured, as text, and whether that is enough; `None` when it was not measured.
    pub measured: Option<(String, bool)>,
    /// What it is to be.
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
