//! Where counters are kept. Knows keys, limits and decisions; knows nothing of HTTP.

mod memory;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

pub use memory::{MemoryStore, MemoryStoreBuilder};

use crate::decision::Decision;
use crate::limit::Limit;
use crate::request::Request;

/// Keeps counters and decides each request in one atomic step, on its own clock.
pub trait Store: Send + Sync + 'static {
    /// Decides one request.
    ///
    /// # Errors
    /// When the counters cannot be reached; nothing is known about the request then.
    fn decide(
        &self,
        request: &Request<'_>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send;

    /// Hears of a limit to come, before the first request does. Nothing need be done.
    fn prepare(&self, limit: &Limit) {
        let _ = limit;
    }

    /// Carries a request out without anybody waiting for the answer: what a waiter that was
    /// dropped can still do. A store that fails forgets it.
    fn carry_out(self: &Arc<Self>, request: &Request<'_>);
}

/// Counters that could not be reached.
#[derive(Debug)]
pub struct StoreError {
    source: Box<dyn Error + Send + Sync>,
}

impl StoreError {
    /// Wraps what went wrong; its text must carry no key.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        StoreError {
            source: source.into(),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store did not answer: {}", self.source)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
