//! Rules files as people write them, right and wrong.

// A test that cannot go on may say so by panicking, helpers included.
#![allow(clippy::unwrap_used)]

mod malformed;
