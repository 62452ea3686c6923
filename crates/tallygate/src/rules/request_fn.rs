//! Functions of a request, for rules that are written in Rust.

use std::fmt;
use std::sync::Arc;

use crate::http::Head;

/// A function of a request's head. Two are equal if they are clones of one another.
pub struct RequestFn<T>(Arc<dyn Fn(&Head<'_>) -> T + Send + Sync>);

impl<T> RequestFn<T> {
    /// Wraps a function.
    pub fn new(function: impl Fn(&Head<'_>) -> T + Send + Sync + 'static) -> Self {
        RequestFn(Arc::new(function))
    }

    /// Calls the function.
    pub fn call(&self, head: &Head<'_>) -> T {
        (self.0)(head)
    }
}

impl<T> Clone for RequestFn<T> {
    fn clone(&self) -> Self {
        RequestFn(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for RequestFn<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Eq for RequestFn<T> {}

impl<T> fmt::Debug for RequestFn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestFn(..)")
    }
}
