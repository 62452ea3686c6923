//! The errors of commands and their exit codes, and the causes of errors.

use std::error::Error;
use std::io;
use std::iter::successors;
use std::process::ExitCode;

use tallygate::{RedisError, StoreError};
use tallygate_core::QuotaError;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The input is invalid: exit 2.
    Input(String),
    /// Something else failed, such as a disk or a store: exit 1.
    Outside(String),
    /// The check failed, and standard output has the result: exit 1.
    CheckFailed,
    /// The input is invalid, and standard output has the report: exit 2.
    InputReported,
    /// The reader of the output closed the pipe: exit 0.
    BrokenPipe,
}

impl Failure {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Failure::Input(text) | Failure::Outside(text) => Some(text),
            Failure::CheckFailed | Failure::InputReported | Failure::BrokenPipe => None,
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Failure::Input(_) | Failure::InputReported => ExitCode::from(2),
            Failure::Outside(_) | Failure::CheckFailed => ExitCode::from(1),
            Failure::BrokenPipe => ExitCode::SUCCESS,
        }
    }
}

impl From<io::Error> for Failure {
    /// For errors of the output. Errors of an input name it.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::Outside(format!("cannot write the output: {error}")),
        }
    }
}

/// The last error of the chain. It names what to fix: a port, a name, a certificate.
pub(crate) fn root_cause<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    let causes = successors(Some(error), |&error| error.source());
    causes.last().unwrap_or(error)
}

impl From<RedisError> for Failure {
    /// The error names a remedy and holds no secret.
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
    /// Underlines the offending part.
    fn from(error: QuotaError) -> Self {
        let advice = error.advice();
        let problem = error.problem();
        Failure::Input(match error.picture() {
            Some(picture) => {
                let indented = picture.replace('\n', "\n    ");
                format!("bad quota: {problem}\n\n    {indented}\n\n{advice}")
            }
            None => format!("bad quota: {problem}\n{advice}"),
        })
    }
}
