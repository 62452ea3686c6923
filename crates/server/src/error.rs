//! Why a command stops early and with which exit code. Knows nothing of the commands.

use std::io;
use std::process::ExitCode;

use tallygate::{RedisError, StoreError};
use tallygate_core::QuotaError;

/// A command that stopped early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What the caller gave is wrong: exit 2.
    Input(String),
    /// Something outside failed, such as a full disk or a store: exit 1.
    Outside(String),
    /// The answer is no, and it is on standard output already: exit 1.
    No,
    /// What the caller gave is wrong, and standard output says how already: exit 2.
    Wrong,
    /// Whoever read the answers has gone; they have what they wanted: exit 0.
    ReaderGone,
}

impl Failure {
    /// What to say on standard error; nothing when nobody is at fault.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Failure::Input(text) | Failure::Outside(text) => Some(text),
            Failure::No | Failure::Wrong | Failure::ReaderGone => None,
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Failure::Input(_) | Failure::Wrong => ExitCode::from(2),
            Failure::Outside(_) | Failure::No => ExitCode::from(1),
            Failure::ReaderGone => ExitCode::SUCCESS,
        }
    }

    /// A failure to write the answers.
    pub(crate) fn writing(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::ReaderGone
        } else {
            Failure::Outside(format!("cannot write the output: {error}"))
        }
    }
}

impl From<RedisError> for Failure {
    /// A store that cannot be used; the error says what to do and holds no secret.
    fn from(error: RedisError) -> Self {
        Failure::Outside(format!("cannot use the store: {error}"))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Outside(error.to_string())
    }
}

impl From<QuotaError> for Failure {
    /// Points at the offending part, as a terminal can.
    fn from(error: QuotaError) -> Self {
        let example = format!("a correct quota: {}", error.example_text());
        let problem = error.problem();
        Failure::Input(match error.picture() {
            Some(picture) => {
                let indented = picture.replace('\n', "\n    ");
                format!("bad quota: {problem}\n\n    {indented}\n\n{example}")
            }
            None => format!("bad quota: {problem}\n{example}"),
        })
    }
}
