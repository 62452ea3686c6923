//! The Redis store on real servers: conformance, concurrency, faults, invalid input and secrets.
// Clippy allows unwrap and print only inside `#[test]` functions.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

mod bad_input;
mod boot;
mod breaker;
mod callers;
mod coalescing;
#[path = "../conformance/suite.rs"]
mod conformance;
mod connections;
mod faults;
mod fixtures;
mod hash_tags;
mod leases;
mod processes;
mod queue;
mod refusal_cache;
mod runtimes;
mod secrets;
mod shaping;
mod shards;
mod snapshot;
mod stores;
mod topology;
mod traffic;
mod undo;
mod verbs;
