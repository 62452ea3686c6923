//! The library through its public API: conformance of the memory store, concurrency, capacity,
//! changed quotas, invalid input, store failures and waiting.
// Clippy allows unwrap and print only inside `#[test]` functions.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

#[cfg(feature = "tokio")]
mod acquire;
mod bad_input;
mod batches;
mod capacity;
mod changed_quota;
mod concurrency;
#[path = "../conformance/suite.rs"]
mod conformance;
mod errors;
mod fixtures;
#[cfg(feature = "tokio")]
mod holds;
mod inspect;
mod memory;
mod overload;
mod partitions;
mod per_limit_costs;
mod public_api;
#[cfg(feature = "tokio")]
mod reservations;
mod resident;
mod secrets;
mod shared_budgets;
mod shares;
mod store_failure;
mod undo;
