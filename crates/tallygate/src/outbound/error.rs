//! The error of an outbound call.

use std::error::Error;

use crate::engine::AcquireError;

/// Why an outbound call has no response.
///
/// An inbound layer can answer with a response of its own. An outbound layer cannot: a call that is
/// not sent must be an error, distinct from the client's.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError<E> {
    /// Not sent: the wait is too long, the cost never fits, the queue is full, or the limiter's
    /// store cannot be reached.
    #[error("the call was not sent: {0}")]
    Limit(#[source] AcquireError),
    /// The client's error.
    #[error("the call failed: {0}")]
    Inner(#[source] E),
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
