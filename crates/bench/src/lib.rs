//! Side-by-side benches of Tallygate and its peers.
//!
//! Each bench prints one table: the same keys, the same quotas, the same loops for every contender,
//! measured alternately in one run. Nothing asserts a time, because machines are noisy.
#![allow(clippy::float_arithmetic, clippy::print_stdout, clippy::print_stderr)]

pub mod callers;
pub mod child;
pub mod entry;
pub mod gateway;
pub mod keys;
pub mod machine;
pub mod measure;
pub mod measurement;
pub mod memory;
pub mod options;
pub mod quota_spec;
pub mod redis;
pub mod shares;
pub mod table;
pub mod target;
