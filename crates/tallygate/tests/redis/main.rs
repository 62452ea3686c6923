//! The Redis store against real servers: what every store must answer, many processes on one key,
//! whatever can break, bad input and secrets. Knows only the crates' public names.
// Clippy knows unwrap and print of tests only within `#[test]`, not in what they call.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

mod bad_input;
mod breaker;
#[path = "../conformance/suite.rs"]
mod conformance;
mod faults;
mod fixtures;
mod processes;
mod queue;
mod runtimes;
mod secrets;
mod snapshot;
mod stores;
mod traffic;
mod undo;
