//! The parts of `--bench memory`: the memory store compared with its peers in one process.
//!
//! [`contender`] has one file per contender; the other modules use contenders only through their
//! traits.

pub mod callers;
pub mod contender;
pub mod expiry;
pub mod resident_memory;
pub mod scenario;
pub mod target;
pub mod timed_run;
