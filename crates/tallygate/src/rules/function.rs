//! Functions in rules that are written in Rust.

use std::fmt;
use std::sync::Arc;

use ::http::{HeaderMap, StatusCode};

use crate::http::Head;

/// A function. Two are equal if they are clones of one another.
pub struct Function<F: ?Sized>(Arc<F>);

/// A function of a request's head.
pub type RequestFn<T> = Function<dyn Fn(&Head<'_>) -> T + Send + Sync>;

/// A function of a response's status and headers.
pub type ResponseFn = Function<dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync>;

impl<T> RequestFn<T> {
    /// Wraps a function.
    pub fn new(function: impl Fn(&Head<'_>) -> T + Send + Sync + 'static) -> Self {
        Function(Arc::new(function))
    }

    /// Calls the function.
    pub fn call(&self, head: &Head<'_>) -> T {
        (self.0)(head)
    }
}

impl ResponseFn {
    /// Wraps a function.
    pub fn new(function: impl Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static) -> Self {
        Function(Arc::new(function))
    }

    /// Calls the function.
    pub fn call(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        (self.0)(status, headers)
    }
}

impl<F: ?Sized> Clone for Function<F> {
    fn clone(&self) -> Self {
        Function(Arc::clone(&self.0))
    }
}

impl<F: ?Sized> PartialEq for Function<F> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<F: ?Sized> Eq for Function<F> {}

impl<F: ?Sized> fmt::Debug for Function<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function(..)")
    }
}
