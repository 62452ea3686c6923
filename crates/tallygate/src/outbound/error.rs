//! The error of an outbound call.

use std::error::Error;
use std::fmt;

use crate::engine::AcquireError;

/// Why an outbound call has no response.
///
/// An inbound layer can answer with a response of its own. An outbound layer cannot: a call that is
/// not sent must be an error, distinct from the client's.
#[derive(Debug)]
pub enum OutboundError<E> {
    /// Not sent: the wait is too long, the cost never fits, the queue is full, or the limiter's
    /// store cannot be reached.
    Limit(AcquireError),
    /// The client's error.
    Inner(E),
}

impl<E> OutboundError<E> {
    /// The client's error, if it is one.
    pub fn into_inner(self) -> Option<E> {
        match self {
            OutboundError::Limit(_) => None,
            OutboundError::Inner(error) => Some(error),
        }
    }

    /// Boxes either error, for clients whose error is a box, which does not implement [`Error`].
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
            OutboundError::Limit(error) => write!(f, "the call was not sent: {error}"),
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
