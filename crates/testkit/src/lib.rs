//! What the tests of several crates share. Knows nothing of what is tested.
#![allow(
    clippy::print_stderr,
    reason = "a test that fails says how to run it again"
)]

pub mod poll;
pub mod ports;
mod seeds;

pub use seeds::{any, with_each_seed};
