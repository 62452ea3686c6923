//! The deadline of a decision.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use super::{StoreError, StoreErrorKind};

/// Fails with a timeout if a future takes longer. Polls once before it creates a timer: a store in
/// this process needs neither timer nor runtime.
pub(crate) async fn enforce<T>(
    future: impl Future<Output = Result<T, StoreError>>,
    deadline: Duration,
) -> Result<T, StoreError> {
    let mut future = pin!(future);
    let first = poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        })
    });
    if let Some(result) = first.await {
        return result;
    }
    let result = timeout(deadline, future).await;
    result.unwrap_or_else(|_| Err(missed(deadline)))
}

/// The error of a missed deadline.
pub(crate) fn missed(deadline: Duration) -> StoreError {
    let text = format!("no answer within {deadline:?}");
    StoreError::with_kind(StoreErrorKind::Timeout, text)
}
