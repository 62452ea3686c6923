//! Shared by the fuzz targets: a counter that checks every decision, a decoder of steps, and a
//! second parser of replay lines.
//!
//! A target is a file in `src/bin`: it turns any bytes into calls and panics if an invariant
//! is violated. `fuzz/run` builds and runs them all.

pub mod counter;
pub mod replay_reference;
pub mod script;
