//! The library as a stranger uses it: one store against the plain arithmetic, many threads, too
//! many keys, changed quotas, bad input and waiting. Knows only the crates' public names.
// Clippy knows unwrap and print of tests only within `#[test]`, not in what they call.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod bad_input;
mod batches;
mod behaviours;
mod capacity;
mod changed_quota;
mod concurrency;
#[path = "../conformance/suite.rs"]
mod conformance;
mod failing;
mod inspect;

mod memory;
mod own_costs;
mod public_api;
mod secrets;
mod sharing;
mod undo;
#[cfg(feature = "tokio")]
mod waiting;
