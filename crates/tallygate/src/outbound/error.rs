//! Why a call out has no response. Knows the limiter's errors; leaves the client's as they are.

use std::error::Error;
use std::fmt;

use crate::limiter::AcquireError;

/// Why a call has no response.
///
/// An inbound layer can always answer with a response of its own, and leaves the error type of what
/// it wraps alone. Here there is nobody who could have written a response: a call that may not go
/// out has to be an error, and must not look like one of the client's.
#[derive(Debug)]
pub enum OutboundError<E> {
    /// It did not go out: it would have to wait too long, never fits, too many wait already, or
    /// the limiter's store cannot be reached.
    Limit(AcquireError),
    /// It went out, or could not, and this is the client's own error.
    Inner(E),
}

impl<E> OutboundError<E> {
    /// The client's own error, if it is one.
    pub fn into_inner(self) -> Option<E> {
        match self {
            OutboundError::Limit(_) => None,
            OutboundError::Inner(error) => Some(error),
        }
    }

    /// Either error in a box: for clients whose own error is one already, which is no
    /// [`Error`] itself.
    pub fn into_boxed(self) -> Box<dyn Error + Send + Sync>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        match self {
            OutboundError::Limit(error) => Box::new(error),
            OutboundError::Inner(error) => error.into(),
        }
    }
}

impl<E: fmt::Display> fmt::Display for OutboundError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutboundError::Limit(error) => write!(f, "the call was held back: {error}"),
            OutboundError::Inner(error) => write!(f, "the call failed: {error}"),
        }
    }
}

impl<E: Error + 'static> Error for OutboundError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OutboundError::Limit(error) => Some(error),
            OutboundError::Inner(error) => Some(error),
        }
    }
}
