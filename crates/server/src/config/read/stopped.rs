//! Why reading stopped. What has been noted needs no more words.

use std::fmt;

use serde::de;

/// Why reading stopped.
#[derive(Debug)]
pub(in crate::config) enum Stopped {
    /// It has been noted.
    Noted,
    /// A field is missing; whoever knows of what notes it.
    Missing(&'static str),
    /// Something else; whoever knows where notes it.
    Other(String),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::Noted => f.write_str("noted"),
            Stopped::Missing(field) => write!(f, "`{field}` is missing"),
            Stopped::Other(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Stopped {}

impl de::Error for Stopped {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Stopped::Other(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Stopped::Missing(field)
    }
}
