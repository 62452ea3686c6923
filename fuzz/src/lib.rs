//! What the fuzz targets share: a counter that checks every answer, steps out of bytes, and a
//! reader of replay lines of another make.
//!
//! A target is a file in `src/bin`: it turns any bytes into calls and panics where a promise is
//! broken. `fuzz/run` builds and runs them all.

pub mod counter;
pub mod replay_reference;
pub mod script;
